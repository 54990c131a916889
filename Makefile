# Everything that is done here, by name; `make` alone lists it.
#
# More arguments go in ARGS: make up ARGS="--port 5555", make test ARGS="-k queue".

BIN := .venv/bin
# Test processes at a time: one for each CPU that the system shows, and one more that takes only tests that wait
# (tests/scheduling.py). Without it, two CPUs are idle for a third of the time.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header
# As uv_build in pyproject.toml: a uv of that range builds the project itself, without fetching a builder.
UV_RANGE := uv>=0.9,<0.14
TYPES := $(BIN)/mypy && $(BIN)/lint-imports --no-logo

# Some machines forbid it. But tests start hundreds of processes, and each would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help venv setup up test check lint types docs lock clients bench clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv:
	@tools/setup.sh

setup: ## Install what is missing: .venv, the browsers, a Redis for the tests
	@tools/setup.sh browsers tests

up: ## Start the herd, installing what is missing for that
	@tools/setup.sh browsers
	@exec $(BIN)/remuda up $(ARGS)

# Types are checked beside the tests, which wait for much: without a cache mypy takes a minute. What it says is
# shown if something is wrong, so that the result of the tests is the last that is read.
test: setup lint ## Run the checks and every test
	@log=$$(mktemp); nice sh -c '$(TYPES)' > $$log 2>&1 & types=$$!; \
	$(BIN)/python tools/run_tests.py -n $(JOBS) --dist loadgroup $(ARGS); tests=$$?; \
	wait $$types; types=$$?; [ $$types = 0 ] || cat $$log; rm $$log; \
	exit $$((tests ? tests : types))

check: lint types ## Lint, format, types and import layers

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: venv
	$(TYPES)

docs: venv ## Write docs/reference from the declarations
	$(BIN)/python tools/make_docs.py

lock: venv ## Lock the newest allowed versions of all dependencies
	$(COMPILE) --upgrade --group dev pyproject.toml -o requirements.lock
	echo '$(UV_RANGE)' | $(COMPILE) --upgrade - -o tools/bootstrap.lock

clients: setup ## Renew the table of what Playwright, Puppeteer and ChromeDriver tell a Chromium by default
	$(BIN)/python tools/make_client_defaults.py

bench: setup ## Measure against peers
	@tools/setup.sh bench
	$(BIN)/python -m bench $(ARGS)

clean: ## Remove what these targets made; a herd's data stays
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
