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
# Laplace noise of scale b has the standard deviation √2 b; a share is a count divided by the size
# of its group. ``inspect`` shows what this does to the numbers to come.

errors = np.full_like(shares, np.sqrt(2) * scale / size)
print(unbag.inspect(shares, bag_ids=group, X=rows, prior_errors=errors))

# %%
# Train and evaluate
# ------------------
# The same errors widen the intervals of the evaluation. Without them, the shares would be taken
# as exact, and the interval would be too narrow.

train, held_out = unbag.Bags(rows, group, shares).train_test_split(random_state=0)
clf = unbag.UnbagClassifier(priors=shares, random_state=0).fit(train.X, train.bag_ids)
for name, told in (("taken as exact", None), ("noise told", errors)):
    a = unbag.evaluate(clf, held_out.X, held_out.bag_ids, prior_errors=told).accuracy
    print(f"{name:15s} accuracy {a:.3f} ({a.low:.3f} to {a.high:.3f})")
print(f"{'truth':15s} accuracy {(clf.predict(rows) == converted).mean():.3f}")
