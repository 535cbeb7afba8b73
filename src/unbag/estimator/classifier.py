"""UnbagClassifier: the methods as a scikit-learn classifier."""

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unbag.bags import Bags
from unbag.callbacks import Callback
from unbag.estimator.hub import OnHub
from unbag.estimator.job import ClassifierJob, history_of_bags
from unbag.estimator.moved import naming_new_places, refuse_settings_of_methods
from unbag.estimator.predicting import Predicting
from unbag.evaluation import Calibration
from unbag.identity import hash_rows, sketch
from unbag.methods import Fit, Method, fit_many, get_method, read_labels
from unbag.methods.sizes import are_pure
from unbag.models import ModuleFactory
from unbag.objectives.losses import LossOfEveryClass
from unbag.processes import current_processes
from unbag.training import resolve_device
from unbag.validation import as_generator

__all__ = ["UnbagClassifier"]


class UnbagClassifier(Predicting, OnHub):
    """Classifier learned from bags of unlabeled rows and the class shares of every bag.

    ``fit(X, y)`` takes the **bag id** of every row as ``y``. So ``Pipeline``, ``clone`` and
    ``GridSearchCV(cv=StratifiedKFold())`` work as they are and tune without a label.

    Parameters
    ----------
    priors : array, dict, DataFrame or ClassPriors, default=None
        The class shares Θ: one row per bag, one column per class. For an array, bag ids must be
        0..M−1; a DataFrame (index = bag ids, columns = class names) or dict is matched by id.
        None means that ``y`` is the class itself, as in supervised learning. :meth:`fit_bags`
        uses the class shares of its bags.
    method : str or Method, default="auto"
        biased, prop, prop-cr, unbiased, u-correct, u-flood, u-stop, u-prr, bag-likelihood,
        matched-likelihood, crossfit, consistency, tables, or auto, which chooses one of them to
        suit the bags and the network (docs/guide/methods.md). An object has settings, such as
        ``unbag.methods.UPRR(alpha=0.5)``. ``set_params(method__alpha=0.5)`` and searches over
        ``method__alpha`` change them too, even if the method is given by its name.
    learner : str or classifier, default=None
        The classifier that the method ``tables`` trains: "trees", "extra-trees", "boosting",
        "linear", "mlp", or a classifier of scikit-learn or of a library with the same interface,
        which needs ``predict_proba`` and ``sample_weight``. With a learner, "auto" chooses
        ``tables``. None means that ``tables`` uses several; other methods take no learner.
    test_prior : array of shape (K,) or dict, default=None
        π, the class shares where the classifier will be used; None means those of the rows.
    loss : str or callable, default="cross-entropy"
        ``"cross-entropy"``, ``"generalized-cross-entropy"``, or a function of logits (n, K) to
        the loss of every class (n, K).
    model : str, nn.Module or callable, default="mlp"
        ``"linear"``, ``"mlp"``; for images ``"lenet5"``, ``"resnet18"``, ``"resnet20"`` or
        ``"wrn28-2"``; a module, or a factory f(row_shape, n_classes).
    depth, width, dropout : int, int, float
        Shape of the MLP, and its share of dropout. A depth of None means 3, or 5 where the effort
        makes training longer.
    effort : {"fast", "balanced", "best"}, default="balanced"
        How long networks are trained if ``epochs`` is None; "balanced" takes longer on a GPU.
    epochs, batch_size, learning_rate : int, int, float, default=None
        None means a value that depends on the rows. In crossfit, ``epochs`` is that of networks
        that learn soft labels; fewer than usual shorten the start as well. With a learning rate,
        convolutional networks learn by Adam; else, from 10,000 rows on, by gradient descent.
    weight_decay : float, default=None
        In Adam's L2 form. None means 1e-5, but in crossfit (280/n)^1.5, at most 0.01, for MLPs
        that learn soft labels of n rows, and 0.003 for the first MLPs if shares are weak.
    backbone_rate : float, default=1.0
        Factor of the learning rate for all weights but those of the last layer; 0.1, say, to
        fine-tune a module that brings its weights. Frozen layers stay as they are.
    early_stopping : bool, default=False
        Hold rows out, stop when their label-free error no longer falls, keep the best weights.
    validation_fraction : float, default=0.1
        Share of every bag that is held out for early stopping.
    n_iter_no_change : int, default=20
        Epochs without a smaller label-free error after which training ends.
    batching : {"auto", "stratified", "shuffled", "whole-bags"}, default="auto"
        "stratified" batches hold every bag in proportion, "shuffled" ones mix all rows as in the
        paper, "whole-bags" never divide a bag. "auto" keeps bags whole if there are 30 or more,
        with 512 rows or fewer on average; otherwise batches are stratified.
    standardize : bool, default=True
        Give every feature mean 0 and deviation 1. Images of bytes are scaled to [0, 1] instead.
    device : str, default="auto"
    precision : {"float32", "tf32", "bf16", "float64"}, default="float32"
    warm_start : bool, default=False
        Start from the network of the last fit, whatever ``model`` and its sizes say.
    time_limit : float, default=None
        Seconds that training may take; what no longer fits is left out. None means no limit.
    checkpoint : path, default=None
        A folder for unfinished work. A fit that was killed goes on from it, with the same result.
    callbacks : sequence of unbag.callbacks.Callback, default=None
        Told of epochs, stages and the end: ``[unbag.callbacks.JsonLinesLogger("run.jsonl")]``.
    verbose : bool, default=False
        Show a progress bar with the time left.
    random_state : int, Generator, RandomState or None, default=None

    Attributes
    ----------
    classes_ : array of shape (K,)
    priors_ : ClassPriors
        Of the bags that had rows; ``known_priors_`` are those of all bags that were given.
    method_ : str
        Name of the method that was used, also with ``method="auto"``.
    settings_ : dict
        Settings of that method.
    training_settings_ : dict
        Values that were chosen for parameters of training that are None. A loaded model has none.
    module_ : nn.Module
    history_ : dict of arrays
        One entry per epoch: ``epoch``, ``objective``, ``empirical_risk``, ``negative_share``,
        ``partial_risks``; with rows held out ``label_free_error``; with a labelled test set
        ``test_error``. That of crossfit is of its last network, whose risks are not a number.
    n_iter_ : int
        Epochs run.
    best_epoch_ : int or None
        With early stopping, the epoch whose weights were kept.
    calibration_ : Calibration or None
        Set by :meth:`calibrate`; crossfit and consistency set a temperature themselves.
    encoding_ : TableEncoding or None
        How columns became rows, and what was left out (``left_out``, ``notes``); a saved model
        holds it. ``encoding_.transform(table)`` gives the rows.
    stop_reason_ : str
        Why training ended; of some methods, how often they name the bag of held-out rows.
    test_prior_, output_prior_ : arrays of shape (K,)
        π, and the prior under which the softmax is a posterior: π for methods of the rewritten
        risk, and else the class shares of the rows.

    Examples
    --------
    >>> import numpy as np, unbag
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> theta = unbag.priors.symmetric(n_classes=3, a=0.7)
    >>> bags = unbag.make_bags(X, y, theta, random_state=0)
    >>> clf = unbag.UnbagClassifier(priors=theta, random_state=0)
    >>> clf.fit(bags.X, bags.bag_ids).predict(X[:3])
    array([0, 0, 0])
    """

    @naming_new_places
    def __init__(
        self,
        priors: Any = None,
        method: str | Method = "auto",
        *,
        learner: Any = None,
        test_prior: Any = None,
        loss: str | LossOfEveryClass = "cross-entropy",
        model: str | nn.Module | ModuleFactory = "mlp",
        depth: int | None = None,
        width: int = 300,
        dropout: float = 0.0,
        effort: str = "balanced",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        backbone_rate: float = 1.0,
        batching: str = "auto",
        standardize: bool = True,
        device: str = "auto",
        precision: str = "float32",
        warm_start: bool = False,
        time_limit: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.priors = priors
        self.method = method
        self.learner = learner
        self.test_prior = test_prior
        self.loss = loss
        self.model = model
        self.depth = depth
        self.width = width
        self.dropout = dropout
        self.effort = effort
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.backbone_rate = backbone_rate
        self.batching = batching
        self.standardize = standardize
        self.device = device
        self.precision = precision
        self.warm_start = warm_start
        self.time_limit = time_limit
        self.checkpoint = checkpoint
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``method__x`` sets x of the method, by name or as an object."""
        settings = {name: params.pop(name) for name in list(params) if name.startswith("method__")}
        refuse_settings_of_methods(params)
        super().set_params(**params)
        if settings:
            changes = {name.removeprefix("method__"): value for name, value in settings.items()}
            self.method = get_method(self.method, **changes)
        return self

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        bag: str | None = None,
        keep: Sequence[str] = (),
        labels: Any = None,
        test_set: tuple[Any, Any] | None = None,
    ) -> Self:
        """Learn from rows and their bag ids.

        Parameters
        ----------
        X : array, Tensor, sparse matrix or table of shape (n, d), or images (n, C, H, W), (n, H, W)
            A table is a DataFrame of pandas or polars, or any object with ``__arrow_c_stream__``.
            A table of numbers alone is used as scikit-learn would use it. With ``bag``, or with
            text, dates, categories or missing values, the columns are encoded like those of files
            (:class:`unbag.io.TableEncoding`): ``encoding_`` says how, and what was left out.
            ``predict`` then finds columns by their names and ignores others.
        y : array of shape (n,)
            The bag id of every row, or its class if ``priors`` is None. A column of X with the
            same values is left out.
        sample_weight : array of shape (n,), optional
            Weight of every row in the means of its bag; rows of weight 0 are left out.
        bag : str, optional
            In place of y, the column of X that holds the bag ids.
        keep : sequence of str, optional
            Columns of an encoded table to use even if they tell which bag a row is in. Others that
            do, such as a date where bags are days, are left out with a warning.
        labels : array of shape (n,), optional
            The classes of rows where they are known, and None or NaN elsewhere. The shares of the
            other rows of a bag follow from them. Only the methods crossfit and tables use labels;
            "auto" then chooses one of these.
        test_set : (X, labels), optional
            Labelled rows whose error is recorded in ``history_`` each epoch, for research; it
            changes nothing else.
        """
        return self._train(
            self.prepare(X, y, sample_weight, bag=bag, keep=keep, labels=labels, test_set=test_set)
        )

    def fit_bags(self, bags: Bags, *, held_out: Bags | None = None, labels: Any = None) -> Self:
        """Learn from rows and their bag ids in the form of Bags, without copying the rows.

        With ``standardize=False`` and rows of float32 (of float64 for that precision) or images of
        bytes, they may be memory-mapped and larger than memory. All other rows are copied to be
        scaled or converted. The result is that of :meth:`fit` with the same rows.

        Parameters
        ----------
        bags : Bags
            They bring their own class priors: the parameter ``priors`` must be None or say the
            same of them.
        held_out : Bags, optional
            Other rows of bags, whose label-free error is recorded in ``history_`` each epoch. If
            they are a selection of the same source, as :meth:`Bags.train_test_split` makes, they
            are not copied either. With ``early_stopping`` they take the place of the rows that
            it holds out, so an evaluation on them is then a little too good; else they change
            nothing.
        labels : array of shape (n,), optional
            As in :meth:`fit`.
        """
        return self._train(self.prepare_bags(bags, held_out=held_out, labels=labels))

    def prepare(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        bag: str | None = None,
        keep: Sequence[str] = (),
        labels: Any = None,
        test_set: tuple[Any, Any] | None = None,
    ) -> ClassifierJob:
        """Check the arguments of :meth:`fit` and make the job that it trains.

        With :meth:`take` many estimators can be trained as one stack by ``fit_many``.
        """
        X, ids, encoding = self._check_rows(X, y, bag)
        weight, used = self._check_weight(sample_weight, X)
        if weight is not None:
            X, ids, weight = X[used], ids[used], weight[used]
        bags = self._make_bags(X, ids, encoding, keep)
        codes = None if labels is None else read_labels(labels, bags.priors, len(used))
        codes = None if codes is None else codes[used]
        return self._prepare(bags, weight=weight, labels=codes, test_set=test_set)

    def prepare_bags(
        self, bags: Bags, *, held_out: Bags | None = None, labels: Any = None
    ) -> ClassifierJob:
        """Check the arguments of :meth:`fit_bags` and make the job that it trains."""
        self._check_bags(bags, held_out)
        codes = None if labels is None else read_labels(labels, bags.priors, bags.n_rows)
        return self._prepare(bags, held_out, labels=codes)

    def _prepare(
        self,
        given: Bags,
        held_out: Bags | None = None,
        weight: NDArray[np.float64] | None = None,
        labels: NDArray[np.int64] | None = None,
        test_set: tuple[Any, Any] | None = None,
    ) -> ClassifierJob:
        table = given.priors
        scaler = self._fit_scaler(given)
        bags = self._for_network(given, scaler).present()
        seed = int(as_generator(self.random_state).integers(2**31 - 1))
        if self.random_state is None:
            seed = current_processes().agree(seed)
        train = bags
        if held_out is not None:
            held_out = self._for_network(held_out, scaler)
        elif self.early_stopping:
            train, held_out = bags.train_test_split(self.validation_fraction, random_state=seed)
            weight = None if weight is None else weight[train.rows]
            labels = None if labels is None else labels[train.rows]
        return ClassifierJob(
            bags=train,
            method=self._resolved_method(),
            test_prior=self.test_prior,
            loss=self.loss,
            model=self._initial_model(table.classes),
            model_options=self._model_options(),
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            epochs=self.epochs,
            backbone_rate=self.backbone_rate,
            batching=self.batching,
            effort=self.effort,
            accelerated=resolve_device(self.device).type == "cuda",
            seed=seed,
            sample_weight=weight,
            labels=labels,
            test=self._check_test_set(test_set, table, bags.row_shape, scaler, given.encoding),
            held_out=held_out,
            patience=self.n_iter_no_change if self.early_stopping else None,
            given=given,
            scaler=scaler,
        )

    def take(self, job: ClassifierJob, fit: Fit) -> Self:
        """Become the classifier that was trained from what :meth:`prepare` returned."""
        fit.raise_if_failed(may_be_constant=are_pure(job.theta))
        # Nothing that predictions rest on changes before training has succeeded.
        self.scaler_ = job.scaler
        rows = job.bags.source
        self.row_shape_ = tuple(rows.shape[1:])
        self.bytes_ = rows.dtype in (np.uint8, torch.uint8)
        self.priors_ = job.given.present().priors
        self.classes_ = self.priors_.classes
        self.method_ = fit.method
        self.settings_ = dict(fit.settings)
        self.training_settings_ = dict(fit.training_settings)
        self.module_ = fit.module
        self.history_ = history_of_bags(job, fit)
        self.n_iter_ = fit.n_epochs
        self.best_epoch_ = fit.best_epoch
        self.stop_reason_ = fit.stop_reason
        self.test_prior_: Any = fit.test_prior
        self.output_prior_: Any = fit.output_prior
        self.calibration_: Calibration | None = fit.calibration
        self.encoding_ = job.given.encoding
        self.row_hashes_ = sketch(hash_rows(job.given.source, job.given.rows))
        return self

    def _train(self, job: ClassifierJob) -> Self:
        (fit,) = fit_many(
            [job],
            device=self.device,
            precision=self.precision,
            verbose=self.verbose,
            checkpoint=self.checkpoint,
            time_limit=self.time_limit,
            callbacks=self.callbacks,
        )
        return self.take(job, fit)
