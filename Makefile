# PYTHON picks the interpreter that makes .venv: make test PYTHON=python3.12 (after make clean).
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
# Set, as in images of containers, it would let every process of a test compile its modules again.
export PYTHONDONTWRITEBYTECODE :=
# Byte code is written when a module is first imported: that is sooner.
PIP_INSTALL := $(BIN)/python -m pip -q --disable-pip-version-check install --no-compile
# The tests of a file share what is dear to make: one process runs all of them.
PYTEST := $(BIN)/pytest -q -n 2 --dist loadfile

# Stamps: an install is repeated only when what it depends on has changed. All installs are
# editable, so none undoes another, and a change in the sources needs no install at all. A core
# that was compiled in place is compiled again when it has changed.
INSTALLED := $(VENV)/.installed
INSTALLED_TEST := $(VENV)/.installed-test
INSTALLED_DOCS := $(VENV)/.installed-docs
COMPILED := $(VENV)/.compiled
IF_COMPILED := $(wildcard $(COMPILED))
COPY := $(CURDIR)/build/compiled
CORE := $(shell sed -n 's/^    "\(.*\.py\)",$$/\1/p' setup.py)
PACKAGING := pyproject.toml setup.py

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-all test-compiled check format docs compile interpreted wheels \
	speed clean

help:
	@echo "make quickstart   install, then run the scenario 'quickstart' into results/quickstart"
	@echo "make test         install with test tools, run the tests that are not marked slow"
	@echo "make test-all     run all tests, with more random examples"
	@echo "make check        ruff, mypy, import-linter"
	@echo "make format       let ruff format the sources and fix what it can"
	@echo "make docs         make the site of docs/ in build/docs"
	@echo "make compile      compile the core in place: runs of many jobs take a fifth to two fifths of the time"
	@echo "make interpreted  run the core as plain Python again"
	@echo "make test-compiled  run the tests of the core on a compiled copy"
	@echo "make wheels       build wheels into dist, compiled and pure, and try each"
	@echo "make speed        measure speed: recurring jobs, schedulers, zoo (minutes)"
	@echo "make clean        remove .venv, builds and caches (results/ stays)"

quickstart: $(INSTALLED) $(IF_COMPILED)
	@echo "Running the scenario quickstart (some seconds) ..."
	@$(BIN)/wattkeeper run quickstart --out results/quickstart

test: $(INSTALLED_TEST) $(IF_COMPILED)
	@$(PYTEST) -m "not slow"

test-all: $(INSTALLED_TEST) $(IF_COMPILED)
	@$(PYTEST) --hypothesis-profile=thorough

check: $(INSTALLED_TEST)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "Not formatted; run: make format"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@PYTHONPATH=.static $(BIN)/lint-imports --no-logo

format: $(INSTALLED_TEST)
	@$(BIN)/ruff format --quiet
	@$(BIN)/ruff check --fix

docs: $(INSTALLED_DOCS)
	@$(BIN)/python docs/site.py build/docs
	@echo "Site: build/docs/index.html"

# PYTHONS names interpreters: make wheels PYTHONS="python3.11 /opt/python3.13/bin/python3".
wheels:
	@$(PYTHON) .ci/wheels.py $(PYTHONS)

speed: $(COMPILED)
	@$(BIN)/python benchmarks/recurrences.py
	@$(BIN)/python benchmarks/schedulers.py
	@$(BIN)/python -m benchmarks.zoo_search
	@$(BIN)/python benchmarks/log_study.py

compile: $(COMPILED)

interpreted:
	@find policies traces sim live scenarios -name '*.so' -delete
	@rm -f $(COMPILED)

# What a wheel holds, so that the checkout stays as it is; with the mypy of the test tools.
test-compiled: $(INSTALLED_TEST)
	@echo "Compiling a copy of the core (a minute or two) ..."
	@rm -rf build/lib* $(COPY)
	@WATTKEEPER_COMPILE=1 $(PIP_INSTALL) --no-deps --no-build-isolation --target $(COPY) .
	@PYTHONPATH=$(COPY) $(BIN)/python -c \
		'from wattkeeper.sim.engine import world; assert world.__file__.endswith(".so"), world'
	@PYTHONPATH=$(COPY) $(PYTEST) -m "not slow" tests/sim tests/policies \
		tests/scenarios/run/test_same_bytes.py

clean: interpreted
	@rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "wattkeeper needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python's venv module is missing; on Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Making the environment $(VENV) (some seconds) ..."
	@$(PYTHON) -m venv --clear $(VENV)

$(INSTALLED): $(PACKAGING) | $(BIN)/python
	@echo "Installing wattkeeper and the packages it needs: about 100 MB to download (half a minute or more) ..."
	@$(PIP_INSTALL) -e .
	@touch $@

$(INSTALLED_TEST): $(PACKAGING) | $(BIN)/python
	@echo "Installing wattkeeper and its test tools into $(VENV) ..."
	@$(PIP_INSTALL) -e '.[test]'
	@touch $(INSTALLED) $@

$(INSTALLED_DOCS): $(PACKAGING) | $(BIN)/python
	@echo "Installing wattkeeper and what makes its site into $(VENV) ..."
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $(INSTALLED) $@

$(COMPILED): $(PACKAGING) $(CORE) | $(BIN)/python
	@echo "Compiling the core in place (a minute or two) ..."
	@$(MAKE) -s interpreted
	@WATTKEEPER_COMPILE=1 $(PIP_INSTALL) -e .
	@touch $(INSTALLED) $@
