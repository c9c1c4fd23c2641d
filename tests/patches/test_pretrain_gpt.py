"""The real ``pretrain_gpt.py`` of Megatron-LM, untouched, on CPU: each layout with Perseus and without."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import framework_versions
import launching
import pytest
from by_hand import by_hand

pytestmark = [
    pytest.mark.launch,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not framework_versions.SOURCES.is_dir(), reason=f"no folder {framework_versions.SOURCES}"),
]
ON_CPU = Path(__file__).with_name("megatron_lm_on_cpu.py")
ENVIRONMENT = {"TORCHDYNAMO_DISABLE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTHONWARNINGS": "ignore"}
CONFIGURATION = """
run_dir: {run_dir}
warmup_iterations: 1
baseline_iterations: {baseline_iterations}
profiling:
  max_iterations: {profiling_iterations}
simulator:
  profile: gpt3-175b-a100-sxm
  stages: {stages}
  time_scale: {time_scale}
"""
QUICK = {"baseline_iterations": 2, "profiling_iterations": 8, "time_scale": 0.1}
LASTING = {"baseline_iterations": 8, "profiling_iterations": 20, "time_scale": 0.4}
EVERYWHERE = """
    --num-layers 4 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16
    --micro-batch-size 1 --lr 1e-3 --min-lr 1e-4 --hidden-dropout 0 --attention-dropout 0
    --mock-data --tokenizer-type NullTokenizer --vocab-size 64 --split 8,1,1 --num-workers 0 --log-interval 1
    --transformer-impl local --attention-backend unfused --no-persist-layer-norm --no-gradient-accumulation-fusion
    --no-bias-gelu-fusion --no-bias-dropout-fusion --no-masked-softmax-fusion --no-bias-swiglu-fusion --no-rope-fusion
    --rerun-mode disabled --distributed-backend gloo --no-save-rng --no-load-rng
    --global-batch-size 8 --eval-interval 1000 --eval-iters 1
"""
DISTRIBUTED_OPTIMIZER = "--use-distributed-optimizer --overlap-grad-reduce"
INTERLEAVED = f"{DISTRIBUTED_OPTIMIZER} --num-layers-per-virtual-pipeline-stage 1"


class Case(NamedTuple):
    """A layout of four ranks: the release, the way in, its stages, its options, and where it is cut in two."""

    release: str
    way: str
    stages: int
    options: str
    saved_at: int | None = None


CASES = {
    "growing batches, evaluation": Case(
        "0.16.1", "run", 4, "--rampup-batch-size 4 4 160 --train-samples 280 --eval-interval 24"
    ),
    "interleaved": Case("0.16.1", "run", 2, f"{INTERLEAVED} --train-iters 40"),
    "data-parallel": Case("0.20.0", "drop-in", 2, f"{DISTRIBUTED_OPTIMIZER} --train-iters 40 --eval-interval 16"),
    "tensor-parallel": Case("0.20.0", "torchrun", 2, "--tensor-model-parallel-size 2 --train-iters 40", saved_at=30),
}
PREDICTED = {
    "PP4": Case("0.16.1", "run", 4, "--train-iters 100"),
    "interleaved": Case("0.16.1", "run", 2, f"{INTERLEAVED} --train-iters 100"),
}


class Pretraining:
    """One case in a directory of its own: it can be run in the case's way, and as it is without Perseus."""

    def __init__(self, case: Case, directory: Path, settings: dict[str, float] = QUICK) -> None:
        self.case, self.directory = case, directory
        self.sources = framework_versions.megatron_sources(case.release)
        self.configuration, self.run_dir = directory / "perseus.yaml", directory / "run"
        # A lasting run has its plan in time; waits for it would disturb what is measured.
        self.awaited = {"WAIT_FOR": str(self.run_dir / "frontier.json")} if settings is QUICK else {}
        stages = [4, 5, 6, 7] if case.stages == 4 else [4, 7]
        self.configuration.write_text(CONFIGURATION.format(run_dir=self.run_dir, stages=stages, **settings))

    def reference(self) -> dict[str, list]:
        """Return the rows in TensorBoard of a run that knows nothing of Perseus."""
        return self._train("reference", "by hand", self.sources / "pretrain_gpt.py")

    def under_perseus(self, name: str = "perseus", *more) -> dict[str, list]:
        """Return the rows of a run in the case's way, which is long enough for a plan."""
        script = self.sources / "pretrain_gpt.py"
        if self.case.way == "drop-in":
            copy = self.directory / "pretrain_gpt.py"
            copy.write_text(f"import perseus_ds.megatron\n{script.read_text()}")
            return self._train(name, "by hand", copy, "--perseus", self.configuration, *more, **self.awaited)
        run = ("-m", "perseus_ds", "run", script, "--perseus", self.configuration)
        return self._train(name, self.case.way, *run, *more, **self.awaited)

    def _train(self, name: str, launcher: str, *words, **more: str) -> dict[str, list]:
        rows = self.directory / name
        options = (*EVERYWHERE.split(), "--pipeline-model-parallel-size", self.case.stages, *self.case.options.split())
        arguments = (ON_CPU, *words, *options, "--tensorboard-dir", rows)
        python_path = os.pathsep.join(map(str, (self.sources, ON_CPU.parent, launching.ROOT)))
        environment = {**ENVIRONMENT, "PYTHONPATH": python_path, **more}
        if launcher == "torchrun":
            done = launching.run(launching.torchrun_command(4, *arguments), **environment)
        else:
            done = by_hand(4, *arguments, **environment)
        assert done.returncode == 0, done.stdout
        return read_rows(rows)


