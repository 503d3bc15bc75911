# Everything a developer or the build machine runs. Needs git, make and Python 3.11 or later; the rest is
# installed into .venv (and .venv-extras) from the locked requirements, again whenever a lock changes.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

# The first of these that is Python 3.11 or later builds the environments; `make PYTHON=... test` overrides.
PYTHON ?= python3.11 python3.12 python3.13 python3.14 python3 python

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# An environment belongs to one place and one set of locks: the key is in its stamps' names.
key = $(shell { pwd; cat $(1); } | cksum | cut -d ' ' -f 1)
KEY := $(call key,requirements/run.txt requirements/dev.txt)
EXTRAS_KEY := $(call key,requirements/run.txt requirements/extras.txt)
PROJECT_KEY := $(shell cksum < pyproject.toml | cut -d ' ' -f 1)

RUN := .venv/.run-$(KEY)
DEV := .venv/.dev-$(KEY)
EXTRAS := .venv-extras/.extras-$(EXTRAS_KEY)
BROWSER := .venv-extras/.browser-$(call key,requirements/browser/package-lock.json)
PROJECT := .venv/.project-$(KEY)-$(PROJECT_KEY)
EXTRAS_PROJECT := .venv-extras/.project-$(EXTRAS_KEY)-$(PROJECT_KEY)

# Bytecode is compiled on first use and kept, whatever the shell says: else each process compiles numpy and
# scipy again. Compiling all of it at once makes set-up half as long again.
unexport PYTHONDONTWRITEBYTECODE
PIP := -m pip install --quiet --no-compile
# A lock names all that is needed: without --no-deps, older pips take a newer coverage for `coverage[toml]`, and refuse it.
LOCKED := --no-deps --require-hashes --only-binary=:all:

TESTS := tests/unit tests/property tests/conformance tests/statistical
TYPED := src reproductions benchmarks

.PHONY: help demo check kernel mutants test test-wheel test-extras java postgres stress release docs docs-pictures reproduce bench lock clean .venv .venv-extras

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
kernel mutants test test-wheel test-extras stress: export OPENBLAS_NUM_THREADS := 1

kernel: $(DEV) $(PROJECT) ## the tests of what privacy rests on, which must take every branch of it
	.venv/bin/python -m pytest -n 2 tests/kernel --cov

test: kernel ## the tests that every change must pass, documentation examples included
	.venv/bin/python -m pytest -n 2 --doctest-modules src $(TESTS)

test-wheel: $(RUN) ## the wheel with every Python on this machine, away from the checkout
	.venv/bin/python -u tests/wheel/every_python.py

test-extras: $(EXTRAS) $(EXTRAS_PROJECT) $(BROWSER) | java postgres ## the tests of optional extras, in an environment of their own
	.venv-extras/bin/python -m pytest tests/extras tests/conformance/test_engines.py

# Spark runs on Java 17 or later: the machine's own, or the distribution's where this command may install it.
java:
	@if "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])'; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	    echo "Installing openjdk-17-jre-headless, which Spark runs on ..."; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	        apt-get install -qq -y --no-install-recommends openjdk-17-jre-headless > /dev/null; \
	else \
	    echo "Spark needs Java 17 or later (openjdk-17-jre-headless, for instance), or JAVA_HOME set to one." >&2; exit 1; \
	fi

# The tests of ledgers for teams start a server of their own; where there is none they are skipped with the
# reason, and on the build machine (CI=true) they fail.
postgres:
	@if ! ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1 && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	    echo "Installing postgresql, which the tests of ledgers start ..."; export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get -qq install -y --no-install-recommends postgresql || { apt-get -qq update \
	    && apt-get -qq install -y --no-install-recommends postgresql; }; } >/dev/null \
	    || echo "postgresql cannot be installed here" >&2; \
	fi

stress: $(DEV) $(PROJECT) ## long tests: large schemas, many seeds
	.venv/bin/python -m pytest tests/stress

release: $(DEV) $(PROJECT) ## a version, VERSION=0.2.0: every tier, changelog cut, wheel and sdist tried, commit and tag
	.venv/bin/python .ci/release.py "$(VERSION)"

mutants: $(DEV) $(PROJECT) ## changes of the kernel, one by one, each of which its tests must notice
	CI=true .venv/bin/python tests/stress/mutants.py

# The theme prints an advertisement for its successor unless told not to.
docs: $(DEV) $(PROJECT) ## the documentation as a site in site/; every warning is an error
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

docs-pictures: $(EXTRAS) $(EXTRAS_PROJECT) $(BROWSER) ## the pictures of the documentation, anew from the real pages
	.venv-extras/bin/python docs/pictures/make.py

# Run every script of a folder (but its _helpers), go on after failures, list them all, fail if any failed.
# Scripts that need an extra run in its environment, where that has been made (make .venv-extras).
define run-scripts
	@failed=0; summary=""; \
	for script in $(sort $(filter-out $(1)/_%,$(wildcard $(1)/*.py))); do \
	    echo "== $$script"; \
	    python=.venv/bin/python; \
	    if grep -q "^Needs the extra" "$$script" && [ -x .venv-extras/bin/python ]; then python=.venv-extras/bin/python; fi; \
	    if $$python "$$script"; then verdict=passed; else verdict=FAILED; failed=$$((failed + 1)); fi; \
	    summary="$$summary  $$verdict  $$script\n"; \
	done; \
	printf "\n$(1):\n$$summary"; \
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
	$(COMPILE) --all-extras --group build --group runner --group readers --constraint requirements/dev.txt \
	    --output-file requirements/extras.txt

clean: ## remove the environments and every cache
	rm -rf .venv .venv-extras .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis htmlcov .coverage build dist site .tiers
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

# What the browser tests of reports need, where it may be had. Where not, those tests are skipped with the
# reason; on the build machine (CI=true) they fail instead. Without the stamp the next run tries again.
FIND_BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome
$(BROWSER): | $(EXTRAS)
	@if ! { $(FIND_BROWSER); } >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing chromium for the tests of reports ..."; export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get -qq install -y --no-install-recommends chromium || { apt-get -qq update \
	    && apt-get -qq install -y --no-install-recommends chromium; }; } >/dev/null \
	    || echo "chromium cannot be installed here" >&2; \
	fi
	@if command -v npm >/dev/null; then \
	    mkdir -p .venv-extras/browser && cp requirements/browser/*.json .venv-extras/browser/ \
	    && npm ci --prefix .venv-extras/browser --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null \
	    || echo "axe-core cannot be installed here" >&2; \
	else echo "there is no npm here to install axe-core with" >&2; fi
	@if { $(FIND_BROWSER); } >/dev/null && [ -d .venv-extras/browser/node_modules/axe-core ]; then touch $@; fi

$(PROJECT): | $(RUN)
	.venv/bin/python $(PIP) --no-build-isolation --no-deps --editable .
	@rm -f .venv/.project-*; touch $@

$(EXTRAS_PROJECT): | $(EXTRAS)
	.venv-extras/bin/python $(PIP) --no-build-isolation --no-deps --editable .
	@rm -f .venv-extras/.project-*; touch $@
