import json
import zlib
from collections import defaultdict

import numpy as np
import pytest
from tiny_study import made_choices, made_record

from study.choices import TUNED, Choices, choose, setting_shares
from study.plan import (
    ALPHAS,
    ASCENT_SCALES,
    BATCH_DIVISORS,
    FLOOD_LEVELS,
    LEARNING_RATES,
    METHODS,
    SETTINGS,
    cell_runs,
)
from unbag.exceptions import InvalidInputError
from unbag.priors import risk_weights


class Oracle:
    """Records whose errors a function of the run gives, made when they are asked for."""

    def __init__(self, label_free, test=lambda _: 0.5, diverged=lambda _: False):
        self.made = {}
        self.rounds = []
        self._make = lambda run: made_record(
            run, 100 * test(run), label_free_error=label_free(run), diverged=diverged(run)
        )

    def ensure(self, runs):
        new = [run for run in dict.fromkeys(runs) if run not in self.made]
        self.made |= {run: self._make(run) for run in new}
        self.rounds.append(new)

    def choose(self, *datasets):
        return choose(datasets or ("usps",), self.made, self.ensure)


def by_batch(**errors):
    """A label-free error that batch size alone decides."""
    return lambda run: errors.get(f"n{run.batch_divisor}", 0.5)


def divisors(oracle, dataset="usps"):
    return sorted({run.batch_divisor for run in oracle.made if run.dataset == dataset})


@pytest.mark.parametrize(
    ("errors", "chosen", "tried"),
    [
        ({"n10": 0.1}, 10, [10, 20, 50]),
        ({"n20": 0.1}, 20, [10, 20, 50, 100]),
        ({"n10": 0.3, "n50": 0.2}, 50, [10, 20, 50, 100, 200]),
        ({"n10": 0.3, "n100": 0.1}, 10, [10, 20, 50]),  # too far off to be met
        ({"n50": 0.3, "n200": 0.2}, 200, list(BATCH_DIVISORS)),
        ({"n500": 0.1, "n200": 0.2, "n100": 0.3, "n50": 0.4}, 500, list(BATCH_DIVISORS)),
    ],
)
def test_batch_sizes_are_tried_from_the_largest_until_two_bring_nothing(errors, chosen, tried):
    oracle = Oracle(by_batch(**errors))
    (choices,) = oracle.choose()
    assert choices.batch_divisor == chosen
    assert divisors(oracle) == tried


def test_datasets_stop_each_for_themselves():
    oracle = Oracle(
        lambda run: {"usps": 0.1, "mnist": 1 / run.batch_divisor}[run.dataset] + run.learning_rate
    )
    usps, mnist = oracle.choose("usps", "mnist")
    assert divisors(oracle, "usps") == [10, 20, 50]
    assert divisors(oracle, "mnist") == list(BATCH_DIVISORS)
    assert (usps.batch_divisor, mnist.batch_divisor) == (10, 500)
    assert usps.learning_rate == mnist.learning_rate == min(LEARNING_RATES)
    # Both are asked for at once, so that they can share a stack.
    assert {run.dataset for run in oracle.rounds[0]} == {"usps", "mnist"}


def test_all_runs_that_choose_are_of_trial_0_with_rows_held_out():
    oracle = Oracle(lambda _: 0.5)
    oracle.choose()
    assert all(run.held_out and run.trial == 0 for run in oracle.made)
    assert {run.method for run in oracle.made} == set(TUNED)
    grid = len(ALPHAS) * len(ASCENT_SCALES) + len(FLOOD_LEVELS)
    # Every start of u-prr at the chosen rate and batch is one of its grid.
    assert len(oracle.rounds[-1]) == len(SETTINGS) * (grid - 1)
    walked = {(r.setting, r.alpha, r.ascent_scale) for r in oracle.rounds[0]}
    assert walked == {(s, *((0.5, 2.0) if s == "symmetric-0.1" else (0.7, 5.0))) for s in SETTINGS}