def read_rows(directory: Path) -> dict[str, list]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    return {tag: [(row.step, row.value) for row in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def losses(rows: dict[str, list], after: int = 0, until: int = 1000) -> dict[str, list]:
    """Return training and validation losses, as the floats that they are, of some iterations."""
    tags = [tag for tag in rows if tag.startswith("lm loss") and not tag.endswith("vs samples")]
    wanted = {tag: [row for row in rows[tag] if after < row[0] <= until] for tag in tags}
    return {tag: some for tag, some in wanted.items() if some}


@pytest.mark.parametrize("name", CASES)
def test_losses_are_bit_identical_with_and_without(name, tmp_path) -> None:
    case = CASES[name]
    pretraining = Pretraining(case, tmp_path)
    save = ("--save", tmp_path / "checkpoints", "--save-interval", 1000, "--exit-interval", case.saved_at)
    rows, without = pretraining.under_perseus("perseus", *(save if case.saved_at else ())), pretraining.reference()
    trained = case.saved_at or len(without["lm loss"])
    assert losses(rows) == losses(without, until=trained)
    assert '"enforcing"' in (pretraining.run_dir / "events.jsonl").read_text()
    assert not list(pretraining.run_dir.glob("error-*"))
    # Evaluations count nowhere.
    assert len(json.loads((pretraining.run_dir / "iterations.json").read_text())) == trained
    steps = {step for step, _ in rows["perseus_ds/iteration_time_seconds"]}
    assert len(steps) > trained / 2
    assert steps <= set(range(trained))
    if case.saved_at:
        resumed = pretraining.under_perseus("resumed", "--load", tmp_path / "checkpoints")
        assert losses(resumed) == losses(without, after=trained)
        assert min(step for step, _ in resumed["perseus_ds/iteration_time_seconds"]) >= trained


@pytest.mark.quiet_host
@pytest.mark.against_the_clock("four ranks share two cores: what else runs there adds to every iteration")
@pytest.mark.parametrize("name", PREDICTED)
def test_iterations_last_as_long_as_predicted(name, tmp_path) -> None:
    pretraining = Pretraining(PREDICTED[name], tmp_path, LASTING)
    pretraining.under_perseus()
    found = json.loads((pretraining.run_dir / "summary.json").read_text())
    assert found["measured"]["iteration_time_s"] == pytest.approx(found["predicted"]["iteration_time_s"], rel=0.03)
    assert found["saving"] > 0.05
