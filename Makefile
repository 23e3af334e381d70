# Two commands do everything: `make demo` and `make test`. Both need python3 (3.11 or later) and make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BUF    := node_modules/.bin/buf
BUF_VERSION := 1.75.0
PROTOS := $(sort $(wildcard proto/constraintd/v1/*.proto proto/constraintd/runner/v1/*.proto))
STUBS  := constraintd/v1 constraintd/runner/v1

# How many random sequences `make test-long` runs through the session's state machine.
SEQUENCES ?= 10000

# What the kustomize of the tests is; the newest that Go 1.26 builds.
KUSTOMIZE_VERSION := v5.7.1

.PHONY: help install demo test test-all test-clients test-long conformance chaos soak services lint lint-clients format \
  proto proto-check kustomize benchmarks clean

help:
	@echo "make demo        a real model writes valid JSON, across two processes"
	@echo "make test        the test suite, as far as python3 and make suffice"
	@echo "make test-all    all of it, with redis-server (a Debian package), Envoy, Go and Node"
	@echo "make test-long   the session's state machine over SEQUENCES=10000 random sequences, some 20 minutes"
	@echo "make conformance the same conversation by the Python, Go and TypeScript clients, as a table (needs Go and npm)"
	@echo "make chaos       daemons and runners killed KILLS=300 times, histories checked; some 40 minutes"
	@echo "make soak        MINUTES=20 under full load, with a picture of the memory: soak.png"
	@echo "make kustomize   render deploy/kustomize's OVERLAY=sidecar or replicas (needs Go)"
	@echo "make lint        ruff, mypy --strict, buf lint, stubs up to date (needs npm); the clients' linters (Go, npm)"
	@echo "make format      format the code"
	@echo "make proto       generate the stubs from proto/"
	@echo "make benchmarks  list the benchmarks"
	@echo "make clean       remove what the others made"

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("constraintd needs Python 3.11 or later; this is %s. Set PYTHON=..." % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: install
	$(BIN)/python examples/demo.py

test: install
	$(BIN)/constraintd-runner model fetch smollm2
	$(BIN)/python -m pytest -m "not services and not clients"

# What test-all needs beyond python3 and make. A Debian package, so it takes root where it isn't there yet.
services: install $(BIN)/kustomize
	@command -v redis-server >/dev/null \
	  || (apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server >/dev/null) \
	  || { echo "redis-server is not there and could not be installed; install it (Debian: redis-server)"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[services]'
	$(BIN)/python -m tests.go_tools

$(BIN)/kustomize: $(VENV)/installed
	GOBIN=$(CURDIR)/$(BIN) go install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_VERSION)
	@touch $@

kustomize: $(BIN)/kustomize
	@$(BIN)/kustomize build deploy/kustomize/overlays/$(or $(OVERLAY),sidecar)

test-all: services test-clients
	$(BIN)/constraintd-runner model fetch smollm2
	$(BIN)/python -m pytest

# The Go and TypeScript clients' own suites, against live daemons and runners.
test-clients: install
	$(BIN)/constraintd-runner model fetch smollm2
	$(MAKE) -C clients/go test
	$(MAKE) -C clients/typescript test

conformance: install
	@$(BIN)/constraintd-runner model fetch smollm2 >/dev/null
	@$(BIN)/python -m clients.conformance --build

test-long: install
	CONSTRAINTD_SEQUENCES=$(SEQUENCES) $(BIN)/python -m pytest tests/property/test_session_is_its_log.py

# How many times processes are killed in each of the long runs against SQLite and Redis.
KILLS ?= 300

chaos: services
	$(BIN)/python -m tests.fault.chaos --kills $(KILLS) --store sqlite
	$(BIN)/python -m tests.fault.chaos --kills $(KILLS) --store redis
	$(BIN)/python -m tests.fault.chaos --kills 60 --store redis --daemons 2
	$(BIN)/python -m tests.fault.chaos --kills 60 --lossy
	$(BIN)/python -m tests.fault.real_runner --kills 40

MINUTES ?= 20

soak: install
	$(BIN)/python -m tests.fault.soak --minutes $(MINUTES) --plot soak.png

lint: install $(BUF) lint-clients
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd proto && ../$(BUF) lint
	$(MAKE) --no-print-directory proto-check

lint-clients:
	$(MAKE) -C clients/go lint
	$(MAKE) -C clients/typescript lint

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BUF):
	npm install --no-save --no-audit --no-fund --loglevel=error @bufbuild/buf@$(BUF_VERSION)

proto: install
	$(call generate,.)

# Fails if the committed stubs are not what proto/ generates.
proto-check: install
	@rm -rf $(VENV)/stubs && mkdir $(VENV)/stubs
	@$(call generate,$(VENV)/stubs)
	@for folder in $(STUBS); do \
	  diff --recursive --brief --exclude=__init__.py --exclude=__pycache__ $(VENV)/stubs/$$folder $$folder \
	    || { echo "$$folder is stale: run make proto and commit it"; exit 1; }; \
	done

define generate
PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc --proto_path=proto \
  --python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS:proto/%=%)
endef

benchmarks: install
	$(BIN)/python -m benchmarks --list

clean:
	rm -rf $(VENV) node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
