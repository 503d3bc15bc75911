# Everything a developer or the build machine runs. Needs git, make and Python 3.11 or later; the rest is
# installed into .venv (and .venv-extras) from the locked requirements, again whenever a lock changes.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

# The first of these that is Python 3.11 or later builds the environments; `make PYTHON=... test` overrides.
PYTHON ?= python3.11 python3.12 python3.13 python3 python

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# An environment belongs to one place and one set of locks: the key is in its stamps' names.
key = $(shell { pwd; cat $(1); } | cksum | cut -d ' ' -f 1)
KEY := $(call key,requirements/run.txt requirements/dev.txt)
EXTRAS_KEY := $(call key,requirements/run.txt requirements/extras.txt)
PROJECT_KEY := $(shell cksum < pyproject.toml | cut -d ' ' -f 1)

RUN := .venv/.run-$(KEY)
DEV := .venv/.dev-$(KEY)
EXTRAS := .venv-extras/.extras-$(EXTRAS_KEY)
PROJECT := .venv/.project-$(KEY)-$(PROJECT_KEY)
EXTRAS_PROJECT := .venv-extras/.project-$(EXTRAS_KEY)-$(PROJECT_KEY)

# Bytecode is compiled on first use; compiling all of it makes set-up half as long again.
PIP := -m pip install --quiet --no-compile
LOCKED := --require-hashes --only-binary=:all:

TESTS := $(wildcard tests/unit tests/property tests/conformance tests/statistical tests/e2e)
TYPED := src $(foreach room,reproductions benchmarks,$(if $(wildcard $(room)/*.py),$(room)))

.PHONY: help demo check test test-extras stress reproduce bench lock clean .venv .venv-extras

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

demo: $(RUN) $(PROJECT) ## plan a small release and show its errors and certificate
	@.venv/bin/python -m residua.demo

check: $(DEV) $(PROJECT) ## style, format, types and import directions
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy $(TYPED)
	.venv/bin/lint-imports --no-logo

# The test processes already fill the cores, so each gets one BLAS thread.
test test-extras stress: export OPENBLAS_NUM_THREADS := 1

test: $(DEV) $(PROJECT) ## the tests that every change must pass, documentation examples included
	.venv/bin/python -m pytest -n 2 --doctest-modules src $(TESTS)

test-extras: $(EXTRAS) $(EXTRAS_PROJECT) ## the tests of optional extras, in an environment of their own
	.venv-extras/bin/python -m pytest tests/extras

stress: $(DEV) $(PROJECT) ## long tests: large schemas, many seeds
	@if [ -d tests/stress ]; then .venv/bin/python -m pytest tests/stress; else echo "There is no tests/stress yet."; fi

# Run every script of a folder (but its _helpers), go on after failures, list them all, fail if any failed.
define run-scripts
	@failed=0; summary=""; \
	for script in $(sort $(filter-out $(1)/_%,$(wildcard $(1)/*.py))); do \
	    echo "== $$script"; \
	    if .venv/bin/python "$$script"; then verdict=passed; else verdict=FAILED; failed=$$((failed + 1)); fi; \
	    summary="$$summary  $$verdict  $$script\n"; \
	done; \
	if [ -z "$$summary" ]; then echo "There are no scripts in $(1)/ yet."; \
	else printf "\n$(1):\n$$summary"; fi; \
	[ $$failed -eq 0 ] || { echo "$$failed failed"; exit 1; }
endef

reproduce: $(DEV) $(PROJECT) ## every paper table: ours, theirs, the difference
	$(call run-scripts,reproductions)

bench: $(DEV) $(PROJECT) ## time and memory, as ratios
	$(call run-scripts,benchmarks)

# One resolution for all: run and extras are constrained to dev's versions. Existing pins stay unless
# UPGRADE=--upgrade (everything) or UPGRADE='--upgrade-package numpy' is given.
COMPILE = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(UPGRADE) pyproject.toml
lock: | $(DEV) ## recompile the locked requirements; UPGRADE=--upgrade takes the newest versions
	$(COMPILE) --group dev --output-file requirements/dev.txt
	$(COMPILE) --group build --constraint requirements/dev.txt --output-file requirements/run.txt
	$(COMPILE) --all-extras --group build --group runner --constraint requirements/dev.txt \
	    --output-file requirements/extras.txt

clean: ## remove the environments and every cache
	rm -rf .venv .venv-extras .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis htmlcov .coverage build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv: $(DEV) $(PROJECT) # the developers' environment
.venv-extras: $(EXTRAS) $(EXTRAS_PROJECT)

define create-environment
	@set -e; found=""; for python in $(PYTHON); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "Residua needs Python 3.11 or later; tried: $(PYTHON). Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; \
	fi; \
	echo "Setting up $(1) with $$("$$found" --version) ..."; \
	"$$found" -m venv --clear $(1)
	$(1)/bin/python $(PIP) $(LOCKED) -r requirements/run.txt
endef

$(RUN):
	$(call create-environment,.venv)
	@touch $@

$(DEV): | $(RUN)
	.venv/bin/python $(PIP) $(LOCKED) -r requirements/dev.txt
	@touch $@

# pyspark comes as source only; the locked setuptools builds it.
$(EXTRAS):
	$(call create-environment,.venv-extras)
	.venv-extras/bin/python $(PIP) $(LOCKED) --no-binary=pyspark --no-build-isolation -r requirements/extras.txt
	@touch $@

$(PROJECT): | $(RUN)
	.venv/bin/python $(PIP) --no-build-isolation --no-deps --editable .
	@rm -f .venv/.project-*; touch $@

$(EXTRAS_PROJECT): | $(EXTRAS)
	.venv-extras/bin/python $(PIP) --no-build-isolation --no-deps --editable .
	@rm -f .venv-extras/.project-*; touch $@
