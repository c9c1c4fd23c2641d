#!/usr/bin/env bash
# Once per host, as root: install zeusd, so that jobs of ordinary users can set clocks. Needs cargo and systemd.
#
#   sudo launch_scripts/zeusd_setup.sh            install and start
#   launch_scripts/zeusd_setup.sh --print         print the systemd unit, install nothing
#
# GROUP     group with access to zeusd   (video)
# VERSION   version of zeusd             (0.5.0)
set -euo pipefail

group="${GROUP:-video}"
version="${VERSION:-0.5.0}"
socket=/run/zeusd/zeusd.sock

unit() {
  cat <<UNIT
[Unit]
Description=zeusd: GPU clocks for processes without privileges
After=network.target

[Service]
ExecStart=/usr/local/bin/zeusd serve --socket-path $socket --socket-permissions 660 --socket-gid $1 --enable gpu-read,gpu-control
Restart=on-failure
RuntimeDirectory=zeusd
RuntimeDirectoryMode=0755
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_CHOWN
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
UNIT
}

gid="$(getent group "$group" | cut -d: -f3 || true)"
if [[ -z "$gid" ]]; then
  echo "zeusd_setup.sh: no group '$group'; set GROUP" >&2
  exit 2
fi
if [[ "${1:-}" == --print ]]; then
  unit "$gid"
  exit 0
fi
if [[ "$(id -u)" -ne 0 ]]; then
  echo "zeusd_setup.sh: run it as root" >&2
  exit 2
fi
cargo install --locked --root /usr/local --version "$version" zeusd
unit "$gid" >/etc/systemd/system/zeusd.service
systemctl daemon-reload
systemctl enable --now zeusd
echo "zeusd listens at $socket; members of '$group' can set clocks. Check with: perseus-ds doctor"
