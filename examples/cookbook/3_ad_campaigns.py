"""
Ad campaigns: totals with noise for privacy
===========================================

An ad platform reports conversions per group of impressions only, and adds noise to each report so
that nobody can be singled out. The shares are then not exact. How much does that cost?
"""

# %%
# The data
# --------
# 20,000 impressions in 20 random groups by time of day and place, with conversion rates between
# 5 and 40 %. The platform adds Laplace noise of scale 20 to each count.

import numpy as np

import unbag
from unbag.priors import ShareErrors

rng = np.random.default_rng(2)
groups, size, scale = 20, 1000, 20
rate = rng.uniform(0.05, 0.4, groups)
group = np.repeat(np.arange(groups), size)
converted = rng.random(groups * size) < rate[group]
rows = rng.normal(size=(groups * size, 5)) + 1.2 * converted[:, None] * np.array([1, 1, 0, -1, 0])

counts = np.bincount(group, weights=converted, minlength=groups)
noisy = np.clip(counts + rng.laplace(scale=scale, size=groups), 0, size) / size
shares = np.column_stack([1 - noisy, noisy])

# %%
# Say how large the noise is
# --------------------------
# A share is a count divided by the size of its group, and so is its noise. The noise is part of the
# class priors; ``inspect`` shows what it does to the numbers to come.

noisy_shares = unbag.ClassPriors(shares, errors=ShareErrors.laplace(scale / size))
print(unbag.inspect(noisy_shares, bag_ids=group, X=rows))

# %%
# Train and evaluate
# ------------------
# The evaluation knows the noise from there. Without it, the shares are taken as exact, and the
# interval is too narrow.

train, held_out = unbag.Bags(rows, group, noisy_shares).train_test_split(random_state=0)
clf = unbag.UnbagClassifier(priors=noisy_shares, random_state=0).fit(train.X, train.bag_ids)
predicted = clf.predict(held_out.X)
for name, priors in (("taken as exact", shares), ("noise told", noisy_shares)):
    a = unbag.evaluate_predictions(predicted, held_out.bag_ids, priors=priors).accuracy
    print(f"{name:15s} accuracy {a:.3f} ({a.low:.3f} to {a.high:.3f})")
print(f"{'truth':15s} accuracy {(clf.predict(rows) == converted).mean():.3f}")
