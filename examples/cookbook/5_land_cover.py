"""
Land cover: a map from yearbook tables
======================================

A yearbook has the percent of water, forest, field and town in each of 16 regions. A satellite has
four bands for every pixel. Nobody has labelled a pixel. The result is a map.
"""

# %%
# The data
# --------
# A landscape of 64 × 64 pixels; every region is a square of 16 × 16 pixels. The shares are exact
# counts of these very pixels, so ``shares_of="rows"`` gives the narrower intervals that they allow.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter

import unbag

rng = np.random.default_rng(4)
side, square = 64, 16
classes = np.array(["field", "forest", "town", "water"])
fields = np.stack([gaussian_filter(rng.normal(size=(side, side)), 7) for _ in classes])
truth = classes[fields.argmax(0)]
colours = dict(zip(classes, rng.uniform(0, 1, (4, 4)), strict=True))
bands = np.stack([colours[c] for c in truth.ravel()]) + rng.normal(scale=0.25, size=(side**2, 4))
row, column = np.divmod(np.arange(side**2), side)
region = row // square * (side // square) + column // square
shares = pd.crosstab(region, truth.ravel(), normalize="index")

# %%
# Train on all pixels, evaluate on pixels kept apart
# --------------------------------------------------

bags = unbag.Bags(bands, region, shares)
train, held_out = bags.train_test_split(random_state=0)
clf = unbag.UnbagClassifier(priors=shares, random_state=0).fit(train.X, train.bag_ids)
print(unbag.evaluate(clf, held_out, shares_of="rows"))

# %%
# The map
# -------

predicted = clf.predict(bands).reshape(side, side)
print(f"true accuracy: {(predicted == truth).mean():.3f}")
figure, axes = plt.subplots(1, 2, figsize=(7, 3.6))
for axis, values, title in zip(axes, (predicted, truth), ("predicted", "truth"), strict=True):
    axis.imshow(np.searchsorted(classes, values), cmap="viridis")
    axis.set(title=title, xticks=[], yticks=[])
