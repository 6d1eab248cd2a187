# leasework: every command a contributor needs. `make` alone lists them.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Test this tree in its own venv, whatever the caller's shell has set up.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
# Images for containers often set this. Without compiled files, each of the many processes that the tests start
# would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_NO_INPUT := 1

# All paths are relative, so that a clone may lie under a path with spaces.
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq

.PHONY: help demo test bench prove soak mutants lint fmt clean mutants-sim web-speed web-shots demo-show

help:  ## list the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: .venv/.has-embedded  ## watch leasework work, and break it (SECONDS=20 stops by itself, without a dashboard; REPORT=demo.json)
	@$(BIN)/leasework demo $(if $(SECONDS),--seconds "$(SECONDS)") $(if $(REPORT),--report "$(REPORT)")

demo-show: .venv/.has-test  ## press every button of the demo in a browser and wait for each recovery (TO=build/shots)
	@mkdir -p "$(or $(TO),build/shots)"
	@LEASEWORK_LONG=1 LEASEWORK_SHOTS="$(abspath $(or $(TO),build/shots))" $(BIN)/python -m pytest -q -s tests/web/test_demo_show.py

# Six files run at a time, even on two cores, because most tests wait. WORKERS=0 runs one file after another,
# for -s. Files run in the order of the folders: the files with the longest tests have few, and must not come last.
WORKERS ?= 6
BY_FILE := --dist loadfile --no-loadscope-reorder
# The other Pythons that PATH or pyenv offers, the newest last. Each runs the tests marked `everywhere`: the
# newest one in `make test`, the others in `make test-slow`.
OTHERS = $(shell scripts/make-venv --others)
PYTHONS ?= $(if $(ARGS),,$(lastword $(OTHERS)))
PYTHONS_SLOW ?= $(if $(ARGS),,$(filter-out $(lastword $(OTHERS)),$(OTHERS)))

