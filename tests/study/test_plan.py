import numpy as np
import pytest
from tiny_study import FEATURES, K

from study.data import Data
from study.plan import METHODS, SETTINGS, STUDY, Run, rows_in_bags
from unbag.datasets import SOURCES
from unbag.exceptions import InvalidInputError
from unbag.methods import UPRR


def make_run(**changes):
    values = {
        "dataset": "usps",
        "setting": "asymmetric",
        "method": "u-prr",
        "trial": 1,
        "learning_rate": 1e-3,
        "batch_divisor": 10,
        "epochs": 3,
    }
    return Run(**{**values, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"alpha": 0.5, "ascent_scale": 2.0},
        {"alpha": 0.0, "flood_level": 0.0},
        {"held_out": True},
        {"prior_noise": 0.01, "dropout": 0.8, "weight_decay": 0.0, "share": 1 / 27},
    ],
)
def test_a_run_survives_its_plain_form(changes):
    run = make_run(**changes)
    assert Run.from_dict(run.to_dict()) == run
    assert set(changes) <= run.to_dict().keys()
    assert len(run.to_dict()) == 7 + len(changes)  # what is at its default is left out


def test_a_field_that_runs_do_not_have_is_refused():
    with pytest.raises(InvalidInputError, match="not a run of the study"):
        Run.from_dict({**make_run().to_dict(), "colour": "red"})


def test_hyperparameters_are_those_given_also_zero():
    assert make_run(method="u-flood", flood_level=0.0).hyperparameters == {"flood_level": 0.0}
    assert make_run().hyperparameters == {}


def test_the_study_is_the_papers():
    assert len(STUDY) * len(SETTINGS) * len(METHODS) == 192
    assert [spec.epochs for spec in STUDY.values()] == [500] * 5 + [200]
    shapes = [make(K).shape for make in SETTINGS.values()]
    assert shapes == [(10, 10)] * 3 + [(20, 10)]
    for make in SETTINGS.values():
        np.testing.assert_array_equal(make(K), make(K))  # one Θ per setting
        assert (make(K)[:10].argmax(1) == np.arange(10)).all()
    np.testing.assert_allclose(np.diag(SETTINGS["symmetric-0.1"](K)), 0.19)


@pytest.mark.parametrize("name", SOURCES)
def test_bags_of_every_dataset_have_the_same_rows_in_all_settings(name):
    n = rows_in_bags(SOURCES[name].rows[0], K)
    assert n % 20 == 0
    assert 0 <= SOURCES[name].rows[0] - n < 20


@pytest.mark.usefixtures("small")
class TestData:
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_bags_are_of_equal_size(self, setting):
        bags, held_out = Data("usps").bags(make_run(setting=setting))
        assert held_out is None
        assert set(bags.counts) == {240 // bags.priors.n_bags}

    def test_a_share_of_the_rows(self):
        bags, _ = Data("usps").bags(make_run(share=1 / 3))
        assert bags.n_rows == 80

    def test_a_fifth_is_held_out(self):
        data = Data("usps")
        whole, _ = data.bags(make_run())
        train, held_out = data.bags(make_run(held_out=True))
        assert train.n_rows + held_out.n_rows == whole.n_rows
        assert 0.1 < held_out.n_rows / whole.n_rows < 0.3
        assert not set(train.rows) & set(held_out.rows)

    def test_a_trial_has_bags_of_its_own(self):
        data = Data("usps")
        first, second = (data.bags(make_run(trial=t))[0].rows for t in (0, 1))
        assert (first != second).any()
        np.testing.assert_array_equal(first, Data("usps").bags(make_run(trial=0))[0].rows)

    def test_noise_of_the_priors_changes_what_is_told_and_no_row(self):
        data = Data("usps")
        true, _ = data.bags(make_run())
        noisy, _ = data.bags(make_run(prior_noise=0.05))
        np.testing.assert_array_equal(true.rows, noisy.rows)
        difference = np.abs(true.priors.values - noisy.priors.values).max()
        assert 0 < difference < 0.2

    def test_a_job_has_the_settings_of_its_run(self):
        job = Data("usps").job(
            make_run(alpha=0.3, ascent_scale=2.0, dropout=0.4, weight_decay=0.1, trial=4)
        )
        assert job.method == UPRR(alpha=0.3, ascent_scale=2.0)
        assert job.model_options == {"depth": 2, "width": 8, "dropout": 0.4}
        assert (job.weight_decay, job.seed, job.batch_size) == (0.1, 4, 24)
        assert job.batching == "shuffled"
        assert job.test.X.shape == (60, FEATURES)

    def test_only_a_posterior_of_the_test_prior_is_told_it(self):
        data = Data("usps")
        given_priors = {m: data.job(make_run(method=m)).test_prior is not None for m in METHODS}
        assert [m for m, is_told in given_priors.items() if not is_told] == [
            "biased",
            "prop",
            "prop-cr",
        ]

    def test_a_batch_is_never_empty(self):
        assert Data("usps").job(make_run(batch_divisor=500)).batch_size == 1

    def test_an_unknown_dataset_is_refused(self):
        with pytest.raises(InvalidInputError, match="dataset must be one of 'pendigits'"):
            Data("svhn").bags(make_run())
