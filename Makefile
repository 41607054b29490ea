# Each target makes its own .venv and installs what it needs from constraints.txt.
# PIP_ARGS passes through to pip, for instance to choose a build of torch. With the wheels for CUDA 13.0 (torch's site
# lists the others; /whl/cpu has those without a GPU):
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cu130"
# torch and torchvision have to be of one build: make says so where they aren't.

PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_ARGS)
FIT = $(BIN)/python environment/fit.py # whether the wheels fit together
ONE := OMP_NUM_THREADS=1 # the models of the tests are small: a second thread would mostly wait
BESIDE := -n auto --maxprocesses 4 --dist loadfile # a file's tests share what they prepared

.PHONY: demo test test-all lint docs site dist extras clean

demo: .venv/demo # stopped, it goes on
	$(BIN)/bise demo --resume $(ARGS)

test: lint
	$(ONE) $(BIN)/python -m pytest $(BESIDE) -m "not long"

test-all: lint .venv/docs .venv/release
	$(ONE) $(BIN)/python -m pytest $(BESIDE)

lint: .venv/dev
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

# what the data sets of BISE_DATA show is left as it is without them
docs: .venv/dev
	$(BIN)/bise reproduce --page
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/index.py
	$(if $(BISE_DATA),$(ONE) $(BIN)/python tests/test_docs.py)
	$(MAKE) site

site: .venv/docs # its notebooks run
	rm -rf build/site
	$(ONE) $(BIN)/python -m sphinx --quiet --fail-on-warning --fresh-env --conf-dir docs/site \
	    --doctree-dir build/doctrees . build/site
	@echo "open build/site/index.html"

dist: .venv/release
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

# each extra in an environment of its own; EXTRAS="data text" tries these alone
extras: .venv/release
	$(BIN)/python environment/extras.py $(EXTRAS) -- --constraint constraints.txt $(PIP_ARGS)

.venv/torch: constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) torch
	touch $@

.venv/demo: .venv/torch pyproject.toml
	$(INSTALL) --editable '.[demo,vision,text,onnx]'
	$(FIT)
	touch $@

.venv/dev: .venv/torch pyproject.toml
	$(INSTALL) --editable '.[demo,data,vision,text,onnx,log,studies,dev]'
	$(FIT)
	touch $@

.venv/docs: .venv/dev
	$(INSTALL) --editable '.[docs]'
	touch $@

.venv/release: .venv/dev
	$(INSTALL) --editable '.[release]'
	touch $@

clean:
	rm -rf .venv build dist
