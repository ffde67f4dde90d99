# PYTHON picks the interpreter that makes .venv: make test PYTHON=python3.12 (after make clean).
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
# Set, as in images of containers, it would let every process of a test compile its modules again.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip -q --disable-pip-version-check
# The tests of a file share what is dear to make: one process runs all of them.
PYTEST := $(BIN)/pytest -q -n 2 --dist loadfile
# Byte code of the libraries is written when they are first imported: that is sooner.
COMPILE := $(BIN)/python -m compileall -q policies traces sim live scenarios
SAY_CORE := find policies -name 'core__mypyc*.so' | grep -q . || \
	echo "The core runs as plain Python: no C compiler with Python's headers, or WATTKEEPER_COMPILE=0."

# Stamps: an install is repeated only when what it depends on has changed. Both installs are
# editable, so neither undoes the other, and a change in the sources needs no install at all,
# but for the core, which is compiled in place.
INSTALLED := $(VENV)/.installed
INSTALLED_TEST := $(VENV)/.installed-test
INSTALLED_DOCS := $(VENV)/.installed-docs
PLAIN := $(CURDIR)/build/interpreted
CORE := $(shell sed -n 's/^    "\(.*\.py\)",$$/\1/p' setup.py)
PACKAGING := pyproject.toml setup.py $(CORE)

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-all test-interpreted check format docs wheels speed interpreted clean

help:
	@echo "make quickstart   install, then run the scenario 'quickstart' into results/quickstart"
	@echo "make test         install with test tools, run the tests that are not marked slow"
	@echo "make test-all     run all tests, with more random examples"
	@echo "make check        ruff, mypy, import-linter"
	@echo "make format       let ruff format the sources and fix what it can"
	@echo "make docs         make the site of docs/ in build/docs"
	@echo "make wheels       build wheels into dist, compiled and pure, and try each"
	@echo "make speed        measure speed: recurring jobs, schedulers, zoo (minutes)"
	@echo "make interpreted  run the core as plain Python until it is installed again"
	@echo "make test-interpreted  run the core's tests on a copy of it in plain Python"
	@echo "make clean        remove .venv, builds and caches (results/ stays)"

quickstart: $(INSTALLED)
	@$(BIN)/wattkeeper run quickstart --out results/quickstart

test: $(INSTALLED_TEST)
	@$(PYTEST) -m "not slow"

test-all: $(INSTALLED_TEST)
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

speed: $(INSTALLED)
	@$(BIN)/python benchmarks/recurrences.py
	@$(BIN)/python benchmarks/schedulers.py
	@$(BIN)/python -m benchmarks.zoo_search
	@$(BIN)/python benchmarks/log_study.py

# A copy, so that what is compiled stays as it is.
test-interpreted: $(INSTALLED_TEST)
	@rm -rf $(PLAIN) && mkdir -p $(PLAIN)/wattkeeper
	@cp -r policies traces sim live scenarios $(PLAIN)/wattkeeper
	@find $(PLAIN) -name '*.so' -delete
	@PYTHONPATH=$(PLAIN) $(BIN)/python -c \
		'from wattkeeper.sim.engine import world; assert world.__file__.endswith(".py"), world'
	@PYTHONPATH=$(PLAIN) $(PYTEST) -m "not slow" tests/sim/engine tests/policies

interpreted:
	@find $(sort $(dir $(CORE))) -name '*.so' -delete

clean: interpreted
	@rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "wattkeeper needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python's venv module is missing; on Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)

$(INSTALLED): $(PACKAGING) | $(BIN)/python
	@echo "Installing wattkeeper into $(VENV) ..."
	@$(PIP) install --no-compile -e .
	@$(COMPILE)
	@$(SAY_CORE)
	@touch $@

$(INSTALLED_TEST): $(PACKAGING) | $(BIN)/python
	@echo "Installing wattkeeper and its test tools into $(VENV) ..."
	@$(PIP) install --no-compile -e '.[test]'
	@$(COMPILE)
	@$(SAY_CORE)
	@touch $(INSTALLED) $@

$(INSTALLED_DOCS): $(PACKAGING) | $(BIN)/python
	@echo "Installing wattkeeper and what makes its site into $(VENV) ..."
	@$(PIP) install --no-compile -e '.[docs]'
	@$(COMPILE)
	@$(SAY_CORE)
	@touch $(INSTALLED) $@
