# Everything runs in .venv, which `make setup` fills: torch first, by its pin, since that is the CPU build.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(shell find src -name '*.cpp' -o -name '*.h')
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests that read real data find it here; without it they are skipped.
export LIKEWISE_DATA ?= $(wildcard $(abspath ../shared/data))

.PHONY: setup demo test check format bench clean

setup: $(STAMP)

$(STAMP): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) scikit-build-core nanobind cmake ninja
	$(PIP) --no-build-isolation --editable '.[dev]'
	touch $@

demo: setup  ## the main job on real data
	$(BIN)/python -m likewise.recipes.demo

test: setup  ## all tests, doctests included
	$(BIN)/python -m pytest $(ARGS)

check: setup  ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup  ## against peers, in the same run; rows go to benchmarks/results
	$(BIN)/python benchmarks/dtw.py
	$(BIN)/python benchmarks/soft_dtw.py
	$(BIN)/python benchmarks/gdtw.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/transport.py
	$(BIN)/python benchmarks/coupled_gru.py
	$(BIN)/python benchmarks/unseen_classes.py

clean:
	rm -rf $(VENV) build
