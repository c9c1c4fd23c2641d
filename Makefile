PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export DS_ACCELERATOR := cpu
export OMP_NUM_THREADS := 1

.PHONY: demo demo-megatron test test-matrix lint bench docs clean

$(READY): pyproject.toml $(wildcard requirements/*.txt)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade -c requirements/constraints.txt pip
	$(BIN)/python -m pip install --quiet --no-compile -r requirements/dev.txt -c requirements/constraints.txt
	# On all cores, which pip does on one; some packages ship files that are not quite Python.
	$(BIN)/python -m compileall -q -j 0 .venv/lib > /dev/null || true
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

demo: $(READY)  ## A real DeepSpeed pipeline under Perseus on simulated GPUs
	rm -rf runs/demo
	$(BIN)/python -m perseus_ds.frontier.kernels
	PATH="$(CURDIR)/$(BIN):$$PATH" deepspeed --num_gpus 4 --module perseus_ds run examples/deepspeed_gpt/train.py \
	  --perseus examples/deepspeed_gpt/perseus.yaml --deepspeed_config examples/deepspeed_gpt/ds_config.json

demo-megatron: $(READY)  ## The same with Megatron-Core's 1F1B
	rm -rf runs/demo-megatron
	$(BIN)/python -m perseus_ds.frontier.kernels
	$(BIN)/torchrun --nproc-per-node 4 -m perseus_ds run examples/megatron_gpt/train.py \
	  --perseus examples/megatron_gpt/perseus.yaml

test: $(READY)
	$(BIN)/python -m perseus_ds.frontier.kernels
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest

test-matrix: $(READY)  ## The hooks on every supported framework version
	$(BIN)/nox

lint: $(READY) docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

bench: $(READY)  ## Solver against lowtime and HiGHS, bus at 10,240 ranks, hooks, clock keeper; see benchmarks/README.md
	$(BIN)/python -m pip install --quiet -r requirements/bench.txt -c requirements/constraints.txt
	$(BIN)/python benchmarks/frontier.py
	$(BIN)/python benchmarks/bus_scale.py
	$(BIN)/python benchmarks/clock_keeper.py
	$(BIN)/python benchmarks/hook_overhead.py
	$(BIN)/python benchmarks/gpu_overhead.py

docs: $(READY)  ## The documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv build dist site *.egg-info runs
