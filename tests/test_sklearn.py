from sklearn.utils.estimator_checks import parametrize_with_checks

from unbag import UnbagClassifier


@parametrize_with_checks([UnbagClassifier(epochs=30, random_state=0)])
def test_check(estimator, check):
    check(estimator)
