# Needs make and Python 3.11 or newer, nothing else: everything below lives in .venv.

PYTHON ?= python3
SEEDS ?= 2000
CHECK_SEEDS ?= 200
VALUES ?= 1000000
MINUTES ?= 10

BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help .venv venv demo ui browser test test-long check sim chaos fuzz bench bench-quick fmt clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.venv: $(READY)
venv: $(READY) ## set up .venv (every other target does this by itself)

# Depends on pyproject.toml alone: the install is editable, so source changes need no second one.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "perdure needs Python 3.11 or newer; try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: $(READY) ## run the tour in examples/demo.py
	$(BIN)/python examples/demo.py

ui: $(READY) ## open the web UI in a browser, with a demo to look at
	$(BIN)/perdure dev

# The tests of the web UI drive a real browser.
browser:
	@[ -n "$(BROWSER)" ] || command -v chromium chromium-browser > /dev/null \
		|| { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get install --yes --quiet chromium; } \
		|| printf '\n*** NO BROWSER: the tests of the web UI will not run.\n*** Install chromium, or: make test BROWSER=/path/to/chromium\n\n'

# Compiled first: hundreds of processes of the tests import it. Tests wait as long as they work: six share two cores.
PYTEST = $(BIN)/python -m compileall -q src && PYTHONDONTWRITEBYTECODE= BROWSER=$(BROWSER) $(BIN)/pytest -n 6 --dist worksteal

test: $(READY) browser ## run all tests, the hunt for seeded bugs included
	$(PYTEST)

test-long: $(READY) browser ## run all tests on all stages, PostgreSQL included, with more kills
	export PERDURE_TEST_STAGES=long PERDURE_TEST_KILLS=100; $(PYTEST)

check: $(READY) ## format, lint, layers, types, tests and a short simulation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory sim SEEDS=$(CHECK_SEEDS)

sim: $(READY) ## simulate SEEDS worlds full of crashes (default 2000)
	$(BIN)/python -m tests.simulation.sim --seeds $(SEEDS)

chaos: $(READY) ## let engines, network and PostgreSQL fail for MINUTES (default 10)
	$(BIN)/python -m tests.fleet.chaos --minutes $(MINUTES)

fuzz: $(READY) ## check VALUES values of each type of cells (default 1000000) and 100000 mutated processes
	$(BIN)/python -m tests.codec.fuzz --values $(VALUES)
	PERDURE_FUZZ=100000 $(BIN)/pytest tests/processes/test_definition.py -k mutated -q

bench: $(READY) ## measure perdure and its peers, and write bench/RESULTS.md (up to an hour)
	$(BIN)/python -m bench

bench-quick: $(READY) ## measure W1 to W3 against the floor in a minute
	$(BIN)/python -m bench quick

fmt: $(READY) ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean: ## remove .venv, caches and build output
	rm -rf .venv bench/.venvs dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
