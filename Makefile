# Two commands set everything up on a machine that has python3 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo check quick test pytest test-slow test-newest test-here lint docs bench clean

demo: $(VENV)/installed
	$(BIN)/python examples/pima.py

# A part of the tests that touches every room, which tests/test_rooms.py sees to, in less than two minutes.
QUICK := cli/test_cli.py control/test_basis.py control/test_gram.py diagnostics/test_weights.py \
    estimators/test_errors.py estimators/test_stepping_stone.py inference/test_paths.py inference/test_summary.py \
    interop/test_logistic.py kernels/test_barker.py model/test_closure_constants.py model/test_settings.py \
    paper/test_cais.py path/test_ladders.py path/test_quadrature.py report/test_plots.py runtime/test_executors.py \
    sampling/test_swaps.py search/test_modes.py test_rooms.py
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

check: $(VENV)/installed-dev
	$(MAKE) --jobs 2 --output-sync lint quick

quick: $(VENV)/installed-dev
	$(PYTEST) -q $(QUICK:%=tests/%)

test: lint pytest

pytest: $(VENV)/installed-dev
	$(PYTEST)

# Long statistical studies: forty of the paper's replicates, and Pima's reference by Gauss-Hermite quadrature.
test-slow: $(VENV)/installed-dev
	$(PYTEST) -m slow

# What new versions of other libraries break first, on the newest Python of this machine, with what pip installs today.
NEWEST := interop/test_pymc.py interop/test_bambi.py interop/test_numpyro.py interop/test_callback.py \
    interop/test_arviz.py runtime/test_devices.py test_packaging.py::test_the_wheel_works_in_an_empty_environment
# Our own mathematics, and what takes long: make test has it on the main Python.
ELSEWHERE := fisher or masks or hierarchy or started or choose

test-newest:
	@python=$$($(PYTHON) .ci/newest.py) && \
	if [ -n "$$python" ]; then $(MAKE) VENV=.venv-newest PYTHON=$$python test-here demo; \
	else echo "SKIPPED: no Python is newer than $$($(PYTHON) --version), which make test has"; fi

test-here: $(VENV)/installed-dev
	$(PYTEST) -k 'not ($(ELSEWHERE))' $(NEWEST:%=tests/%)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Runs the notebooks, and keeps what they gave until they change.
docs: $(VENV)/installed-dev
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/installed-dev
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
	$(PYTHON) -m venv $(VENV)

# A stamp is newer than pyproject.toml once its install has succeeded: a second call installs nothing.
$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/installed

clean:
	rm -rf .venv .venv-newest build dist docs/_build .mypy_cache .pytest_cache .ruff_cache
