"""Search a grid on the workers of Dask or Ray: pip install unbag distributed "ray".

usage: python grid_search.py dask|ray
"""

import sys

import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import unbag


def search():
    """Search on the backend of joblib that is in use; a method trains in little time here."""
    X, y = load_digits(return_X_y=True)
    theta = unbag.priors.symmetric(n_classes=10, a=0.5)
    bags = unbag.make_bags(X, y, theta, random_state=0)
    clf = unbag.UnbagClassifier(theta, method="u-prr", epochs=3, random_state=0)
    grid = GridSearchCV(clf, {"method__alpha": [0.3, 0.7]}, cv=StratifiedKFold(2), n_jobs=2)
    return grid.fit(bags.X, bags.bag_ids)


def main(backend):
    """Search there and here, and compare."""
    if backend == "ray":
        import ray
        from ray.util.joblib import register_ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        register_ray()
        with joblib.parallel_config("ray"):
            there = search()
    else:
        from dask.distributed import Client

        with (
            Client(n_workers=2, threads_per_worker=1, dashboard_address=None),
            joblib.parallel_config("dask"),
        ):
            there = search()
    with joblib.parallel_config("sequential"):
        here = search()
    scores = there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"]
    print("best:", there.best_params_, "scores:", scores[0].round(4))
    print(f"largest difference from this process: {abs(scores[0] - scores[1]).max():.0e}")


if __name__ == "__main__":
    main(sys.argv[1])
