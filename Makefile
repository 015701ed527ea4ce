# Everything a newcomer needs is `make demo` and `make test`; the rest is for developers.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/pip install --disable-pip-version-check -qq
STAMP = $(VENV)/.installed
STAMP_DEV = $(VENV)/.installed-dev
STAMP_REAL = $(VENV)/.installed-real
EXPORTS = PIP_CONSTRAINT=$(CURDIR)/constraints.txt
PORT ?= 3000
SLACK_PORT ?= 0
GITHUB_PORT ?= 0

.PHONY: help demo demo-slack demo-github test test-real check bench soak docs format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo        serve the on-call example on http://127.0.0.1:$(PORT)"
	@echo "make demo-slack  a Slack on this machine with an agent in it; FAKE=1 for the small one"
	@echo "make demo-github a GitHub on this machine with a reviewer in it; FAKE=1 without Node.js"
	@echo "make test        run the test suite (needs only Python)"
	@echo "make test-real   run the tests that need real parts: Chromium, a model API server"
	@echo "make check       ruff, mypy --strict, import boundaries"
	@echo "make bench       print the benchmark ratios"
	@echo "make soak        the whole kill tests: 5,000 deliveries and 30 kills, then outbound posts"
	@echo "make docs        print where the documentation is served"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("threadline needs Python 3.11 or newer, not " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "Making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing threadline …"
	@$(EXPORTS) $(PIP) -e '.[all]'
	@touch $@

$(STAMP_DEV): $(STAMP)
	@echo "Installing the developers' tools …"
	@$(EXPORTS) $(PIP) -e '.[dev]'
	@touch $@

$(STAMP_REAL): $(STAMP_DEV)
	@echo "Installing the real parts …"
	@$(EXPORTS) $(PIP) -e '.[dev,real]'
	@tests/real/install.sh
	@touch $@

demo: $(STAMP)
	@exec $(BIN)/threadline serve examples/oncall --port $(PORT)

demo-slack: $(STAMP)
	@server=$$([ -n "$(FAKE)" ] || tests/real/slack/install.sh) || echo "So this is FakeSlack."; \
	exec $(BIN)/threadline slack demo examples/slack-helper --port $(SLACK_PORT) \
	  --try "are we ready to launch?" $${server:+--server "$$server"}

demo-github: $(STAMP)
	@modules=$$([ -n "$(FAKE)" ] || tests/real/github/install.sh) || echo "So this is FakeGitHub."; \
	exec $(BIN)/threadline github demo examples/pr-reviewer --port $(GITHUB_PORT) \
	  $${modules:+--server "$$modules/emulate/dist/index.js"}

test: $(STAMP_DEV)
	$(BIN)/python -m pytest -m "not real" -n 2 $(ARGS)

test-real: $(STAMP_REAL)
	$(BIN)/python -m pytest -m real $(ARGS)

check: $(STAMP_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP_DEV)
	$(BIN)/python -m tests.benchmarks $(ARGS)

soak: $(STAMP_DEV)
	$(BIN)/python -m tests.kill.soak --deliveries 5000 --kills 30 $(ARGS)
	$(BIN)/python -m tests.kill.soak_outbound --messages 2000 --kills 20
	$(BIN)/python -m tests.kill.soak_slack --threads 500 --kills 20
	$(BIN)/python -m tests.kill.soak_github --threads 200 --kills 20

docs: $(STAMP)
	@echo "The pages are in docs/; a running host serves them at http://127.0.0.1:$(PORT)/docs"

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
