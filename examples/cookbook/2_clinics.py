"""
Clinics: how common is it elsewhere?
====================================

Twelve clinics report how many of their patients have a disease, but records cannot be linked to
diagnoses. A model learns from these totals. Then a new clinic, which reports nothing, wants to
know two things: how common the disease is there, and who is likely to have it.
"""

# %%
# The data
# --------
# Four measurements of 2,400 patients; the share of ill patients is between 5 and 60 % by clinic.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import unbag

rng = np.random.default_rng(1)


def patients(n, share_ill):
    ill = rng.random(n) < share_ill
    rows = rng.normal(size=(n, 4)) + 1.1 * ill[:, None] * np.array([1, -1, 1, 0])
    return rows, np.where(ill, "ill", "healthy")


ill = np.linspace(0.05, 0.6, 12)
names = [f"clinic {i}" for i in range(12)]
rows, truth = map(np.concatenate, zip(*[patients(200, p) for p in ill], strict=True))
clinic = np.repeat(names, 200)
shares = pd.crosstab(clinic, truth, normalize="index")

# %%
# Train, and check on rows kept apart
# -----------------------------------

train, held_out = unbag.Bags(rows, clinic, shares).train_test_split(random_state=0)
clf = unbag.UnbagClassifier(priors=shares, random_state=0).fit(train.X, train.bag_ids)
print(unbag.evaluate(clf, held_out.X, held_out.bag_ids))

# %%
# A new clinic
# ------------
# ``estimate_prior`` estimates the class shares of new rows, with intervals. Predictions then use
# these shares, since a disease that is rarer needs more evidence.

new_rows, new_truth = patients(1000, 0.3)
new = unbag.estimate_prior(clf, new_rows, X=held_out.X, bag_ids=held_out.bag_ids)
print(new)
print(f"true share of ill patients: {(new_truth == 'ill').mean():.3f}")
probabilities = clf.predict_proba(new_rows, prior=new.prior)
predicted = clf.classes_[probabilities.argmax(1)]
print(f"right with these shares: {(predicted == new_truth).mean():.3f}")

# %%
# Which patients to call first
# ----------------------------

column = list(clf.classes_).index("ill")
for name in ("ill", "healthy"):
    chosen = probabilities[new_truth == name, column]
    plt.hist(chosen, bins=20, range=(0, 1), alpha=0.6, label=f"truly {name}")
plt.xlabel("probability of the disease")
plt.ylabel("patients of the new clinic")
_ = plt.legend()
