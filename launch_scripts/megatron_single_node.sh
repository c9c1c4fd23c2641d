#!/usr/bin/env bash
# One host, Megatron: a training script under Perseus on the GPUs of this host.
#
#   launch_scripts/megatron_single_node.sh pretrain_gpt.py --pipeline-model-parallel-size 4 ...
#
# PERSEUS   configuration         (perseus.yaml)
# GPUS      GPUs of this host     (all in nvidia-smi)
# DOCTOR    0: skip the check of this host
set -euo pipefail

perseus="${PERSEUS:-perseus.yaml}"
gpus="${GPUS:-$(nvidia-smi --list-gpus | wc -l)}"
if [[ $# -eq 0 ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
script="$1"
shift

if [[ "${DOCTOR:-1}" != 0 ]]; then
  perseus-ds doctor --perseus "$perseus"
fi
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-1}"
exec torchrun --standalone --nproc-per-node "$gpus" \
  -m perseus_ds run "$script" --perseus "$perseus" "$@"
