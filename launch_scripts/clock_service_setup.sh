#!/usr/bin/env bash
# Once per host, as root: a service that resets clocks within 2 s after a job and its clock keepers were killed together.
# Needs systemd and an installed perseus_ds. For Kubernetes see kubernetes_clock_service.yaml.
#
#   sudo launch_scripts/clock_service_setup.sh            install and start
#   launch_scripts/clock_service_setup.sh --print         print the systemd unit, install nothing
#
# GROUP     group whose jobs it looks after, besides root's   (video)
# COMMAND   perseus-ds, as an absolute path                   (the one in PATH)
set -euo pipefail

group="${GROUP:-video}"
command="${COMMAND:-$(command -v perseus-ds || true)}"

unit() {
  cat <<UNIT
[Unit]
Description=Reset of GPU clocks that a killed job has left locked
After=nvidia-persistenced.service

[Service]
ExecStart=$command clock-service --group $group
Restart=always
RuntimeDirectory=perseus-ds
RuntimeDirectoryMode=0711
RuntimeDirectoryPreserve=yes
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_CHOWN CAP_FOWNER CAP_DAC_OVERRIDE
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=true

[Install]
WantedBy=multi-user.target
UNIT
}

if [[ -z "$(getent group "$group" || true)" ]]; then
  echo "clock_service_setup.sh: no group '$group'; set GROUP" >&2
  exit 2
fi
if [[ "$command" != /* ]]; then
  echo "clock_service_setup.sh: no perseus-ds; set COMMAND to its absolute path" >&2
  exit 2
fi
if [[ "${1:-}" == --print ]]; then
  unit
  exit 0
fi
if [[ "$(id -u)" -ne 0 ]]; then
  echo "clock_service_setup.sh: run it as root" >&2
  exit 2
fi
unit >/etc/systemd/system/perseus-clock-service.service
systemctl daemon-reload
systemctl enable --now perseus-clock-service
echo "clocks of killed jobs of root and of '$group' are reset. Check with: perseus-ds doctor"
