# `make demo` and `make test` do everything on a fresh machine with Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CHECKED := fedcal clients strategies experiments tests docs docker setup.py

# pip takes wheels alone, so no foreign code runs at the install, and none without a hash of locks/.
hashed = $(1)/bin/python -m pip --disable-pip-version-check --quiet install \
	--require-hashes --only-binary :all:
# PyTorch's CPU build where pip finds one: it has a hash of its own, and needs no CUDA packages.
torch = $(hashed) --no-deps -r locks/torch-cpu.txt 2>/dev/null || \
	echo "no CPU build of PyTorch here: the registry's is taken, with CUDA packages on Linux"
LOCK := $(BIN)/uv pip compile --quiet --no-python-downloads --universal --python-version 3.11.5 \
	--generate-hashes --no-annotate --custom-compile-command 'make lock' -c constraints.txt

.PHONY: demo test test-all golden mutants lint docs reproduce bench bench-all flower lock sbom release clean

demo: $(VENV)/.run
	$(BIN)/python -m experiments.demo --out demo-out

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: lint
	$(BIN)/python tests/support/needed.py
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Write what people get, tests/golden/, anew: read the difference before you commit it.
golden: $(VENV)/.dev
	$(BIN)/python tests/support/golden.py
	git --no-pager diff --stat tests/golden

# Plant each fault that the tests must catch: all, those of what changed since a commit
# (SINCE=BASE), or those that are named (FAULTS='a b').
mutants: $(VENV)/.dev
	$(BIN)/python tests/planted_faults $(SINCE:%=--since %) $(FAULTS)

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/python tests/support/plain_names.py
	@# mypy does not know the map of setup.py: it checks a tree of links
	rm -rf $(VENV)/mypy && mkdir -p $(VENV)/mypy/fedcal
	ln -s $(CURDIR)/fedcal/* $(CURDIR)/clients $(CURDIR)/strategies $(VENV)/mypy/fedcal
	ln -s $(CURDIR)/experiments $(VENV)/mypy
	cd $(VENV)/mypy && ../bin/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build
	@echo "open docs/_build/index.html"

# A paper's study: `make reproduce` lists them, NAME='maddock-table3 --out again' runs one.
reproduce: $(VENV)/.dev
	$(BIN)/python -m experiments $(NAME)

bench: $(VENV)/.bench $(VENV)/.peers
	$(BIN)/python -m experiments.benchmarks --out bench-out

bench-all: $(VENV)/.bench $(VENV)/.peers $(VENV)/.pfl
	$(BIN)/python -m experiments.benchmarks --out bench-out --all
	$(BIN)/python -m experiments.benchmarks.scale | tee bench-out/scale.md

# Try engines, guard and a deployment with another Flower, for docs/guide/your-flower-app.md. The other
# packages are the newest that it allows, without our hashes.
VERSION ?= 1.42.0
flower: $(BIN)/python
	$(PYTHON) -m venv $(VENV)/flower-$(VERSION)
	PYTHONWARNINGS=ignore $(VENV)/flower-$(VERSION)/bin/python -m pip --disable-pip-version-check --quiet \
		install --only-binary :all: -e '.[simulation]' 'flwr[simulation]==$(VERSION)' \
		hypothesis pytest pyyaml scikit-learn
	$(VENV)/flower-$(VERSION)/bin/python -m pytest -q -p no:cacheprovider \
		--durations 9 tests/fedcal/run/engines tests/clients/site/process tests/fedcal/sites

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fedcal needs Python >= 3.11; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml setup.py $(wildcard locks/*.txt)
	$(call hashed,$(VENV)) -r locks/build.txt
	@# the warning is of the folders beside fedcal/
	PYTHONWARNINGS=ignore $(PIP) install --no-deps --no-build-isolation -e .
	$(call hashed,$(VENV)) -c locks/all.txt fedcal
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(call torch,$(VENV))
	$(call hashed,$(VENV)) -c locks/all.txt 'fedcal[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.run
	$(call torch,$(VENV))
	$(call hashed,$(VENV)) -c locks/all.txt 'fedcal[bench]'
	@touch $@

# Peers whose packages clash with ours or are heavy; without them their rows say "skipped".
PEERS := netcal probmetrics numba pandas
$(VENV)/.peers: $(BIN)/python locks/peers.txt
	$(BIN)/python -m venv $(VENV)/peers
	$(call hashed,$(VENV)/peers) -r locks/build.txt
	$(call torch,$(VENV)/peers)
	$(call hashed,$(VENV)/peers) -c locks/peers.txt $(PEERS) && touch $@ || echo "no peers here"

# pfl-research's simulator, which takes no dp-accounting as new as ours.
$(VENV)/.pfl: $(BIN)/python locks/pfl.txt
	$(BIN)/python -m venv $(VENV)/pfl
	$(call hashed,$(VENV)/pfl) -r locks/pfl.txt && touch $@ || echo "no pfl here"

# The hashes of all files of each release, for every platform and Python.
lock: $(VENV)/.run
	printf 'pip\nsetuptools\n' | $(LOCK) - --output-file locks/build.txt
	$(LOCK) --all-extras pyproject.toml --output-file locks/all.txt
	printf '%s\n' $(PEERS) | $(LOCK) -c experiments/benchmarks/peers-constraints.txt - \
		--output-file locks/peers.txt
	printf 'pfl\n' | $(filter-out -c constraints.txt,$(LOCK)) \
		-c experiments/benchmarks/pfl-constraints.txt - --output-file locks/pfl.txt

sbom: $(VENV)/.run
	$(BIN)/python docker/sbom.py --lock locks/all.txt --out sbom.json

# What a release publishes, in dist/: CONTRIBUTING.md has the steps before and after.
release: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python docker/sbom.py --lock locks/all.txt --out dist/sbom.json --licences dist/licences.md

clean:
	rm -rf $(VENV) .pytest_cache build dist demo-out bench-out docs/_build sbom.json *.egg-info
