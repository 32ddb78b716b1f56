# Every target makes its own environment in .venv; nothing outside this folder is changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-sglang test-gpu test-rig faults-rollout lint format bench bench-gpu clean

demo: $(VENV)/.installed          ## deploy the lab, prove it, stop it
	PATH="$(abspath $(BIN)):$$PATH" tools/demo.sh

test: $(VENV)/.installed-dev      ## all tests that need neither root, Docker nor a GPU
	$(BIN)/pytest $(ARGS)

# An environment of its own: SGLang pins what the project does not. CPU only, and no root.
SGLANG_VENV := .venv-sglang
SGLANG_BIN  := $(SGLANG_VENV)/bin
SGLANG      := $(SGLANG_VENV)/engine

# Two at a time: interpreted kernels are Python, and a server of them keeps one core busy.
JOBS ?= 2
test-sglang: $(SGLANG)/.assembled ## real SGLang with the patches, on the CPU, kernels interpreted
	DDTREE_SGLANG=$(SGLANG) PYTHONPATH=tests/sglang_cpu/shims:$(SGLANG) OMP_NUM_THREADS=1 \
	TRITON_INTERPRET=1 SGLANG_USE_CPU_ENGINE=0 HF_HUB_OFFLINE=1 \
	$(SGLANG_BIN)/python -m pytest -o filterwarnings=default -p no:warnings \
	  -n $(JOBS) --dist worksteal tests/sglang_cpu $(ARGS)

# The first run builds the hosts' Debian and the image of their containers here, in minutes.
RIG ?= /var/tmp/ddtree-rig
test-rig: $(VENV)/.installed-dev  ## real hosts with sshd, Docker and pinned GPUs, as root
	DDTREE_RIG=$(RIG) $(BIN)/pytest tests/rig $(ARGS)

# Every fault at every step of every playbook: about an hour. A cell that has passed is not run again,
# so a matrix that was broken off goes on; FRESH=1 begins anew. The page is made at the end.
PARTS := 1 2
faults-rollout: $(VENV)/.installed-dev ## the matrix of docs/rollout-faults.md
	$(if $(FRESH),rm -f docs/measurements/rollout-faults.jsonl)
	for part in $(PARTS); do \
	  DDTREE_ALL_FAULTS=1 PART=$$part/$(lastword $(PARTS)) DDTREE_RIG=$(RIG) \
	    $(BIN)/pytest tests/rig/test_rollout_faults.py $(ARGS) & \
	done; wait
	$(BIN)/python -m tests.rollout.matrix

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev     ## measures; asserts nothing
	$(BIN)/python tools/bench_toolkit.py

# No environment of its own: a GPU host without a network has PyTorch in the Python that it has.
# SITE is the folder with the patched SGLang and what it imports.
ON_GPU = HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(PYTHON) -m pytest -o filterwarnings=default
KERNELS := $(addprefix tests/sglang_cpu/test_,$(addsuffix .py,tree candidates accept simulation recurrence))
test-gpu:                         ## real patched SGLang on this machine's GPUs; docs/test-gpu.md
	@test -d "$(SITE)/sglang" || { echo "say where SGLang is: make test-gpu SITE=DIR"; exit 2; }
	DDTREE_DEVICE=cuda DDTREE_SGLANG=$(SITE) PYTHONPATH=$(SITE) $(ON_GPU) $(KERNELS)
	DDTREE_SGLANG_GPU=$(SITE) $(ON_GPU) tests/sglang_gpu $(ARGS)

OUT ?= bench-gpu-results
bench-gpu:                        ## linear against trees on this machine's GPUs; docs/bench-gpu.md
	$(PYTHON) -m tools.bench_gpu --out $(OUT) $(ARGS)

clean:
	rm -rf $(VENV) $(SGLANG_VENV) dist build .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --group dev
	touch $@

$(SGLANG)/.assembled: $(SGLANG_VENV)/.installed tests/sglang_cpu/engine.py \
    tests/sglang_cpu/interpreter.patch $(wildcard patches/*/* ddtree_ops_cli/patchset/*.py)
	$(SGLANG_BIN)/python tests/sglang_cpu/engine.py $(SGLANG_VENV)/wheel/sglang-*.whl $(SGLANG)
	touch $@

$(SGLANG_VENV)/.installed: tests/sglang_cpu/requirements.txt
	$(PYTHON) -m venv $(SGLANG_VENV)
	$(SGLANG_BIN)/pip install --quiet --no-deps -r $<
	$(SGLANG_BIN)/pip download --quiet --no-deps --dest $(SGLANG_VENV)/wheel sglang==0.5.17
	touch $@
