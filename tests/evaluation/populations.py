"""Labelled rows in bags, made so that label-free numbers must equal those with labels."""

from dataclasses import dataclass

import numpy as np

from unbag.priors import ClassPriors


@dataclass
class Population:
    """Rows with labels: what is known of them, and what an evaluation must find out."""

    priors: ClassPriors
    bag: np.ndarray  # (n,)
    label: np.ndarray  # (n,)
    predicted: np.ndarray  # (n,)
    confusion: np.ndarray  # (K, K), true by predicted class

    def importance(self, test_prior):
        """Weights of rows under which classes have the shares of a test prior."""
        counts = np.bincount(self.label, minlength=len(test_prior)) / len(self.label)
        return (np.asarray(test_prior) / counts)[self.label]


def exact_population(class_counts, confusion, parts=20):
    """Bags of class counts (M, K), times ``parts``; in each, ΘC = V holds to the row.

    ``confusion`` holds whole numbers: the parts of a class that are predicted as each class.
    """
    class_counts, confusion = np.asarray(class_counts), np.asarray(confusion)
    assert (confusion.sum(1) == parts).all()
    cells = class_counts[:, :, None] * confusion  # (M, K, K)
    bag, label, predicted = (
        np.repeat(index.ravel(), cells.ravel()) for index in np.indices(cells.shape)
    )
    return Population(
        ClassPriors(class_counts, normalize=True), bag, label, predicted, confusion / parts
    )


THREE = exact_population(
    [[50, 10, 20], [10, 60, 10], [5, 15, 60], [20, 20, 40], [7, 1, 30]],
    [[15, 3, 2], [1, 17, 2], [0, 4, 16]],
)
SQUARE = exact_population(
    [[50, 10, 20], [10, 60, 10], [5, 15, 60]], [[15, 3, 2], [1, 17, 2], [0, 4, 16]]
)
TWO = exact_population([[30, 10], [12, 40], [25, 25]], [[18, 2], [5, 15]])
PURE = exact_population(np.diag([30, 20, 50]), [[15, 3, 2], [1, 17, 2], [0, 4, 16]])


def draw_counts(theta, sizes, confusion, shares_of, repeats, rng):
    """Predictions in bags over many repeats, (repeats, M, K)."""
    sizes = np.asarray(sizes)
    if shares_of == "population":
        parts = [
            rng.multinomial(n, shares, repeats)
            for n, shares in zip(sizes, theta @ confusion, strict=True)
        ]
    else:
        counts = np.rint(theta * sizes[:, None]).astype(int)
        assert np.allclose(counts / sizes[:, None], theta)
        parts = [
            sum(rng.multinomial(n, c, repeats) for n, c in zip(row, confusion, strict=True))
            for row in counts
        ]
    return np.stack(parts, axis=1)


def rows_of(table):
    """Predicted class and bag of every row, from counts (M, K)."""
    bag, predicted = (np.repeat(index.ravel(), table.ravel()) for index in np.indices(table.shape))
    return predicted, bag
