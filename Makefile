PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export DS_ACCELERATOR := cpu
export OMP_NUM_THREADS := 1

.PHONY: demo demo-megatron demo-power test reliability test-matrix mutants lint bench worlds soak gpu-check docs clean

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

demo-power: $(READY)  ## A Megatron job follows a power signal: down to 60 %, back, and a ramp
	rm -rf runs/demo-power
	$(BIN)/python -m perseus_ds.frontier.kernels
	$(BIN)/python examples/power/follow.py runs/demo-power examples/power/signal.csv -- \
	  $(BIN)/torchrun --nproc-per-node 4 -m perseus_ds run examples/megatron_gpt/train.py \
	  --perseus examples/power/perseus.yaml --steps 195

test: $(READY)
	$(BIN)/python -m perseus_ds.frontier.kernels
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest

reliability: $(READY)  ## What faults do to a training; writes docs/reliability.md (as root: two nodes, a full disk)
	$(BIN)/python -m perseus_ds.frontier.kernels
	PERSEUS_DS_QUIET_HOST=1 $(BIN)/python -m pytest tests/reliability -n 0 -p reliability_page
	$(BIN)/python tests/reliability/reliability_page.py

test-matrix: $(READY)  ## The hooks on every supported framework version; writes docs/framework-releases.md
	$(BIN)/nox

mutants: $(READY)  ## Do a package's tests notice what is broken? make mutants PACKAGE=device SAMPLE=120 SEED=1
	$(BIN)/python -m pip install --quiet -r requirements/mutation.txt -c requirements/constraints.txt
	$(BIN)/python -m perseus_ds.frontier.kernels
	$(BIN)/python benchmarks/mutants.py $(PACKAGE) --sample $(or $(SAMPLE),100) --seed $(or $(SEED),1)

lint: $(READY) docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

bench: $(READY)  ## Solver against lowtime and HiGHS, bus at 10,240 ranks, hooks, clock keeper; see benchmarks/README.md
	$(BIN)/python -m pip install --quiet -r requirements/bench.txt -c requirements/constraints.txt
	$(BIN)/python benchmarks/frontier.py
	$(BIN)/python benchmarks/bus_scale.py
	$(BIN)/python benchmarks/clock_keeper.py
	$(BIN)/python benchmarks/hook_overhead.py

worlds: $(READY)  ## Short jobs on every GPU model that can be simulated; see docs/worlds.md
	$(BIN)/python -m perseus_ds.frontier.kernels
	$(BIN)/python benchmarks/worlds.py

soak: $(READY)  ## Half an hour of disturbed training: make soak FRAMEWORK=megatron GPU=a100 ITERATIONS=2000 MINUTES=10
	$(BIN)/python -m perseus_ds.frontier.kernels
	$(BIN)/python benchmarks/soak.py --framework $(or $(FRAMEWORK),deepspeed) --gpu $(or $(GPU),kind) \
	  --iterations $(or $(ITERATIONS),20000) --minutes $(or $(MINUTES),24)

gpu-check: $(READY)  ## Experiments on one GPU by reading only, else on a virtual one; see docs/silicon.md
	$(BIN)/python -m perseus_ds.silicon

docs: $(READY)  ## The documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv build dist site *.egg-info runs
