#!/bin/sh
# Check a GPU node once, on the first boot of its image: by `provision verify` where the image has it, else by nvidia-smi.
# The verdict is in /var/lib/provision/first-boot.json (.log) and in the state of gpu-first-boot.service.
set -u
state=${PROVISION_STATE:-/var/lib/provision}
devices=${PROVISION_PCI:-/sys/bus/pci/devices}
mkdir -p "$state"

has_gpu() {
    for device in "$devices"/*; do
        [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
        case $(cat "$device/class" 2>/dev/null) in 0x03*) return 0 ;; esac
    done
    return 1
}

finish() {
    echo "$2" | tee "$state/first-boot.log"
    # A check that failed is made again on the next boot.
    [ "$1" -eq 0 ] && : >"$state/first-boot.done"
    exit "$1"
}

has_gpu || {
    echo "no NVIDIA GPU on the PCI bus: nothing to check" | tee "$state/first-boot.log"
    exit 0
}

program=/opt/provision/bin/provision
[ -x "$program" ] || program=$(command -v provision) || program=
if [ -n "$program" ]; then
    "$program" verify local --level standard --json --output "$state/first-boot.json"
    status=$?
    finish "$status" "provision verify ended with $status: $state/first-boot.json"
fi
seen=$(nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader 2>&1)
status=$?
finish "$status" "$seen"
