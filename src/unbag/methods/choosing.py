"""``method="auto"``: which method suits bags and network, by rules that can be read and printed."""

from dataclasses import dataclass

from torch import nn

from unbag.bags import Bags
from unbag.methods.jobs import choose_batching, says_little, tells_labels
from unbag.models import ModuleFactory, ResNet20

__all__ = ["Choice", "choose_method"]

MOST_ROWS = 200_000


@dataclass(frozen=True)
class Choice:
    """A method and the rule that chose it.

    Attributes
    ----------
    method : str
    reason : str
    """

    method: str
    reason: str


def choose_method(
    bags: Bags,
    *,
    model: str | nn.Module | ModuleFactory = "mlp",
    one_training: bool = False,
    own_loss: bool = False,
) -> Choice:
    """Choose a method for bags; the first rule that holds decides.

    1. Another loss than cross-entropy is wanted: ``u-prr``, since likelihoods have no other.
    2. All bags have one class each: ``bag-likelihood``, which then is plain cross-entropy.
    3. Training is to stop early, or to go on from the last fit: ``matched-likelihood``, a method
       of one training.
    4. A residual network, given by name or as a module, priors that say enough and bags whose
       sizes are not small: ``consistency``, one training on augmented images.
    5. More than 200,000 rows: ``matched-likelihood``, since the 8 to 19 trainings or more of
       ``crossfit`` take long and its soft labels gain least where rows are many.
    6. Otherwise ``crossfit``.

    Parameters
    ----------
    bags : Bags
    model : str, nn.Module or factory, default="mlp"
    one_training : bool, default=False
        Whether methods of more than one training are ruled out.
    own_loss : bool, default=False
        Whether the loss is not cross-entropy.

    Examples
    --------
    >>> import numpy as np, unbag
    >>> from unbag.methods import choose_method
    >>> X, y = np.eye(4).repeat(50, 0)[:, :3], np.repeat([0, 0, 1, 1], 50)
    >>> bags = unbag.make_bags(X, y, [[0.9, 0.1], [0.2, 0.8]], random_state=0)
    >>> choose_method(bags)
    Choice(method='crossfit', reason='bags mix classes and have 200 rows in all')
    >>> choose_method(unbag.Bags(X, y, np.eye(2))).method
    'bag-likelihood'
    """
    if own_loss:
        return Choice("u-prr", "the loss is not cross-entropy")
    rows = bags.present()
    if tells_labels(rows.priors.values):
        return Choice("bag-likelihood", "every bag has one class, so this is supervised learning")
    if one_training:
        reason = "training is to stop early, or to go on from the last fit"
        return Choice("matched-likelihood", reason)
    residual = model == "resnet20" or isinstance(model, ResNet20)
    small = choose_batching(rows.counts) == "whole-bags"
    if residual and not small and not says_little(rows.priors.values):
        return Choice("consistency", "the network is a residual one, and bags differ enough")
    if rows.n_rows > MOST_ROWS:
        reason = f"bags mix classes and have {rows.n_rows:,} rows, over {MOST_ROWS:,}"
        return Choice("matched-likelihood", reason)
    return Choice("crossfit", f"bags mix classes and have {rows.n_rows:,} rows in all")