test: .venv/.has-test  ## run all checks and the fast tests (ARGS="-k lease -x" goes to pytest; WORKERS=0 for -s; PYTHONS=3.13)
	@scripts/test-setup
	@rm -rf build/tests
	@$(MAKE) --jobs=3 --keep-going test-lint test-fast $(PYTHONS:%=test-%); code=$$?; cat build/tests/*.line; exit $$code

test-slow: .venv/.has-test  ## run the other tests: models, campaigns, browsers, benchmarks, the steps of the pages
	@scripts/test-setup
	@rm -rf build/tests
	@$(MAKE) --jobs=3 --keep-going test-rest $(PYTHONS_SLOW:%=test-%); code=$$?; cat build/tests/*.line; exit $$code

# Beside the tests, because in a new clone the types take most of a minute on one core.
.PHONY: test-slow test-lint test-fast test-rest
test-lint:
	@mkdir -p build/tests
	@if $(MAKE) lint >build/tests/lint.log 2>&1; then echo "Lint: passed" >build/tests/lint.line; \
	else cat build/tests/lint.log; echo "Lint: failed, see build/tests/lint.log" >build/tests/lint.line; exit 1; fi

test-fast:
	@scripts/run-tests .venv "the fast tests" -n $(WORKERS) $(BY_FILE) $(or $(ARGS),-m "not slow")

test-rest:
	@scripts/run-tests .venv "the slow tests" -n $(WORKERS) $(BY_FILE) -m slow $(ARGS)

test-3.%: .venv-3.%/.has-test
	@scripts/run-tests .venv-3.$* "tests marked everywhere" -n 2 $(BY_FILE) -m "everywhere and not slow" $(ARGS)

bench: .venv/.has-test  ## compare with a raw SQL loop (ARGS="drain --jobs 50000 --rounds 3"; without ARGS: list the benchmarks)
	@$(BIN)/python -m bench $(or $(ARGS),--help)

prove: .venv/.has-test  ## inject faults into real processes for ten minutes (SEED=7; REPORT=prove.html)
	@scripts/test-setup
	@$(BIN)/leasework chaos --gate $(if $(SEED),--seed "$(SEED)") --report "$(or $(REPORT),build/prove.html)" --json build/prove.json

soak: .venv/.has-test  ## the same as prove, for an hour
	@scripts/test-setup
	@$(BIN)/leasework chaos --soak $(if $(SEED),--seed "$(SEED)") --report "$(or $(REPORT),build/soak.html)" --json build/soak.json

mutants: .venv/.has-test  ## check that the chaos campaign catches broken builds (ARGS="no-fence" for one)
	@scripts/test-setup
	@$(BIN)/python -m tests.mutants $(ARGS)

mutants-sim: .venv/.has-test  ## count the simulation seeds that catch each broken build (ARGS="--only NoFence")
	@$(BIN)/python -m tests.sim.search $(ARGS)

web-speed: .venv/.has-test  ## time every dashboard page with ten million finished jobs (takes minutes and 6 GB)
	@LEASEWORK_LONG=1 $(BIN)/python -m pytest -s tests/web/test_speed.py

web-shots: .venv/.has-test  ## take screenshots of every dashboard page, light and dark, wide and narrow (TO=build/shots)
	@mkdir -p "$(or $(TO),build/shots)"
	@LEASEWORK_SHOTS="$(abspath $(or $(TO),build/shots))" $(BIN)/python -m pytest -q tests/web/test_browser.py -k usable

.PHONY: docs docs-publish reference workshop docs-shots
docs: .venv/.has-docs  ## build the site into build/site; a broken link is an error
	@$(BIN)/zensical build --strict -f mkdocs.yml

docs-publish: docs  ## add the site to those of the other versions on the branch gh-pages, and push it (TAG=v0.1.0; without TAG: dev)
	@$(BIN)/python -m scripts.site_versions $(if $(TAG),--tag "$(TAG)")

reference: .venv/.has-test  ## generate docs/reference and the table of schemas from the code, and copy the files of deploy into their page
	@$(BIN)/python -m scripts.reference
	@$(BIN)/python -m scripts.included
	@$(BIN)/python -m scripts.compatibility

workshop: .venv/.has-test  ## run every step of the workshop's pages (takes minutes)
	@LEASEWORK_LONG=1 $(BIN)/python -m pytest -q tests/docs/test_workshop.py $(ARGS)

docs-shots: .venv/.has-test  ## retake the screenshots in docs/images
	@$(MAKE) web-shots TO=build/shots
	@$(BIN)/python -m scripts.pictures build/shots docs/images

.PHONY: release
release: .venv/.python  ## build both distributions twice into dist, compare and check them, and try them on each Python (ARGS="--python 3.12")
	@$(BIN)/python -m scripts.release $(ARGS)

# What the pages install besides leasework.
ON_PAGES := fastapi litestar flask django gunicorn uvicorn uvicorn-worker httpx pytest pytest-asyncio "sqlalchemy[asyncio]"
.PHONY: release-pages
release-pages: .venv/.has-test  ## after make release: follow the README, the tutorials and the pages with the wheels alone
	@scripts/test-setup
	@$(BIN)/python -m venv --clear build/pages
	@build/pages/bin/python -m pip install -qq $(ON_PAGES) \
		"$(firstword $(wildcard dist/packages/leasework-*.whl))[embedded,web,prometheus]" \
		"$(firstword $(wildcard dist/packages/leasework_lab-*.whl))"
	@cd build/pages && bin/leasework demo --seconds 10
	@STEPS_BIN="$(abspath build/pages/bin)" $(BIN)/python -m pytest -q tests/docs/test_steps.py tests/docs/test_django.py \
		-k "tutorial or readme or framework or page_goes or applications"

.PHONY: detection healthy
healthy: .venv/.has-test  ## run a healthy, busy application for an hour; any reported problem is a failure (MINUTES=10)
	@scripts/test-setup
	@$(BIN)/python -m tests.detection.healthy --minutes $(or $(MINUTES),60)

detection: .venv/.has-test  ## cause 26 problems and time how soon status, dashboard, metric and alert report them (PAGE=docs/explanation/detection.md)
	@scripts/test-setup
	@$(BIN)/python -m tests.detection $(if $(PAGE),--page "$(PAGE)") $(ARGS)

.PHONY: rolling schedules-long
rolling: .venv/.has-test  ## release an application forward and back under load, with kill -9; no job may fail or get lost (SECONDS=60)
	@scripts/test-setup
	@ROLLING_SECONDS="$(or $(SECONDS),60)" $(BIN)/python -m pytest -q -s tests/e2e/test_rolling.py

schedules-long: .venv/.has-test  ## put, change and delete 10,000 schedules while they fire and their leader is killed (takes minutes)
	@scripts/test-setup
	@LEASEWORK_LONG=1 $(BIN)/python -m pytest -q -s tests/e2e/test_fault_schedules.py

.PHONY: django-own
django-own: .venv/.has-test $(or $(VENV),.venv)/.has-test  ## run Django's own tests of task backends on leasework's (VENV=.venv-3.12, which has Django 6)
	@scripts/test-setup
	@$(or $(VENV),.venv)/bin/python -m tests.django_own

.PHONY: failover hosts
failover: .venv/.has-failover  ## kill, switch over and freeze the primary of three servers under Patroni (REPORT=failover.json; ARGS="sync-kill" for one)
	@scripts/test-setup
	@$(BIN)/python -m tests.failover --report "$(or $(REPORT),build/failover.json)" $(ARGS)

hosts: .venv/.has-test  ## cut the links of hosts in network namespaces, one direction at a time (as root)
	@scripts/test-setup
	@$(BIN)/python -m pytest tests/hosts/all_hosts.py -s $(ARGS)

lint: .venv/.has-test  ## check style, types and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m scripts.house

fmt: .venv/.has-test  ## format the code and apply automatic fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:  ## remove the venv, caches and build output
	@rm -rf .venv .venv-3.* build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- setup: each stamp is in the venv and is deleted with it ---------------------------------
.venv/.python:
	@scripts/make-venv

.venv/.has-embedded: pyproject.toml lab/pyproject.toml .venv/.python
	@echo "Installing leasework and leasework-lab into .venv ..."
	@$(PIP) -e '.[embedded,web]' -e ./lab
	@touch $@

.venv/.has-test: pyproject.toml lab/pyproject.toml .venv/.python
	@echo "Installing leasework[test] and leasework-lab into .venv ..."
	@$(PIP) -e '.[test]' -e ./lab
	@touch .venv/.has-embedded $@

.PRECIOUS: .venv-3.%/.has-test
.venv-3.%/.has-test: pyproject.toml lab/pyproject.toml
	@scripts/make-venv 3.$*
	@.venv-3.$*/bin/python -m pip install -qq -e '.[test]' -e ./lab
	@touch $@

.venv/.has-docs: pyproject.toml .venv/.python
	@echo "Installing leasework[docs] into .venv ..."
	@$(PIP) -e '.[docs]'
	@touch $@

# Patroni has other dependencies, and runs under an account that cannot read the venv: install it in its own folder.
.venv/.has-failover: .venv/.has-test
	@echo "Installing Patroni into .venv/failover ..."
	@$(PIP) --target .venv/failover --upgrade 'patroni[etcd3,psycopg3]>=4,<5' 'psycopg[binary]>=3.2'
	@touch $@
