# `make demo` and `make test` do everything on a fresh machine with Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CHECKED := fedcal clients strategies experiments tests docs setup.py

.PHONY: demo test test-all lint docs bench certificates clean

demo: $(VENV)/.run
	$(BIN)/python -m fedcal.experiments.demo --out demo-out

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build
	@echo "open docs/_build/index.html"

bench: $(VENV)/.bench $(VENV)/.peers
	$(BIN)/python -m fedcal.experiments.benchmarks --out bench-out

# Of docker-compose.yml; NAMES='superlink calibration.example.org' for what sites call the server.
NAMES ?= superlink localhost 127.0.0.1
SITES ?= a b c
certificates: $(VENV)/.run
	$(BIN)/python -m fedcal.experiments.deploy.certificates --out certificates \
		$(NAMES:%=--name %) $(SITES:%=--site %)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fedcal needs Python >= 3.11; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml setup.py constraints.txt
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.run
	$(PIP) install -c constraints.txt -e '.[bench]'
	@touch $@

# Peers whose packages clash with ours or are heavy; without them their rows say "skipped".
$(VENV)/.peers: $(BIN)/python constraints.txt experiments/benchmarks/peers-constraints.txt
	$(BIN)/python -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip --disable-pip-version-check --quiet install \
		-c constraints.txt -c experiments/benchmarks/peers-constraints.txt \
		netcal probmetrics mapie numba pandas && touch $@ || echo "no peers here"

clean:
	rm -rf $(VENV) build demo-out bench-out docs/_build *.egg-info