class TestWithoutGrid:
    """CIFAR-10: only the learning rate is chosen, in one setting."""

    @pytest.mark.parametrize(
        ("errors", "chosen", "n_tried"),
        [
            ((0.5, 0.4, 0.6, 0.3, 0.2), 1e-4, 3),  # what lies behind a worse one is not met
            ((0.3, 0.4, 0.2, 0.2, 0.2), 5e-5, 2),
            ((0.5, 0.4, 0.3, 0.2, 0.1), 1e-3, 5),
            ((0.5, 0.4, 0.4, 0.5, 0.1), 1e-4, 4),  # an equal one does not end it, nor does it win
            ((None, 0.4, 0.5, 0.5, 0.1), 1e-4, 3),  # the first failed
        ],
    )
    def test_rates_are_tried_from_the_smallest_until_one_is_worse(self, errors, chosen, n_tried):
        by_rate = dict(zip(sorted(LEARNING_RATES), errors, strict=True))
        oracle = Oracle(lambda run: by_rate[run.learning_rate])
        (choices,) = oracle.choose("cifar10")
        assert (choices.learning_rate, choices.batch_divisor) == (chosen, BATCH_DIVISORS[0])
        assert [run.learning_rate for run in oracle.made] == sorted(LEARNING_RATES)[:n_tried]
        for run in oracle.made:
            assert (run.method, run.setting, run.epochs) == ("u-prr", "symmetric-0.5", 200)
            assert run.batch_divisor == BATCH_DIVISORS[0]
            assert run.held_out

    def test_the_setting_is_that_of_the_most_precise_label_free_error(self):
        oracle = Oracle(lambda _: 0.5)
        oracle.choose("cifar10")
        precise = max(zip(setting_shares(), SETTINGS, strict=True))[1]
        assert {run.setting for run in oracle.made} == {precise}

    def test_the_rest_is_as_at_the_start(self):
        (choices,) = Oracle(lambda _: 0.5).choose("cifar10")
        for setting in SETTINGS:
            alpha, scale = (0.5, 2.0) if setting == "symmetric-0.1" else (0.7, 5.0)
            run = choices.run(setting, "u-prr", trial=1)
            assert (run.alpha, run.ascent_scale, run.epochs) == (alpha, scale, 200)
            assert choices.run(setting, "u-flood", trial=1).flood_level == 0.05
            assert choices.by_test_error[setting] == {}
        assert cell_runs(choices, oracle=True) == []

    def test_other_datasets_are_chosen_as_ever(self):
        together, alone = Oracle(by_batch(n20=0.1)), Oracle(by_batch(n20=0.1))
        usps, _ = together.choose("usps", "cifar10")
        assert [usps] == alone.choose("usps")
        assert {run for run in together.made if run.dataset == "usps"} == set(alone.made)


def test_weights_are_those_of_the_variance():
    """The label-free error of predictions drawn from θ_m, many times over."""
    rng, variances = np.random.default_rng(0), []
    for make in SETTINGS.values():
        theta = make(10)
        weights = risk_weights(theta, theta.mean(0), warn=False)
        n = 400 // len(theta)  # rows of a bag, 400 in all
        total = np.zeros(3000)
        for row, shares in zip(theta, weights, strict=True):
            total += shares[rng.choice(10, size=(3000, n), p=row)].mean(1)
        variances.append(total.var())
    precision = 1 / np.array(variances)
    np.testing.assert_allclose(setting_shares(), precision / precision.sum(), rtol=0.15)
    assert sum(setting_shares()) == pytest.approx(1)


def test_noise_of_the_hardest_setting_does_not_decide():
    def error(run):
        good = run.learning_rate == 1e-4
        if run.setting == "symmetric-0.1":
            return 0.4 if good else 0.2  # 20 points of noise
        return 0.05 if good else 0.08

    (choices,) = Oracle(error).choose()
    assert choices.learning_rate == 1e-4


