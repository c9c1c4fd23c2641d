"""The launch scripts: clean, and run as far as a machine without GPUs lets them."""

import os
import subprocess
import sys
from pathlib import Path

import launching
import pytest
import yaml

SCRIPTS = Path(__file__).parents[1] / "launch_scripts"
SHELL = sorted([*SCRIPTS.glob("*.sh"), SCRIPTS / "slurm.sbatch"])
DOUBLE = '#!/usr/bin/env bash\necho "$(basename "$0") $*"\n'


def run_script(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return launching.run([str(SCRIPTS / name), *map(str, arguments)], **environment)


def doubles(directory: Path, **scripts: str) -> str:
    """A PATH that begins with commands that only tell how they were called."""
    for name, text in scripts.items():
        file = directory / name.replace("_", "-")
        file.write_text(text)
        file.chmod(0o755)
    return f"{directory}{os.pathsep}{launching.environment()['PATH']}"


def test_shellcheck_has_nothing_to_say():
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, *SHELL], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("script", ["deepspeed_single_node.sh", "megatron_single_node.sh", "torchrun_multi_node.sh"])
def test_without_arguments_a_script_tells_how_it_is_used(script):
    done = run_script(script, GPUS="2")
    assert done.returncode == 2
    assert f"launch_scripts/{script}" in done.stdout
    assert "PERSEUS" in done.stdout


@pytest.mark.launch
def test_deepspeed_on_one_host_trains(tmp_path):
    config = launching.write_config(tmp_path, report={"html": False})
    steps = ("--deepspeed_config", launching.DS_CONFIG, "--steps", 3)
    done = run_script(
        "deepspeed_single_node.sh", launching.TRAIN, *steps, GPUS="2", PERSEUS=str(config),
        MASTER_PORT=str(launching.free_port()),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "Will Perseus work on this host?" in done.stdout
    assert "[perseus_ds] iteration 1: baseline" in done.stdout


@pytest.mark.launch
def test_two_hosts_under_torchrun_train_together(tmp_path):
    """Both 'hosts' are this one, with one rank each."""
    config = launching.write_config(tmp_path, report={"html": False})
    environment = launching.environment(
        NODES="2", HEAD="localhost", PORT=str(launching.free_port()), GPUS="1", PERSEUS=str(config)
    )
    arguments = ("--deepspeed_config", launching.DS_CONFIG, "--steps", "3")
    command = [str(SCRIPTS / "torchrun_multi_node.sh"), str(launching.TRAIN), *map(str, arguments)]
    hosts = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    outputs = [host.communicate(timeout=240)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], outputs
    assert sum("[perseus_ds] iteration 1: baseline" in output for output in outputs) == 1


def test_megatron_on_one_host_is_launched_with_perseus(tmp_path):
    path = doubles(tmp_path, torchrun=DOUBLE, perseus_ds=DOUBLE)
    done = run_script(
        "megatron_single_node.sh", "pretrain_gpt.py", "--mock-data", GPUS="8", PERSEUS="p.yaml", PATH=path
    )
    assert done.stdout.splitlines() == [
        "perseus-ds doctor --perseus p.yaml",
        "torchrun --standalone --nproc-per-node 8 -m perseus_ds run pretrain_gpt.py --perseus p.yaml --mock-data",
    ]


def test_slurm_starts_one_torchrun_per_node(tmp_path):
    run_the_rest = '#!/usr/bin/env bash\nwhile [[ $1 == --* ]]; do [[ $1 == *=* ]] || shift; shift; done\nexec "$@"\n'
    path = doubles(
        tmp_path,
        srun=run_the_rest,
        scontrol="#!/usr/bin/env bash\nprintf 'node7\\nnode8\\n'\n",
        torchrun=DOUBLE,
        perseus_ds=DOUBLE,
    )
    slurm = {
        "SLURM_SUBMIT_DIR": str(SCRIPTS.parent),
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "node[7-8]",
        "SLURM_JOB_ID": "1234",
        "SLURM_GPUS_ON_NODE": "8",
    }
    done = run_script("slurm.sbatch", "train.py", "--deepspeed_config", "ds.json", PATH=path, **slurm)
    assert done.stdout.splitlines() == [
        "perseus-ds doctor --perseus perseus.yaml",
        "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node7:21234 "
        "--rdzv-id slurm-1234 -m perseus_ds run train.py --perseus perseus.yaml --deepspeed_config ds.json",
    ]


def test_the_kubernetes_job_may_set_clocks_and_its_pods_find_each_other():
    service, job = yaml.safe_load_all((SCRIPTS / "kubernetes.yaml").read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN"]
    assert variables["HEAD"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert variables["NODES"] == str(spec["completions"]) == str(spec["parallelism"])
    assert variables["GPUS"] == str(container["resources"]["limits"]["nvidia.com/gpu"])
    assert (spec["completionMode"], pod["subdomain"]) == ("Indexed", service["metadata"]["name"])
    assert (SCRIPTS / Path(container["command"][0]).name).exists()


def test_zeusd_s_unit_serves_the_address_that_perseus_looks_at():
    from perseus_ds.device.opening import DEFAULT_ZEUSD_ADDRESS

    done = run_script("zeusd_setup.sh", "--print", GROUP="root")
    assert done.returncode == 0
    assert f"--socket-path {DEFAULT_ZEUSD_ADDRESS} " in done.stdout
    assert "--socket-gid 0 --enable gpu-read,gpu-control" in done.stdout


def test_zeusd_s_set_up_refuses_an_unknown_group():
    done = run_script("zeusd_setup.sh", "--print", GROUP="no-such-group")
    assert done.returncode == 2
    assert "no group 'no-such-group'" in done.stdout


def test_the_clock_service_s_unit_runs_the_command_in_the_directory_where_keepers_look():
    from perseus_ds.device.lease import lease_directory

    done = run_script("clock_service_setup.sh", "--print", GROUP="root", COMMAND="/opt/perseus-ds")
    assert done.returncode == 0
    assert "ExecStart=/opt/perseus-ds clock-service --group root\n" in done.stdout
    assert f"RuntimeDirectory={lease_directory().relative_to('/run')}\n" in done.stdout
    unknown = run_script("clock_service_setup.sh", "--print", GROUP="no-such-group")
    assert (unknown.returncode, "no group 'no-such-group'" in unknown.stdout) == (2, True)


def test_the_clock_service_on_kubernetes_shares_its_directory_with_the_jobs():
    from perseus_ds.device.lease import lease_directory

    pod = yaml.safe_load((SCRIPTS / "kubernetes_clock_service.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["perseus-ds", "clock-service"]
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN"]
    assert container["volumeMounts"][0]["mountPath"] == str(lease_directory())
    assert pod["volumes"][0]["hostPath"]["path"] == str(lease_directory())
    commented = (SCRIPTS / "kubernetes.yaml").read_text().replace("# - ", "- ").replace("#   ", "  ")
    _, job = yaml.safe_load_all(commented[commented.index("apiVersion") :])
    assert {"leases", "zeusd"} <= {one["name"] for one in job["spec"]["template"]["spec"]["volumes"]}
