#!/bin/sh
# Compare the host's driver with what this image needs, then run the command. No process is started before it.
# The kernel drops the signals that a first process has no handler for, and gives it every orphan: dumb-init takes that
# place and sends signals on. At a terminal it gives the command a process group of its own, as a shell does, so that a
# key that interrupts does so once; without one, the command alone gets the signal, and decides about its children.
# NVIDIA_REQUIRE_DRIVER alone is not enough: the container toolkit ignores it in CDI mode.

provision_is_older() {
    # Is version $1 below version $2, part by part? Runs in this shell: IFS and the arguments are its own.
    have=$1 want=$2
    while [ -n "$want" ]; do
        have_part=${have%%.*} want_part=${want%%.*}
        if [ "${have_part:-0}" -lt "$want_part" ]; then return 0; fi
        if [ "${have_part:-0}" -gt "$want_part" ]; then return 1; fi
        case $have in *.*) have=${have#*.} ;; *) have='' ;; esac
        case $want in *.*) want=${want#*.} ;; *) want='' ;; esac
    done
    return 1
}

if [ "${PROVISION_SKIP_CHECK:-0}" != 1 ] && [ -n "${PROVISION_DRIVER_MIN:-}" ]; then
    file=${PROVISION_DRIVER_FILE:-/proc/driver/nvidia/version}
    found=''
    if [ -r "$file" ]; then
        read -r line < "$file"
        for word in $line; do
            case $word in
                *[!0-9.]* | .* | *. | *..*) ;;
                [0-9]*.[0-9]*) found=$word && break ;;
            esac
        done
        if [ -z "$found" ]; then
            echo "provision: cannot read the driver's version from $file; not checked against $PROVISION_DRIVER_MIN" >&2
        elif provision_is_older "$found" "$PROVISION_DRIVER_MIN"; then
            echo "provision: the host's NVIDIA driver is $found, this image needs $PROVISION_DRIVER_MIN or newer:" \
                "update the host's driver, or choose an older CUDA with 'provision image --driver $found'" \
                "(PROVISION_SKIP_CHECK=1 starts anyway)" >&2
            exit 78
        fi
    elif [ -e /dev/nvidiactl ]; then
        # A sandbox passes the GPU on and hides the kernel's files.
        echo "provision: $file is not there; the driver is not checked against $PROVISION_DRIVER_MIN" >&2
    else
        echo "provision: no NVIDIA driver is visible (started without --gpus all?); going on without a GPU" >&2
    fi
fi

# What is not there to be run ends as it does without an init.
if [ "$$" = 1 ] && command -v dumb-init > /dev/null && command -v "${1:-}" > /dev/null; then
    if [ -t 0 ]; then exec dumb-init -- "$@"; fi
    exec dumb-init --single-child -- "$@"
fi
exec "$@"
