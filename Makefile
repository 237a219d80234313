# Two commands do everything: `make report` and `make test`. `make help` lists the rest.

PYTHON ?= python3
CONFIG ?= config/config.yaml
PROFILE ?= profiles/local
PYTEST_ARGS ?=
# A package index with CPU-only builds of torch, where the full ones (5.5 GB) are too much: see README.md.
TORCH_INDEX ?=

BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock
INSTALLED := .venv/.installed

.PHONY: help setup report plan test lint format cluster cluster-down lock clean

help:  ## List all targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(INSTALLED)  ## Create .venv with the exact versions of requirements.lock

$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fabricbench needs Python 3.11 or newer; choose one: make PYTHON=python3.12"; exit 1; }
	@echo "Installing into .venv (once; torch is large, this takes some minutes) ..."
	$(PYTHON) -m venv .venv
	$(if $(TORCH_INDEX),$(PIP) --no-deps --index-url '$(TORCH_INDEX)' torch torchvision)
	$(PIP) --editable '.[test]'
	@touch $@

report: setup  ## Measure what is missing of CONFIG's grid (on a cluster by PROFILE), then render the page
	@$(BIN)/fabricbench check --config '$(CONFIG)' >/dev/null
	@$(BIN)/fabricbench plan --config '$(CONFIG)' | sed -n '/^to run/,$$p'
	@$(BIN)/snakemake --profile '$(PROFILE)' --configfile '$(CONFIG)'
	@echo "The page: file://$(CURDIR)/reports/$$($(BIN)/fabricbench plan --config '$(CONFIG)' | \
		sed -n 's/^campaign \(.*\): .*/\1/p')/index.html"

plan: setup  ## Print CONFIG's grid: cells, time, and how each cell stands
	@$(BIN)/fabricbench plan --config '$(CONFIG)'

test: setup lint  ## All checks and tests
	$(BIN)/pytest $(PYTEST_ARGS)

lint: setup  ## Formatters, linters and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: setup  ## Format everything
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/snakefmt Snakefile workflow

cluster: setup  ## Start a whole Slurm cluster on this machine, to try things on (needs root; docs/testbed.md)
	@$(BIN)/python -m fabricbench.testbed up

cluster-down: setup  ## End it
	@$(BIN)/python -m fabricbench.testbed down

lock: setup  ## Write requirements.lock and workflow/envs from what .venv holds
	{ echo "# Exact versions, used as constraints: make setup. Renewed by make lock."; \
		$(BIN)/pip freeze --exclude-editable; } > requirements.lock
	$(BIN)/python workflow/envs/generate.py

clean:  ## Remove .venv and caches; results and reports stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build
