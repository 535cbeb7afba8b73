"""Rows of Gaussian classes in bags, with their true posteriors."""

import numpy as np


def simulate(theta, n, rng, spread=2.0):
    """Rows of Gaussian classes in equal bags, labels, and posteriors under the pooled prior."""
    m, k = theta.shape
    bag = np.repeat(np.arange(m), n // m)
    label = np.concatenate([rng.choice(k, n // m, p=row) for row in theta])
    centres = spread * np.eye(k)
    x = centres[label] + rng.normal(size=(len(bag), k))
    log_density = -0.5 * ((x[:, None] - centres) ** 2).sum(-1)
    return bag, label, softmax(log_density + np.log(theta.mean(0)))


def softmax(logits):
    chances = np.exp(logits - logits.max(1, keepdims=True))
    return chances / chances.sum(1, keepdims=True)
