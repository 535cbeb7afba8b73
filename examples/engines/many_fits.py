"""Train 64 models on two workers of Ray: pip install "unbag[ray]"."""

import numpy as np
import torch
from sklearn.datasets import load_digits

import unbag
from unbag.methods import Job, fit_many

X, y = load_digits(return_X_y=True)
theta = unbag.priors.asymmetric(n_classes=10, random_state=0)
bags = unbag.make_bags(X / 16, y, theta, random_state=0)
methods = ["u-prr", "prop", "matched-likelihood", "unbiased"]
jobs = [Job(bags, methods[seed % 4], seed=seed, epochs=5) for seed in range(64)]

with unbag.distributed.ray_executor(max_workers=2) as executor:
    there = fit_many(jobs, executor=executor, precision="float64")
here = fit_many(jobs, precision="float64")

differences = [
    max(
        ((a - b).abs().max() / b.abs().max()).item()
        for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True)
    )
    for one, other in zip(there, here, strict=True)
]
with torch.no_grad():
    rows = torch.tensor(np.asarray(bags.X))
    same = [
        (one.module(rows).argmax(1) == other.module(rows).argmax(1)).float().mean().item()
        for one, other in zip(there, here, strict=True)
    ]
print(f"{len(there)} models; the same class for {min(same):.2%} of the rows or more")
print(f"largest difference from one process: {max(differences):.0e} of the largest weight")
