# The two commands that a bare Debian 12 machine needs are `make demo` and `make test`; both install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help demo dataset tools lab test test-unit test-worker test-lab bench lint locks clean

PYTHON ?= python3
VENV := .venv
WORKER_VENV := .worker-venv
BENCH_VENV := .bench-venv
BIN := $(VENV)/bin
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
PIP := -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
DEMO := .tailtrain/demo

help:
	@echo "make demo   six hosts on this machine train a model over a tailnet of their own"
	@echo "make test   all tests, those in the lab included"
	@echo "make bench  what a no-op costs, how fast data is pushed, how fast and how well a fleet trains; see tests/bench/README.md"
	@echo "make lint   ruff, mypy, import contracts"
	@echo "make locks  make the lock files again"
	@echo "make clean  take the lab down, remove what make made"

demo: $(VENV)/.ready lab dataset
	$(AS_ROOT) $(BIN)/tailtrain lab exec -- $(BIN)/pyinfra -y inventory.py deploys/train.py
	@echo
	@echo "The lab is still up. Look around:"
	@echo "  $(BIN)/tailtrain lab exec -- $(BIN)/tailtrain status        each node's state"
	@echo "  $(BIN)/tailtrain lab exec -- tailscale status               the tailnet"
	@echo "  $(BIN)/tailtrain lab exec -- ssh root@100.64.0.2            a shell on a host"
	@echo "Run it again, and nothing changes:"
	@echo "  $(BIN)/tailtrain lab exec -- $(BIN)/pyinfra -y inventory.py deploys/train.py"
	@echo "Take it down:"
	@echo "  $(BIN)/tailtrain lab down"

tools: $(VENV)/.ready
	$(BIN)/tailtrain lab install

lab: tools
	$(AS_ROOT) $(BIN)/tailtrain lab up

dataset: $(VENV)/.ready
	$(BIN)/tailtrain dataset demo $(DEMO)

test: tools lint test-unit test-worker test-lab

# Hosts, trainings and transfers share the machine with all else that runs on it. A test that fails runs once more,
# and the summary names it with its traceback; what fails twice fails.
ONCE_MORE := -raR --reruns 1 --max-suite-reruns 4 --rerun-show-tracebacks

test-unit: $(VENV)/.ready
	$(BIN)/python -m pytest $(ONCE_MORE) -m "not lab and not worker" tests

# Some of these run Serf on this machine, which `tools` installs.
test-worker: tools $(WORKER_VENV)/.ready
	$(WORKER_VENV)/bin/python -m pytest $(ONCE_MORE) tests/worker

test-lab: lab dataset
	$(AS_ROOT) $(BIN)/python -m pytest $(ONCE_MORE) -m lab tests/lab

# In a lab of its own, which is taken down again: it needs about 50 minutes and a quiet machine. One part of it,
# in 10 to 15: make bench BENCH="--only push"
bench: tools dataset $(BENCH_VENV)/.ready $(WORKER_VENV)/.ready
	$(AS_ROOT) $(BIN)/tailtrain lab --name bench up --fresh
	missed=0; \
	$(AS_ROOT) $(BIN)/python -m tests.bench --lab bench --ansible $(BENCH_VENV)/bin $(BENCH) || missed=1; \
	$(AS_ROOT) $(BIN)/tailtrain lab --name bench down; \
	exit $$missed

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.ready: locks/control.lock pyproject.toml
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "Installing python3-venv with apt."; $(AS_ROOT) apt-get update -q; $(AS_ROOT) apt-get install -qy python3-venv; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) -r locks/control.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# The worker's own environment on this machine, for the tests that need torch; wheels as the lab has them.
$(WORKER_VENV)/.ready: locks/worker-cpu.lock locks/worker-cuda.lock locks/worker-tests.lock $(VENV)/.ready
	$(BIN)/tailtrain lab worker-venv $(WORKER_VENV)
	$(WORKER_VENV)/bin/python $(PIP) -r locks/worker-tests.lock
	touch $@

# Ansible, to compare with, in an environment of its own.
$(BENCH_VENV)/.ready: locks/bench.lock
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python $(PIP) -r locks/bench.lock
	touch $@

COMPILE := uv pip compile --quiet --generate-hashes --python-version 3.11 --custom-compile-command "make locks"
WORKER_PLATFORM := --python-platform x86_64-manylinux_2_36
WHEELS := $(firstword $(wildcard wheels ../wheels ../shared/wheels))

locks:
	$(COMPILE) --extra tests pyproject.toml -o locks/control.lock
	$(COMPILE) $(WORKER_PLATFORM) --find-links $(WHEELS) locks/worker-cpu.in -o locks/worker-cpu.lock
	$(COMPILE) $(WORKER_PLATFORM) locks/worker-cuda.in -o locks/worker-cuda.lock
	$(COMPILE) $(WORKER_PLATFORM) locks/worker-tests.in -c locks/worker-cpu.lock -o locks/worker-tests.lock
	$(COMPILE) locks/bench.in -o locks/bench.lock

clean:
	-[ -x $(BIN)/tailtrain ] && $(AS_ROOT) $(BIN)/tailtrain lab down
	rm -rf $(VENV) $(WORKER_VENV) $(BENCH_VENV) .tailtrain
