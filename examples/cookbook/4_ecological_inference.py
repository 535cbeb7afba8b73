"""
Ecological inference: what did each group do?
=============================================

For every precinct it is known which share of the voters is young and how many voted early, but not
how many of the *young* voted early. This old question of social science needs no model at all: it
is the confusion matrix of unbag, with what people did in place of predictions.
"""

# %%
# The data
# --------
# 60 precincts of 400 voters. Of the young, 30 % vote early, of the old 65 %.

import numpy as np
import pandas as pd

import unbag

rng = np.random.default_rng(3)
share_young = rng.uniform(0.1, 0.8, 60)
precinct = np.repeat(np.arange(60), 400)
young = rng.random(len(precinct)) < share_young[precinct]
early = rng.random(len(precinct)) < np.where(young, 0.30, 0.65)
shares = pd.DataFrame({"young": share_young, "old": 1 - share_young})

# %%
# Read the behaviour as a prediction
# ----------------------------------
# Let "voted early" stand for the prediction "old". The recall of "old" is then the share of the
# old who voted early, and one minus the recall of "young" is that of the young.

report = unbag.evaluate_predictions(np.where(early, "old", "young"), precinct, priors=shares)
recall = dict(zip(report.classes, report.recall, strict=True))
o, y = recall["old"], recall["young"]
print(f"old who voted early:   {o:.3f} ({o.low:.3f} to {o.high:.3f})")
print(f"young who voted early: {1 - y:.3f} ({1 - y.high:.3f} to {1 - y.low:.3f})")
print(f"truth: {early[~young].mean():.3f} and {early[young].mean():.3f}")

# %%
# When it goes wrong
# ------------------
# The assumption is that the young behave alike in all precincts. If the young vote early more
# often where there are many of them, the totals mislead, and no number of rows cures that.

drift = np.where(young, 0.1 + 0.5 * share_young[precinct], 0.65)
early = rng.random(len(precinct)) < drift
wrong = unbag.evaluate_predictions(np.where(early, "old", "young"), precinct, priors=shares)
y = dict(zip(wrong.classes, wrong.recall, strict=True))["young"]
print(f"young who voted early: {1 - y:.3f} ({1 - y.high:.3f} to {1 - y.low:.3f})")
print(f"truth: {early[young].mean():.3f}")
