"""
Votes: when the numbers cannot be trusted
=========================================

The result of an election is public for every state, but nobody's vote is. It is tempting to learn
who votes for whom from a survey and these totals. This recipe shows how that fails, and how unbag
says so.
"""

# %%
# The data
# --------
# 4,000 people in 40 states answer four questions. Supporters of a party answer differently, which
# is what a model needs. But people of *both* parties are more conservative in conservative states,
# so people who vote alike do not look alike in all states.

import numpy as np
import pandas as pd

import unbag

rng = np.random.default_rng(5)
share_red = np.linspace(0.3, 0.7, 40)
state = rng.integers(0, 40, 4000)
red = rng.random(4000) < share_red[state]
climate = 2.0 * (share_red[state] - 0.5)
answers = rng.normal(size=(4000, 4)) + 0.8 * red[:, None] + climate[:, None]
vote = np.where(red, "red", "blue")
shares = pd.DataFrame({"red": share_red, "blue": 1 - share_red})

# %%
# The check before the start
# --------------------------
# There are many more bags than classes, so the assumption can be tested. It can only see what is
# not explained by the shares themselves: here the climate follows them exactly, and the test is
# silent.

print(unbag.inspect(shares, bag_ids=state, X=answers))

# %%
# The estimate is too good
# ------------------------

train, held_out = unbag.Bags(answers, state, shares).train_test_split(random_state=0)
clf = unbag.UnbagClassifier(priors=shares, random_state=0).fit(train.X, train.bag_ids)
report = unbag.evaluate(clf, held_out.X, held_out.bag_ids)
print(report)
right = (clf.predict(answers) == vote).mean()
print(f"\ntrue accuracy: {right:.3f}")

# %%
# A few labels settle it
# ----------------------
# Rows with a label are simply rows of a pure bag. Even 200 of them, drawn at random, give an
# estimate that does not rest on the assumption.

asked = rng.choice(4000, 200, replace=False)
hits = (clf.predict(answers[asked]) == vote[asked]).mean()
error = 1.96 * np.sqrt(hits * (1 - hits) / 200)
print(f"by 200 labels: {hits:.3f} ± {error:.3f}")
