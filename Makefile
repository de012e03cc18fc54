# Each target sets up what it needs by itself, again and again without harm.
#   make demo       the main jobs, end to end, on embedded devclusters: environments, then a fleet
#   make test       the tests in about five minutes: Python and the package registry are enough; long sweeps run a sample
#   make test-full  the same tests with every sweep complete
#   make check      format, lint, types, layers, names and prose, documentation examples
#   make test-real  every test that meets a control plane, and the conformance suite, on the real one (needs Go, builds it once)
#   make bench      comparisons with peers, written to bench/results/

# The first Python on PATH that is new enough; tools/setup.py says so in one line when there is none.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done; echo python3)
# One more than the cores that are promised: some tests wait for a clock or another process.
WORKERS ?= 3
# On the real engine each worker has a control plane of its own.
REAL_WORKERS ?= 3
BIN := .venv/bin
# Compiled modules are kept even where the environment asks Python not to: each process would compile all again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full check format test-real bench clean

help:
	@sed -n 's/^#   make/make/p' Makefile

setup:
	@command -v $(PYTHON) >/dev/null || { echo "kapsa setup: no $(PYTHON) on PATH: install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) tools/setup.py

demo: setup
	@$(BIN)/kapsa demo environments
	@$(BIN)/kapsa demo fleet

test: setup
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-full: setup
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --full $(ARGS)

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@MYPYPATH=src $(BIN)/mypy --explicit-package-bases examples
	@$(BIN)/lint-imports
	@$(BIN)/python tools/english.py
	@$(BIN)/python -m pytest -q --full tests/docs

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

test-real: setup
	@$(BIN)/kapsa devcluster build
	@$(BIN)/python -m pytest -n $(REAL_WORKERS) --engine real $(ARGS)

bench: setup
	@$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
