# One command for each thing a person does. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check docs golden web web-check format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## set everything up and diagnose the training of a small GPT
	$(BIN)/boundby run examples/char_gpt.py

# Two at a time, each with one thread, since threads that wait for a core make each other wait.
test: $(STAMP) ## set everything up and run all tests (those for a GPU skip without one)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --durations=20

check: $(STAMP) ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make_docs.py --check
	$(BIN)/python scripts/make_lab_docs.py --check
	$(BIN)/python scripts/make_plan_docs.py --check
	$(BIN)/python scripts/make_assumptions.py --check
	$(BIN)/python scripts/make_schema.py --check
	$(BIN)/python scripts/make_chips.py --check
	$(BIN)/python scripts/make_page_types.py --check

golden: $(STAMP) ## write the expected diagnoses of tests/data again
	$(BIN)/python -m tests.diagnosis.golden

docs: $(STAMP) ## write the pages that are made from the code
	$(BIN)/python scripts/make_docs.py
	$(BIN)/python scripts/make_lab_docs.py
	$(BIN)/python scripts/make_assumptions.py
	$(BIN)/python scripts/make_schema.py
	$(BIN)/python scripts/make_chips.py
	$(BIN)/python scripts/make_page_types.py

web: web/node_modules ## build the report page's script and style (needs node)
	cd web && npm run --silent check && npm run --silent build

web-check: web/node_modules ## is the committed script what web/ builds?
	cd web && npm run --silent check && npm run --silent build -- --check

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) web/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

web/node_modules: web/package.json web/package-lock.json
	@command -v npm >/dev/null || { echo "node and npm are needed to build the page"; exit 1; }
	cd web && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Everything a contributor needs; torch comes in the one version the project is developed with.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
