#!/usr/bin/env bash
# Several hosts, DeepSpeed or Megatron: run this on each of them.
#
#   NODES=4 HEAD=node0 launch_scripts/torchrun_multi_node.sh train.py --deepspeed_config ds.json
#
# NODES     number of hosts
# HEAD      name of the host where the ranks meet
# PORT      port on that host     (29500)
# JOB       name of the job, the same on all hosts   (perseus)
# PERSEUS   configuration         (perseus.yaml); all ranks use rank 0's, and run_dir is on rank 0's host
# GPUS      GPUs of this host     (all in nvidia-smi)
set -euo pipefail

perseus="${PERSEUS:-perseus.yaml}"
gpus="${GPUS:-$(nvidia-smi --list-gpus | wc -l)}"
if [[ $# -eq 0 || -z "${NODES:-}" || -z "${HEAD:-}" ]]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
script="$1"
shift

exec torchrun --nnodes "$NODES" --nproc-per-node "$gpus" --rdzv-backend c10d \
  --rdzv-endpoint "$HEAD:${PORT:-29500}" --rdzv-id "${JOB:-perseus}" \
  -m perseus_ds run "$script" --perseus "$perseus" "$@"
