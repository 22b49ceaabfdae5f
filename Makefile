# Everything runs in .venv. It is filled in two steps: what likewise needs to run (`make demo`), and what developing it
# needs (`make test` and the rest). torch comes first, by its pin, since that is the CPU build.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Wheels for Python 3.12 and later are built by one of those: one abi3 wheel serves them all.
ABI3_PYTHON ?= $(shell for p in python3.12 python3.13 python3.14 $(HOME)/.pyenv/versions/3.1[234]*/bin/python; do \
	$$p -c '' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEVELOPMENT := $(VENV)/.development
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(shell find src -name '*.cpp' -o -name '*.h')
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests that read real data find it here; without it they are skipped.
export LIKEWISE_DATA ?= $(wildcard $(abspath ../shared/data))

.PHONY: setup demo test gpu-test check format docs wheel sanitize fuzz soak release-constraints bench clean

setup: $(DEVELOPMENT)

$(RUNTIME): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) scikit-build-core nanobind cmake ninja
	$(PIP) --no-build-isolation --editable '.[web]'
	touch $@

$(DEVELOPMENT): $(RUNTIME)
	$(PIP) --no-build-isolation --editable '.[dev]'
	# Real models for tests, beside the other packages: lightning imports a torchvision that it finds, which one built
	# for another torch does not survive. Their tests are skipped where they cannot be had.
	-$(PIP) --no-deps --upgrade --target $(VENV)/backbones timm torchvision
	# A Milvus server and Milvus Lite for the tests of MilvusStore, which are skipped where these cannot be had.
	-$(PIP) milvus-lite milvus
	touch $@

demo: $(RUNTIME)  ## the main job on real data
	$(BIN)/likewise demo --force

test: setup  ## all tests, doctests included, in two processes
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

gpu-test: setup  ## the GPU kernels on a real GPU; writes down what passed, in tests/gpu_tests.md
	$(BIN)/python tools/gpu_tests.py

check: setup  ## lint, formatting, types, and known vulnerabilities where an index tells them
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python tools/audit.py

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup  ## the documentation, in docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

wheel: setup  ## audited wheels in dist: one for $(PYTHON), and one for 3.12 and later where $(ABI3_PYTHON) is found
	rm -rf build/wheels dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheels .
	$(if $(ABI3_PYTHON),PIP_CONSTRAINT=constraints.txt $(ABI3_PYTHON) -m pip wheel --quiet --no-deps --wheel-dir build/wheels .)
	for wheel in build/wheels/*.whl; do PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist $$wheel || exit 1; done
	$(if $(ABI3_PYTHON),$(BIN)/abi3audit --strict --summary dist/*abi3*.whl)

sanitize: setup  ## every kernel with sanitisers, for every instruction set here; builds what has changed
	$(BIN)/python -m tests.sanitize.run $(ARGS)

fuzz: setup  ## every reader, guided by coverage, 100,000 inputs each; ARGS="ts npz --runs 1000" for less
	$(PIP) atheris
	$(BIN)/python -m tests.fuzz.run $(ARGS)

soak: setup  ## an hour of mixed calls in one process: memory, threads and file handles stay flat
	$(BIN)/python benchmarks/soak.py $(ARGS)

release-constraints: setup  ## constraints-release.txt: every file of a release with its hash
	$(BIN)/python tools/release_constraints.py

bench: setup  ## against peers, in the same run; rows go to benchmarks/results
	$(BIN)/python benchmarks/dtw.py
	$(BIN)/python benchmarks/elastic.py
	$(BIN)/python benchmarks/soft_dtw.py
	$(BIN)/python benchmarks/gdtw.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/transport.py
	$(BIN)/python benchmarks/coupled_gru.py
	$(BIN)/python benchmarks/unseen_classes.py

clean:
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/reference docs/sg_execution_times.rst
