#!/bin/sh
# Make the root file system of a bare, bootable node and hand it to the container engine, once.
#
# Usage: molecule/shared/rootfs.sh RELEASE [--force | --tar FILE]
#
# RELEASE is bookworm, trixie, jammy or noble. Exits 0 with the name of the image on stdout, 75 when the archive of
# that release does not answer here, which is a reason to skip and never to fail. With --tar the tree goes to that
# file instead, for machines where no engine answers and systemd-nspawn boots it.
#
# What it holds is what a cloud's own image holds before anyone worked on it: systemd, sshd, Python, apt's sources with
# main alone (main and universe on Ubuntu) and no trace of NVIDIA.
set -eu

release=$1
image="provision-test/node:$release"
tar=
[ "${2:-}" != --tar ] || tar=$3
[ -n "${2:-}" ] || { docker image inspect "$image" >/dev/null 2>&1 && { echo "$image"; exit 0; }; }

say() { printf 'rootfs: %s\n' "$*" >&2; }

# The mirror this machine already uses for its own packages serves Debian; Ubuntu's is the default of its clients.
debian_mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null |
        sed -n -e 's/^URIs: *\([^ ]*\)\/\{0,1\}$/\1/p' -e 's/^deb \(\[[^]]*\] \)\?\([^ ]*[^/ ]\)\/\{0,1\} .*/\2/p' |
        grep -v security | head -n 1
}

case $release in
bookworm | trixie)
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(debian_mirror)
    security=${mirror%/debian}/debian-security
    sources="deb [signed-by=$keyring] $mirror $release main
deb [signed-by=$keyring] $mirror $release-updates main
deb [signed-by=$keyring] $security $release-security main"
    ;;
jammy | noble)
    keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    family=ubuntu
    mirror=${PROVISION_UBUNTU_MIRROR:-http://archive.$family.com/$family}
    [ -e "$keyring" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -q ubuntu-archive-keyring >/dev/null 2>&1 ||
        { say "no keyring of Ubuntu's archive can be had here"; exit 75; }
    curl -sfI -m 15 "$mirror/dists/$release/InRelease" >/dev/null || { say "Ubuntu's archive does not answer"; exit 75; }
    sources="deb [signed-by=$keyring] $mirror $release main universe
deb [signed-by=$keyring] $mirror $release-updates main universe
deb [signed-by=$keyring] $mirror $release-security main universe"
    ;;
*)
    say "unknown release $release"
    exit 2
    ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '%s\n' "$sources" >"$folder/sources.list"
# Ubuntu's minbase has no apt of its own.
include=apt,systemd,systemd-sysv,dbus,udev,kmod,python3,python3-apt,openssh-server,ca-certificates,sudo,iproute2,procps
include=$include,unattended-upgrades,xz-utils
command -v mmdebstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -q mmdebstrap >/dev/null
say "making $image"
# shellcheck disable=SC2016 # hooks expand their own variables
mmdebstrap --quiet --variant=minbase --include="$include" \
    --aptopt='Acquire::Retries "3"' \
    --customize-hook='rm -f "$1"/etc/ssh/ssh_host_*' \
    --customize-hook='echo node >"$1"/etc/hostname; : >"$1"/etc/machine-id' \
    --customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/0*' \
    --customize-hook="cp $folder/sources.list \"\$1\"/etc/apt/sources.list" \
    --customize-hook='for unit in systemd-udev-trigger systemd-udevd systemd-resolved systemd-networkd-wait-online; do
        ln -sf /dev/null "$1/etc/systemd/system/$unit.service"; done' \
    --customize-hook='mkdir -p "$1"/etc/systemd/system/ssh.service.d;
        printf "[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\nExecStartPre=/usr/sbin/sshd -t\n" >"$1"/etc/systemd/system/ssh.service.d/keys.conf;
        systemctl --root "$1" enable ssh >/dev/null 2>&1 || true' \
    --customize-hook='rm -f "$1"/usr/sbin/policy-rc.d' \
    "$release" "$folder/root.tar" "$folder/sources.list" >&2
if [ -n "$tar" ]; then
    mv "$folder/root.tar" "$tar"
    exit 0
fi
docker import --change 'CMD ["/lib/systemd/systemd"]' --change 'STOPSIGNAL SIGRTMIN+3' --change 'ENV container=docker' \
    "$folder/root.tar" "$image" >/dev/null
echo "$image"
