# Every verb of this repository. `make run` and `make test` set up all they need on a fresh machine.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test check crash replay fmt bench lock clean
# Tests start hundreds of processes: without kept bytecode each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: ## start Outlive and show what it does (ARGS=--exit: leave when shown)
	@scripts/setup run
	@.venv/bin/outlive demo $(ARGS)

test: ## everything: check, and all tests with real services (ARGS goes to pytest; TIMES=2: twice in a row)
	@scripts/setup dev
	@.venv/bin/python tests/whole_run.py $(if $(TIMES),--times $(TIMES)) $(ARGS)

check: ## lint, types, layers, style, unit tests: under 3 minutes
	@scripts/setup dev
	@scripts/check
	@.venv/bin/pytest -q tests/unit tests/style $(ARGS)

crash: ## kill everything, for long: machines, turns, batches (ARGS="machines --rounds 20", points, loop, batch)
	@scripts/setup dev
	@PYTHONPATH=tests .venv/bin/python -m crash $(ARGS)

replay: ## do turns that are open survive an upgrade? Replays the kept histories (part of test)
	@scripts/setup dev
	@.venv/bin/pytest -q tests/replay $(ARGS)

fmt: ## format the code
	@scripts/setup dev
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix --quiet .

bench: ## measure, side by side in one run; tables and plots in bench/results/
	@scripts/setup dev
	@.venv/bin/python -m bench $(ARGS)

lock: ## write the locked requirements again (UPGRADE=1: move every pin)
	@scripts/setup dev
	@scripts/lock

clean: ## remove what set-up and tests made here (never the data under OUTLIVE_HOME)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
