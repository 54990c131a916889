# Everything that is done here, by name; `make` alone lists it.
#
# More arguments go in ARGS: make up ARGS="--port 5555", make test ARGS="-k queue".

BIN := .venv/bin
# Test processes at a time: one per CPU that the system shows, not per physical core.
JOBS ?= logical
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header
# As uv_build in pyproject.toml: a uv of that range builds the project itself, without fetching a builder.
UV_RANGE := uv>=0.9,<0.14

.PHONY: help venv setup up test check docs lock bench clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv:
	@tools/setup.sh

setup: ## Install what is missing: .venv, the browsers, a Redis for the tests
	@tools/setup.sh browsers tests

up: ## Start the herd, installing what is missing for that
	@tools/setup.sh browsers
	@exec $(BIN)/remuda up $(ARGS)

test: setup check ## Run the checks, then every test
	$(BIN)/pytest -n $(JOBS) --dist loadgroup $(ARGS)

check: venv ## Lint, format, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: venv ## Write docs/reference from the declarations
	$(BIN)/python tools/make_docs.py

lock: venv ## Lock the newest allowed versions of all dependencies
	$(COMPILE) --upgrade --group dev pyproject.toml -o requirements.lock
	echo '$(UV_RANGE)' | $(COMPILE) --upgrade - -o tools/bootstrap.lock

bench: setup ## Measure against peers
	@tools/setup.sh bench
	$(BIN)/python -m bench $(ARGS)

clean: ## Remove what these targets made; a herd's data stays
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
