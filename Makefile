# Verbs: setup, demo, test, check, bench. Each makes .venv when it is missing or out of date.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup debian-venv demo test check bench
.DEFAULT_GOAL := demo

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "floorcast needs $(PYTHON); try: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory debian-venv
	@echo "installing floorcast and its packages into $(VENV): a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# Debian ships Python without the part that makes environments.
debian-venv:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends $(notdir $(PYTHON))-venv >/dev/null; \
	else \
	  echo "$(PYTHON) cannot make environments here; run: sudo apt-get install $(notdir $(PYTHON))-venv" >&2; exit 1; \
	fi

demo: setup
	$(BIN)/floorcast demo --dir demo

# Pages are tested in a real browser; a machine without one skips those tests and says so. Many tests wait for servers:
# a third process keeps two cores busy. Hundreds of commands are started, none of which should compile everything anew.
test: export PYTHONDONTWRITEBYTECODE :=
test: setup
	$(BIN)/pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q tests/docs

bench: setup
	@for suite in $(filter-out benchmarks/report.py,$(wildcard benchmarks/[a-z]*.py benchmarks/[a-z]*/__main__.py)); do \
	  name=$$(basename $${suite%/__main__.py} .py); $(BIN)/python -m benchmarks.$$name --json benchmarks/results/$$name.json || exit 1; done
