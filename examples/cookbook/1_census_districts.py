"""
Census districts: a model from totals
=====================================

A census publishes, for every district, how many people work, study or are retired. A survey has
the age, the hours spent at home and the income of 2,400 people, and knows in which district each
one lives, but not what they do. The task: tell it for every person.
"""

# %%
# The data
# --------
# The rows are people, the bags are 30 districts, the classes are three. Only the simulation knows
# the class of each person.

import numpy as np
import pandas as pd

import unbag

rng = np.random.default_rng(7)
classes = np.array(["works", "studies", "retired"])
shares = pd.DataFrame(rng.dirichlet([4, 2, 3], 30), columns=classes)
shares.index = [f"district {i}" for i in range(30)]
district = rng.choice(shares.index, 2400)
truth = np.array([rng.choice(classes, p=shares.loc[d]) for d in district])
mean = {"works": (42, 9, 3.2), "studies": (22, 13, 0.8), "retired": (71, 18, 1.9)}
people = pd.DataFrame(
    [rng.normal(mean[c], (9, 3, 0.9)) for c in truth], columns=["age", "hours_home", "income"]
)
shares.head(3).round(2)

# %%
# Can it work?
# ------------
# ``inspect`` answers before anything is trained. There are more bags than classes, so it can also
# test whether people of a class look alike in all districts.

print(unbag.inspect(shares, bag_ids=district, X=people.to_numpy()))

# %%
# Train and evaluate
# ------------------
# One part of the rows trains the model. The other part tells how good it is, without labels.

bags = unbag.Bags(people.to_numpy(), district, shares)
train, held_out = bags.train_test_split(random_state=0)
clf = unbag.UnbagClassifier(priors=shares, random_state=0).fit(train.X, train.bag_ids)
report = unbag.evaluate(clf, held_out.X, held_out.bag_ids)
print(report)

# %%
# The truth
# ---------
# Here it is known, since the data are simulated. It should lie inside the interval.

accuracy = (clf.predict(people.to_numpy()) == truth).mean()
low, high = report.accuracy.low, report.accuracy.high
print(f"estimated {report.accuracy:.3f} ({low:.3f} to {high:.3f}), true {accuracy:.3f}")