def test_every_setting_has_its_own_hyperparameters():
    best = dict(zip(SETTINGS, ((0.1, 10.0), (0.9, 0.1), (0.5, 1.0), (0.3, 2.0)), strict=True))
    level = dict(zip(SETTINGS, (0.0, 0.05, 0.1, 0.0), strict=True))

    def free(run):
        if run.method == "u-flood":
            return abs(run.flood_level - level[run.setting])
        return 0.1 if (run.alpha, run.ascent_scale) == best[run.setting] else 0.2

    def test(run):
        return 0.1 if (run.alpha, run.ascent_scale) == (0.7, 5.0) else 0.2 + (run.alpha or 0.0)

    (choices,) = Oracle(free, test).choose()
    for setting in SETTINGS:
        alpha, scale = best[setting]
        assert choices.label_free[setting] == {
            "u-prr": {"alpha": alpha, "ascent_scale": scale},
            "u-flood": {"flood_level": level[setting]},
        }
        assert choices.by_test_error[setting]["u-prr"] == {"alpha": 0.7, "ascent_scale": 5.0}


def test_runs_that_failed_are_never_chosen():
    oracle = Oracle(
        label_free=lambda run: None if run.alpha == 0.1 else run.learning_rate,
        test=lambda run: 0.0 if run.alpha == 0.3 else 0.5,
        diverged=lambda run: run.learning_rate == min(LEARNING_RATES) or run.alpha == 0.3,
    )
    (choices,) = oracle.choose()
    assert choices.learning_rate == sorted(LEARNING_RATES)[1]
    for setting in SETTINGS:
        assert choices.label_free[setting]["u-prr"]["alpha"] not in (0.1, 0.3)
        assert choices.by_test_error[setting]["u-prr"]["alpha"] != 0.3


def test_choices_follow_from_the_records_alone():
    def chance(run):
        return zlib.crc32(repr(run).encode()) / 2**32

    oracle = Oracle(chance, lambda run: 1 - chance(run))
    first = oracle.choose("usps", "mnist")
    oracle.rounds.clear()
    assert oracle.choose("usps", "mnist") == first
    assert not any(oracle.rounds)


def test_the_run_of_a_cell():
    choices = made_choices()
    for method in METHODS:
        run = choices.run("asymmetric", method, 3)
        assert (run.method, run.trial, run.epochs, run.held_out) == (method, 3, 500, False)
        assert run.hyperparameters == choices.label_free["asymmetric"].get(method, {})
        oracle = choices.run("asymmetric", method, 3, oracle=True)
        assert (oracle == run) == (method not in TUNED)
    assert made_choices("cifar10").run("asymmetric", "prop", 0).epochs == 200
    assert made_choices(epochs=50).run("asymmetric", "prop", 0).epochs == 50


def test_choices_survive_a_file(tmp_path):
    assert Choices.load(tmp_path, "usps") is None
    for choices in (made_choices("usps"), made_choices("usps", epochs=50)):
        choices.save(tmp_path)
        assert Choices.load(tmp_path, "usps") == choices


def test_choices_without_a_field_of_later_are_read(tmp_path):
    made_choices().save(tmp_path)
    path = tmp_path / "pendigits/choices.json"
    values = json.loads(path.read_text())
    del values["epochs"]
    path.write_text(json.dumps(values))
    assert Choices.load(tmp_path, "pendigits") == made_choices()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda _: "[]",
        lambda text: text.replace("learning_rate", "rate"),
        lambda text: text.replace('"asymmetric"', '"other"'),
        lambda text: text.replace('"alpha"', '"alfa"'),
    ],
)
def test_damaged_choices_are_a_clear_error(tmp_path, damage):
    made_choices().save(tmp_path)
    path = tmp_path / "pendigits/choices.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(InvalidInputError, match=r"choices\.json must be a file of choices"):
        Choices.load(tmp_path, "pendigits")


def test_choices_of_another_dataset_are_refused(tmp_path):
    made_choices("usps").save(tmp_path)
    (tmp_path / "usps").rename(tmp_path / "pendigits")
    with pytest.raises(InvalidInputError, match="the choices of pendigits, got those of usps"):
        Choices.load(tmp_path, "pendigits")


def test_methods_with_hyperparameters_of_their_own_are_the_tuned_ones():
    oracle = Oracle(lambda _: 0.5)
    (choices,) = oracle.choose()
    names = defaultdict(set)
    for table in (*choices.label_free.values(), *choices.by_test_error.values()):
        for method, cell in table.items():
            names[method] |= cell.keys()
    assert names == {"u-prr": {"alpha", "ascent_scale"}, "u-flood": {"flood_level"}}
