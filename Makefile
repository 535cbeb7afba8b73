# Every target sets up its own virtual environment on the first run; only Python and make are needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint bench bench-stack clean

demo: $(READY)
	$(BIN)/unbag demo

test: $(READY) lint
	$(BIN)/pytest -n auto -m "not slow"

test-slow: $(READY)
	$(BIN)/pytest -n auto -m slow

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
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@
