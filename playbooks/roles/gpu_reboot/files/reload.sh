#!/bin/sh
# Load the NVIDIA driver again without a restart, or say who is in the way and change nothing.
#
# Usage: reload.sh SERVICE... (those that hold the driver open for nobody in particular)
#
# Exits 0 when the installed driver is loaded, 3 when the node has to be restarted instead.
set -eu

modules='nvidia_uvm nvidia_drm nvidia_modeset nvidia_peermem nvidia'
root=${RELOAD_ROOT:-}
stopped=

say() { printf '%s\n' "$*"; }

back() { # start again what was stopped
    for service in $stopped; do
        systemctl start "$service" >/dev/null 2>&1 || say "could not start $service again"
    done
}

refuse() {
    say "$*"
    back
    exit 3
}

for service in "$@"; do
    if systemctl is-active --quiet "$service" 2>/dev/null; then
        systemctl stop "$service" || refuse "cannot stop $service"
        stopped="$service $stopped"
    fi
done

holders=$(
    for link in "$root"/proc/[0-9]*/fd/*; do
        case $(readlink "$link" 2>/dev/null || :) in
        /dev/nvidia*)
            pid=${link#"$root"/proc/}
            printf '%s\n' "${pid%%/*}"
            ;;
        esac
    done | sort -un | tr '\n' ' '
)
[ -z "$holders" ] || refuse "processes hold a GPU: $holders"

for module in nouveau $modules; do
    [ -d "$root/sys/module/$module" ] || continue
    count=$(cat "$root/sys/module/$module/refcnt" 2>/dev/null || echo 0)
    # Modules of the driver hold one another; those outside it must not hold any.
    for holder in "$root/sys/module/$module/holders"/*; do
        [ -e "$holder" ] || continue
        case " $modules " in
        *" ${holder##*/} "*) count=$((count - 1)) ;;
        *) refuse "module ${holder##*/} uses $module" ;;
        esac
    done
    [ "$count" -le 0 ] || refuse "module $module is in use ($count)"
done

for module in nouveau $modules; do
    [ -d "$root/sys/module/$module" ] || continue
    rmmod "$module" || refuse "module $module cannot be unloaded"
done
depmod -a || :
if ! modprobe --dry-run nvidia 2>/dev/null; then
    back
    say "unloaded, and no driver is installed to load"
    exit 0
fi
modprobe nvidia || refuse "the installed module cannot be loaded: $(dmesg 2>/dev/null | tail -n 3 | tr '\n' ' ')"
[ -d "$root/sys/module/nvidia" ] || refuse "the installed module is not there after modprobe"
modprobe nvidia-uvm 2>/dev/null || :
back
# Those that are to run with the system could not while no module was loaded.
for service in "$@"; do
    ! systemctl is-enabled --quiet "$service" 2>/dev/null || systemctl start "$service" >/dev/null 2>&1 || say "cannot start $service"
done
say "loaded $(cat "$root/sys/module/nvidia/version" 2>/dev/null || echo the driver)"
