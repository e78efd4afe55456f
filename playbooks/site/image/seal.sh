#!/bin/sh
# Seal a GPU node as a machine image: install the check of the first boot, and take away what belongs to one machine.
# Run as root on the machine that becomes the image, last of all; first-boot.sh lies beside this file.
#
#   --check                changes nothing, and fails where sealing would
#   PROVISION_REQUIREMENT  this program as pip takes it, as in gpu-provision==0.1.0; put into /opt/provision
#   PROVISION_KEEP_KEYS    not empty: the keys that may log in now stay; else they are deleted, and cloud-init or the
#                          agent of the cloud puts others there
set -eu

refuse() {
    echo "seal.sh: $1" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || refuse "run as root"
here=$(dirname "$0")
[ -f "$here/first-boot.sh" ] || refuse "first-boot.sh is not beside it"

python=
if [ -n "${PROVISION_REQUIREMENT:-}" ]; then
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$name
            break
        fi
    done
    [ -n "$python" ] ||
        refuse "no Python 3.11 or newer with venv is here: install one into the base image, or leave the requirement empty"
fi
[ "${1:-}" != --check ] || exit 0

if [ -n "$python" ]; then
    "$python" -m venv /opt/provision
    /opt/provision/bin/python -m pip install --quiet --no-cache-dir "$PROVISION_REQUIREMENT"
    /opt/provision/bin/provision --version
fi

install -D -m 0755 "$here/first-boot.sh" /usr/local/lib/provision/first-boot
cat >/etc/systemd/system/gpu-first-boot.service <<'UNIT'
[Unit]
Description=Check this GPU node on its first boot
ConditionPathExists=!/var/lib/provision/first-boot.done
After=nvidia-persistenced.service nvidia-fabricmanager.service cloud-init.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/provision/first-boot

[Install]
WantedBy=multi-user.target
UNIT
# Debian's ssh does not start without host keys, and makes none by itself.
cat >/etc/systemd/system/gpu-host-keys.service <<'UNIT'
[Unit]
Description=Make the host keys of ssh that the image came without
ConditionFileNotEmpty=!/etc/ssh/ssh_host_ed25519_key
Before=ssh.service sshd.service
After=cloud-init.service

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=multi-user.target
UNIT
systemctl --quiet enable gpu-first-boot.service gpu-host-keys.service

# The account that Azure made for the build, and what its agent wrote.
if command -v waagent >/dev/null; then waagent -force -deprovision+user; fi
if command -v cloud-init >/dev/null; then cloud-init clean --logs; fi

if [ -z "${PROVISION_KEEP_KEYS:-}" ]; then rm -f /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys; fi
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
rm -f /var/lib/systemd/random-seed /var/lib/systemd/credential.secret
rm -f /var/lib/dhcp/*.leases /var/lib/NetworkManager/*.lease /etc/udev/rules.d/70-persistent-net.rules
rm -f /var/lib/provision/first-boot.*
rm -rf /root/.ansible /root/.cache /root/.bash_history /home/*/.ansible /home/*/.bash_history
if command -v apt-get >/dev/null; then
    apt-get clean
    rm -rf /var/lib/apt/lists/*
fi
if command -v dnf >/dev/null; then dnf --quiet clean all; fi
rm -rf /var/log/journal/*
find /var/log -type f -exec truncate -s 0 {} +
# An empty file, not a missing one: systemd makes another identity, and does not ask the console for settings.
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id
ln -s /etc/machine-id /var/lib/dbus/machine-id 2>/dev/null || true
sync
echo "sealed: the next boot is the first one"
