# Two commands set everything up on a machine that has python3 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow lint bench clean

demo: .venv/installed
	$(BIN)/python examples/pima.py

test: .venv/installed-dev lint
	$(BIN)/python -m pytest -n auto

# Long statistical studies: forty of the paper's replicates, and Pima's reference by Gauss-Hermite quadrature.
test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -n auto -m slow

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.estimate
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.precision
	$(BIN)/python -m benchmarks.interop
	$(BIN)/python -m benchmarks.devices
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.kills

$(BIN)/python:
	$(PYTHON) -m venv .venv

# A stamp is newer than pyproject.toml once its install has succeeded: a second call installs nothing.
.venv/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ .venv/installed

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache
