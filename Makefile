# Every target sets up its own virtual environment on the first run; only Python and make are needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE_READY := $(VENV)/.site-ready

.PHONY: demo test test-slow docs fuzz fuzz-coverage faults mutants lint bench bench-stack clean

demo: $(READY)
	$(BIN)/unbag demo

test: $(READY) lint
	$(BIN)/pytest -n auto -m "not slow"

test-slow: $(SITE_READY)
	$(BIN)/pytest -n auto -m slow

# The site, in docs/_build/html; recipes and notebooks are run, but only where they changed.
docs: $(SITE_READY)
	$(BIN)/python -m sphinx -W -n -q -b html docs docs/_build/html

# A hundred thousand cases by default: make fuzz FUZZ_CASES=1000 FUZZ_SEED=7
# The third of ten parts of them: make fuzz FUZZ_SEED=7 FUZZ_PART=3/10
FUZZ_SEED ?= $(shell date +%Y%m%d)
# Of these targets alone: the test suite has few cases and a seed of its own.
fuzz fuzz-coverage: export FUZZ_CASES ?= 100000
fuzz fuzz-coverage: export FUZZ_PART ?= 1/1
fuzz fuzz-coverage: export FUZZ_SEED := $(FUZZ_SEED)
fuzz: $(READY)
	$(BIN)/pytest -n 0 tests/fuzz

# The share of lines that the fuzzing reaches: make fuzz-coverage FUZZ_CASES=5000
FUZZED := io estimator cli workflow
fuzz-coverage: $(READY)
	$(BIN)/coverage run --source=src/unbag -m pytest -n 0 tests/fuzz
	@for part in $(FUZZED); do \
		echo "$$part: $$($(BIN)/coverage report --include="src/unbag/$$part/*" --format=total) % of lines"; \
	done

# Every fault at every point, of tune too, takes hours: make faults SEARCH_POINTS=1000
FAULT_POINTS ?= 1000
SEARCH_POINTS ?= 60
KILLS ?= 500
faults: $(READY)
	$(BIN)/python benchmarks/faults.py --points $(FAULT_POINTS) --search-points $(SEARCH_POINTS) --kills $(KILLS) --seed $(FUZZ_SEED)

# What the tests of a package notice of random changes: make mutants PACKAGE=io SAMPLE=25 SEED=1
PACKAGE ?= objectives
SAMPLE ?= 25
SEED ?= $(shell date +%Y%m%d)
mutants: $(READY)
	$(BIN)/python tests/mutation/run.py $(PACKAGE) --sample $(SAMPLE) --seed $(SEED)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python benchmarks/objectives.py

bench-stack: $(READY)
	$(BIN)/python benchmarks/stack.py

clean:
	rm -rf $(VENV) .coverage build dist docs/_build docs/gallery docs/reference/generated .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

$(SITE_READY): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,docs]"
	touch $@
