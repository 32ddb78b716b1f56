# Every target makes its own environment in .venv; nothing outside this folder is changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-rig lint format bench clean

demo: $(VENV)/.installed          ## deploy the lab, prove it, stop it
	PATH="$(abspath $(BIN)):$$PATH" tools/demo.sh

test: $(VENV)/.installed-dev      ## all tests that need neither root, Docker nor a GPU
	$(BIN)/pytest $(ARGS)

RIG ?= /var/tmp/ddtree-rig
test-rig: $(VENV)/.installed-dev  ## real sshd hosts in namespaces, as root; needs mmdebstrap
	DDTREE_RIG=$(RIG) $(BIN)/pytest tests/rig $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev     ## measures; asserts nothing
	$(BIN)/python tools/bench_toolkit.py

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --group dev
	touch $@
