# Everything that a contributor or CI runs. `make demo` and `make test` set themselves up: Python 3.11 or newer and make are enough.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The tool that writes the lock files; only `make lock` needs it.
UV_VERSION := 0.13.9
DEMO_DATABASE_URL := sqlite:///.demo/inferplan.db

.DEFAULT_GOAL := help
.PHONY: help demo test lint proto serve bench lock image-commands clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# Quick when nothing changed: the stamp is newer than the lock files and the package's metadata.
$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## Size the worked example and store the plan
	@mkdir -p .demo
	@echo "Database: $(DEMO_DATABASE_URL)"
	@echo "What textbook arithmetic would buy:"
	INFERPLAN_DATABASE_URL=$(DEMO_DATABASE_URL) $(BIN)/inferplan plan -f docs/examples/chatbot.yaml --method textbook
	@echo "What playing the engine's scheduler finds:"
	INFERPLAN_DATABASE_URL=$(DEMO_DATABASE_URL) $(BIN)/inferplan plan -f docs/examples/chatbot.yaml

test: lint ## Lint, then run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP) ## All static checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code proto
	PATH="$(abspath $(BIN)):$$PATH" tools/check_breaking_changes.sh
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m pip check

proto: $(STAMP) ## Generate the stubs from proto/
	$(BIN)/buf format --write proto
	$(BIN)/python tools/generate_stubs.py

serve: $(STAMP) ## Run the service with its embedded database
	$(BIN)/inferplan serve

bench: $(STAMP) ## Speed, printed and not asserted: the simulator, a day of traffic, whole plans
	$(BIN)/python tests/benchmarks/simulation_speed.py
	$(BIN)/python tests/benchmarks/simulation_speed.py --day
	$(BIN)/python -m pytest -q -s -o python_files='bench_*.py' tests/benchmarks

lock: ## Refresh the lock files (UPGRADE=1: to the newest versions)
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	UV=build/lock/bin/uv UPGRADE=$(UPGRADE) tools/lock.sh

image-commands: $(STAMP) ## Run the Dockerfile's RUN commands in a temporary folder
	$(BIN)/python tools/run_image_commands.py

clean: ## Delete everything that make made
	rm -rf $(VENV) .demo build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find service tests tools migrations -name __pycache__ -type d -prune -exec rm -rf {} +
