"""Methods by name: those of unbag, and one that another package brings."""

import sys

import numpy as np
import pytest
from sklearn.base import clone

import unbag
from unbag.exceptions import InvalidInputError
from unbag.methods import METHODS, UPRR, CrossFit, Job, Prop, fit_many, get_method, registry
from unbag.methods.base import Method

EIGHT = ["biased", "prop", "prop-cr", "unbiased", "u-correct", "u-flood", "u-stop", "u-prr"]
BUILT_IN = list(METHODS)


def test_the_methods_of_unbag():
    assert BUILT_IN[: len(EIGHT)] == EIGHT
    assert len(METHODS) == len(BUILT_IN)
    for name, kind in METHODS.items():
        assert kind.name == name
        assert kind.summary
        assert isinstance(get_method(name), kind)
    single = [name for name in METHODS if METHODS[name].is_single]
    assert {*EIGHT, "bag-likelihood", "consistency", "auto"} <= {*single}
    assert not {"crossfit", "tables"} & {*single}


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(InvalidInputError, match=r"method must be one of 'biased'.*got 'u-pr'"):
        get_method("u-pr")
    with pytest.raises(InvalidInputError, match="method must be a name or an object of"):
        get_method(3)
    with pytest.raises(InvalidInputError, match="method must be a name or an object of"):
        get_method(UPRR)


@pytest.mark.parametrize("name", EIGHT)
def test_the_rewritten_risk_needs_classes_that_bags_tell_apart(name):
    assert METHODS[name].needs_rank == name.startswith("u")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("u-prr", ["alpha", "ascent_scale"]),
        ("u-flood", ["flood_level"]),
        ("prop-cr", ["consistency"]),
        ("biased", []),
        ("matched-likelihood", ["matching"]),
        (
            "crossfit",
            [
                "rounds",
                "folds",
                "start",
                "matching",
                "mixup",
                "adversarial_smoothing",
                "balanced",
                "calibrated",
                "augment",
            ],
        ),
    ],
)
def test_settings(name, own):
    assert list(get_method(name).settings) == own
    listed = ", ".join(map(repr, own)) or "none"
    with pytest.raises(InvalidInputError) as caught:
        get_method(name, other=1)
    assert f"The method {name!r} has no setting 'other'; it has: {listed}." in str(caught.value)


def test_a_method_with_some_settings_changed_keeps_the_others():
    method = UPRR(alpha=0.4, ascent_scale=2.0)
    assert get_method(method, alpha=0.5) == UPRR(alpha=0.5, ascent_scale=2.0)
    assert get_method(method) == method
    assert get_method("u-prr", alpha=0.5) == UPRR(alpha=0.5)
    assert method.alpha == 0.4


# --------------------------------------------------------------- a method from another package

MODULE = '''
from dataclasses import dataclass, replace
from unbag.methods import Method
from unbag.objectives import Proportion

class Shares(Proportion):
    def __init__(self, priors):  # takes none of what the objectives of unbag take
        super().__init__(priors)

@dataclass(frozen=True)
class Twice(Method):
    """Train, and train again."""

    name = "twice"
    summary = "prop, and again for longer"
    factor: int = 2

    def fit(self, job):
        first = job.replica(job.objective(Shares), epochs=2)
        yield []  # nothing is wanted
        (before,) = yield [first]
        (fit,) = yield [replace(first, module=before.module, epochs=2 * self.factor)]
        return fit

class NoMethod:
    name = "no-method"
'''
POINTS = """
[unbag.methods]
twice = other_methods:Twice
absent = other_methods:Absent
no-method = other_methods:NoMethod
misnamed = other_methods:Twice
prop = other_methods:Twice
"""


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    """Install a package with entry points, for one test."""
    info = tmp_path / "other_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "other_methods.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    registry._Methods._others.cache_clear()
    yield
    sys.modules.pop("other_methods", None)
    registry._Methods._others.cache_clear()


@pytest.fixture
def bags():
    X, y = np.eye(4).repeat(50, 0)[:, :3], np.repeat([0, 0, 1, 1], 50)
    return unbag.make_bags(X, y, [[0.9, 0.1], [0.2, 0.8]], random_state=0)


@pytest.mark.usefixtures("other_package")
def test_a_method_of_another_package_is_a_method_as_any_other(bags):
    assert list(METHODS) == [*BUILT_IN, "twice", "absent", "no-method", "misnamed"]
    assert len(METHODS) == len(BUILT_IN) + 4
    assert issubclass(METHODS["twice"], Method)
    assert METHODS["prop"] is Prop  # names of unbag are its own
    by_name, of_job = fit_many([Job(bags, "twice"), Job(bags, get_method("twice", factor=3))])
    assert (by_name.method, by_name.settings, by_name.n_epochs) == ("twice", {"factor": 2}, 4)
    assert (of_job.settings, of_job.n_epochs) == ({"factor": 3}, 6)
    clf = unbag.UnbagClassifier(bags.priors, method="twice", random_state=0)
    clf.set_params(method__factor=4, loss="generalized-cross-entropy").fit(bags.X, bags.bag_ids)
    assert (clf.method_, clf.settings_, clf.n_iter_) == ("twice", {"factor": 4}, 8)
    assert clone(clf).fit(bags.X, bags.bag_ids).n_iter_ == 8


@pytest.mark.usefixtures("other_package")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", r"The method 'absent' \(other_methods:Absent\) cannot be imported: Attribute"),
        ("no-method", "entry point other_methods:NoMethod must be a subclass of unbag.methods.Me"),
        ("misnamed", "entry point other_methods:Twice must be a .* with the name 'misnamed'"),
    ],
)
def test_an_entry_point_that_is_no_method_is_refused_when_it_is_asked_for(bags, name, message):
    with pytest.raises(InvalidInputError, match=message):
        unbag.UnbagClassifier(bags.priors, method=name).fit(bags.X, bags.bag_ids)
    assert get_method("crossfit") == CrossFit()
