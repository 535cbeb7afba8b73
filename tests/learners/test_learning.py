import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from unbag.exceptions import InvalidInputError
from unbag.learners import LEARNERS, check_learner, fit_learner

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = np.where(X[:, 0] > 0, 4, 1)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_every_name_is_a_classifier_that_learns(name):
    check_learner(name)
    learner, classes = fit_learner(name, X, Y, np.ones(200), 0, 10)
    assert classes.tolist() == [1, 4]
    assert (classes[learner.predict(X)] == Y).mean() > 0.9


def test_weights_reach_the_last_step_of_pipelines():
    pipeline = make_pipeline(
        StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression())
    )
    x, label = np.repeat(X, 2, 0), np.tile([0, 1], 200)  # every row once per class
    weight = np.where(label == (np.repeat(Y, 2) == 4), 1.0, 0.0)
    check_learner(pipeline)
    learner, _ = fit_learner(pipeline, x, label, weight, 0, 10)
    assert ((learner.predict(X) == 1) == (Y == 4)).mean() > 0.9


def test_the_seed_is_given_where_the_learner_has_none():
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(3))
    learner, _ = fit_learner(pipeline, X, Y, np.ones(200), 7, 10)
    assert learner[-1].random_state == 7
    kept, _ = fit_learner(RandomForestClassifier(3, random_state=2), X, Y, np.ones(200), 7, 10)
    assert kept.random_state == 2
    assert not hasattr(pipeline[-1], "classes_")  # it was copied


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        ("forest", "learner must be one of 'trees', .* got 'forest'"),
        (LinearSVC(), r"with predict_proba and sample_weight, got LinearSVC\(\)"),
        (KMeans(), "with predict_proba"),
        (KNeighborsClassifier(), "whose fit takes no sample_weight"),
        (make_pipeline(StandardScaler(), KNeighborsClassifier()), "takes no sample_weight"),
        (LogisticRegression, "with predict_proba"),
        (3, "got 3"),
    ],
)
def test_what_is_no_learner_is_refused(learner, message):
    with pytest.raises(InvalidInputError, match=message):
        check_learner(learner)
