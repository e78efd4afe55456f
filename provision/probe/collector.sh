#!/bin/sh
# Look at the machine this runs on and print what was seen, probe by probe, as one stream.
#
# usage: sh collector main FOLDER            run all probes that were asked for, print the stream
#        sh collector probe FOLDER NAME      run one probe; what it prints is its answer
#
# provision.probe.compose puts assignments in front of this text, and around it what makes FOLDER (private, removed at
# the end) and stores the text and the payloads there. It runs with dash, bash and busybox, without root, and needs
# nothing but a shell, coreutils, grep and sed, or busybox.
#
# Each probe runs in a process group of its own under a time limit. Its answer goes through a pipe that keeps no more
# than a fixed number of bytes. Nothing waits for a process: this script looks at marker files until all probes have
# ended or their time is over, so that a process that cannot be ended is reported and left alone. No background job
# holds the descriptors of the channel to the one who asks.
#
# The stream (version 1), read by provision.probe.stream:
#
#   @provision-collector NONCE 1 plain|gzip
#   @record NONCE PROBE STATUS CODE MILLISECONDS BYTES-OF-OUTPUT BYTES-OF-ERRORS      one for each probe,
#   the output, the errors, a line end                                                followed by its bytes
#   @end NONCE NUMBER-OF-RECORDS
#
# CODE is `-` where no program ended. What follows the first line is compressed as a whole where that line says gzip.
set -u
LC_ALL=C
export LC_ALL
umask 077

: "${COLLECT_NONCE:=none}"          # a word that no output can hold by chance
: "${COLLECT_PROBES:=uname:10:quick}" # NAME:SECONDS:quick|alone, in order
: "${COLLECT_TOTAL_SECONDS:=0}"     # all probes must have ended by then; 0 leaves it to their own limits
: "${COLLECT_BYTES:=262144}"        # kept of each output
: "${COLLECT_LOG_BYTES:=524288}"    # kept of the kernel log
: "${COLLECT_ERROR_BYTES:=16384}"   # kept of each probe's errors
: "${COLLECT_GZIP:=yes}"            # compress where gzip is at hand
: "${COLLECT_PYTHON:=}"             # interpreter of the frameworks; empty looks for one
: "${COLLECT_IMAGE:=}"              # image for the probes that start a container
: "${COLLECT_ENGINE:=docker}"       # docker or podman
: "${COLLECT_PEERS:=}"              # addresses of other hosts
: "${COLLECT_PORTS:=}"              # ports to try there
: "${COLLECT_EXPORTER_PORT:=}"      # of dcgm-exporter
: "${COLLECT_TEXTFILES:=}"          # node_exporter's folder; empty tries the usual ones
: "${COLLECT_DISRUPTIVE:=no}"       # whether probes may run that disturb other containers
: "${COLLECT_DCGMI:=dcgmi}"
: "${COLLECT_NVBANDWIDTH:=}"         # program, or folder with it or its sources; empty looks for it
: "${COLLECT_ALL_REDUCE:=}"          # likewise, of nccl-tests
: "${COLLECT_RANK:=}"               # of this host in nccl-pair, which runs only where it is set
: "${COLLECT_WORLD:=2}"
: "${COLLECT_MASTER:=}"
: "${COLLECT_MASTER_PORT:=}"
: "${COLLECT_BACKEND:=nccl}"

MODE=${1:-main}
DIR=${2:-.}
NAME=${3:-}

# ---------------------------------------------------------------------------------------------- what probes share

# end STATUS [REASON...]: leave the probe with a status other than ok or failed.
end() {
    echo "$1" >"$DIR/$NAME.status"
    shift
    [ $# -eq 0 ] || echo "$*" >&2
    exit 1
}

absent() { end absent "$@"; }

has() { command -v "$1" >/dev/null 2>&1; }

need() { has "$1" || absent "$1 is not on the target"; }

# print_file FILE...: print the first of these files that is there.
print_file() {
    for file in "$@"; do
        parent=${file%/*}
        if [ -r "$file" ]; then
            cat "$file"
            exit
        elif [ -e "$file" ]; then
            end denied "$file may not be read"
        elif [ -n "$parent" ] && [ -d "$parent" ] && [ ! -x "$parent" ]; then
            end denied "$parent may not be entered"
        fi
    done
    absent "$1 is not there"
}

# line_of FILE: set LINE to the first line of a small file, empty where it cannot be read.
line_of() {
    LINE=
    { IFS= read -r LINE <"$1"; } 2>/dev/null || [ -n "$LINE" ]
}

# now: set NOW to hundredths of a second of a clock that nobody sets.
now() {
    if { read -r uptime _ </proc/uptime; } 2>/dev/null; then
        NOW=$((${uptime%.*} * 100 + 1${uptime#*.} - 100))
    else
        NOW=$(($(date +%s) * 100))
    fi
}

is_container() {
    [ -e /.dockerenv ] || [ -e /run/.containerenv ] || [ -e /run/systemd/container ] ||
        [ -n "${KUBERNETES_SERVICE_HOST:-}" ] || grep -qs '^container=\|.container=' /proc/1/environ
}

has_systemd() { [ -d /run/systemd/system ]; }

# python_path: print the interpreter of the frameworks.
python_path() {
    case $COLLECT_PYTHON in
    '') ;;
    /*) echo "$COLLECT_PYTHON" && return ;;
    */*) echo "$PWD/$COLLECT_PYTHON" && return ;;
    *) command -v "$COLLECT_PYTHON" && return ;;
    esac
    [ -z "$COLLECT_PYTHON" ] || return 1
    for candidate in "${VIRTUAL_ENV:-}/bin/python" "${CONDA_PREFIX:-}/bin/python"; do
        case $candidate in /bin/python) continue ;; esac
        [ -x "$candidate" ] && echo "$candidate" && return
    done
    command -v python3 || command -v python && return
    for candidate in /opt/venv/bin/python /opt/conda/bin/python /usr/local/bin/python3 /usr/libexec/platform-python; do
        [ -x "$candidate" ] && echo "$candidate" && return
    done
    return 1
}

# payload FILE [ARGUMENT...]: run one of the scripts that came along, leaving nothing outside FOLDER.
payload() {
    interpreter=$(python_path) || absent "no Python is on the target"
    [ -x "$interpreter" ] || absent "$interpreter is not on the target"
    script=$DIR/payload-$1.py
    shift
    CUDA_CACHE_PATH=$DIR/cuda-cache
    TMPDIR=$DIR
    export CUDA_CACHE_PATH TMPDIR
    cd "$DIR" || exit 1
    exec "$interpreter" -B "$script" "$@"
}

# after NAME...: wait until these probes have ended, so that this one cannot be seen by them.
after() {
    for other in "$@"; do
        case " $COLLECT_PROBES " in
        *" $other:"*) while [ ! -e "$DIR/$other.done" ]; do sleep 0.1 2>/dev/null || sleep 1; done ;;
        esac
    done
}

# ------------------------------------------------------------------------------------------- the operating system

probe_os_release() { print_file /etc/os-release /usr/lib/os-release; }

probe_uname() { uname -srm; }

probe_command_line() { print_file /proc/cmdline; }

# kind=…, container=yes|no, vendor=…, product=…; what nothing tells is left out.
probe_virtualization() {
    kind=
    container=no
    ! has systemd-detect-virt || kind=$(systemd-detect-virt 2>/dev/null)
    ! grep -qsi microsoft /proc/version || kind=wsl
    if [ -z "$kind" ]; then
        if [ -e /.dockerenv ]; then
            kind=docker
        elif [ -e /run/.containerenv ]; then
            kind=podman
        elif is_container; then
            kind="container-other"
        elif grep -qs '^flags.* hypervisor' /proc/cpuinfo; then
            kind=vm-other
        elif grep -qs '^flags' /proc/cpuinfo; then
            kind=none
        fi
    fi
    case $kind in
    docker | podman | lxc | lxc-libvirt | systemd-nspawn | openvz | rkt | proot | pouch | container-other) container=yes ;;
    wsl) ;;
    *) ! is_container || container=yes ;;
    esac
    [ -z "$kind" ] || echo "kind=$kind"
    echo "container=$container"
    ! line_of /sys/class/dmi/id/sys_vendor || echo "vendor=$LINE"
    ! line_of /sys/class/dmi/id/product_name || echo "product=$LINE"
}

# Releases, lowest first.
probe_kernels() {
    for image in /boot/vmlinuz-* /boot/vmlinux-* /lib/modules/*/vmlinuz; do
        [ -e "$image" ] || continue
        case $image in
        *-rescue-* | *.old) ;;
        /lib/modules/*) release=${image#/lib/modules/} && echo "${release%/vmlinuz}" ;;
        *) echo "${image#/boot/vmlinu?-}" ;;
        esac
    done | sort -u -V >"$DIR/kernels.list"
    [ -s "$DIR/kernels.list" ] || absent "no kernel lies below /boot or /lib/modules"
    cat "$DIR/kernels.list"
}

probe_secure_boot() {
    if has mokutil; then
        mokutil --sb-state >"$DIR/secure-boot.said" 2>&1
        code=$?
        cat "$DIR/secure-boot.said"
        [ ! -s "$DIR/secure-boot.said" ] || exit 0
        exit "$code"
    fi
    if [ -d /sys/firmware/efi ]; then
        for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
            [ -e "$variable" ] || end denied "the firmware's variables cannot be seen"
            [ -r "$variable" ] || end denied "$variable may not be read"
            value=$(od -An -t u1 -j 4 -N 1 "$variable") || exit 1
            # shellcheck disable=SC2086 # a number among blanks
            echo efi-variable $value
            exit 0
        done
    fi
    # An engine hides the firmware from its containers behind an empty folder.
    [ -n "$(ls /sys/firmware 2>/dev/null)" ] || end denied "/sys/firmware is hidden"
    echo no-efi
}

# `no`, or `yes` and the packages that ask for it.
probe_reboot_required() {
    if [ -e /run/reboot-required ] || [ -e /var/run/reboot-required ]; then
        echo yes
        ! [ -r /run/reboot-required.pkgs ] || sort -u /run/reboot-required.pkgs
    elif has needs-restarting; then
        needs-restarting -r >"$DIR/reboot.said" 2>"$DIR/reboot.error"
        code=$?
        case $code in
        0) echo no ;;
        1)
            echo yes
            sed -n 's/^  *\*  *//p' "$DIR/reboot.said"
            ;;
        *)
            cat "$DIR/reboot.error" >&2
            exit "$code"
            ;;
        esac
    elif [ -s /var/lib/dpkg/status ]; then
        echo no
    else
        absent "this system leaves no mark where a reboot is needed"
    fi
}

# memlock_kib, nofile, shm_kib; of this session, which is what a program started in it would have.
probe_limits() {
    [ -r /proc/self/limits ] || absent "/proc/self/limits is not there"
    while IFS= read -r line; do
        case $line in
        'Max locked memory'*) limit memlock_kib 1024 "${line#Max locked memory}" ;;
        'Max open files'*) limit nofile 1 "${line#Max open files}" ;;
        esac
    done </proc/self/limits
    if [ -d /dev/shm ] && has df; then
        df -kP /dev/shm 2>/dev/null | while read -r _ size _; do
            case $size in *[!0-9]*) ;; *) echo "shm_kib $size" ;; esac
        done
    fi
}

# limit NAME UNIT VALUES: print the first value, in units.
limit() {
    limit_name=$1
    limit_unit=$2
    # shellcheck disable=SC2086 # split on purpose
    set -- $3
    case $1 in
    *[!0-9]*) echo "$limit_name $1" ;;
    *) echo "$limit_name $(($1 / limit_unit))" ;;
    esac
}

# Local ones only: asking a network file system whose server is gone would take for ever.
probe_file_systems() {
    need df
    df -kPl >"$DIR/df.said" 2>"$DIR/df.error" || df -kP >"$DIR/df.more" 2>>"$DIR/df.error"
    code=$?
    [ -s "$DIR/df.said" ] || cat "$DIR/df.more" >"$DIR/df.said" 2>/dev/null
    cat "$DIR/df.said"
    # A mount that may not be looked at is no reason to lose the others.
    ! grep -q '^/\|[0-9]%' "$DIR/df.said" || exit 0
    cat "$DIR/df.error" >&2
    exit "$code"
}

# NAME=value, of a fixed set of names, none of which can be a secret's.
probe_environment() {
    {
        echo "PATH=$(cat "$DIR/path")"
        env | grep -E "^($ENVIRONMENT)="
    } | grep -Ev '^[A-Za-z0-9_]*(TOKEN|SECRET|PASSW|KEY|CREDENTIAL)[A-Za-z0-9_]*='
    exit 0
}
ENVIRONMENT='(CUDA|NVIDIA|NCCL|TORCH|PYTORCH|TF|XLA|JAX|UCX|GLOO|SLURM_JOB|SLURM_GPUS)_[A-Za-z0-9_]*'
ENVIRONMENT="$ENVIRONMENT|SLURM_GPUS|SLURM_STEP_GPUS|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX"
ENVIRONMENT="$ENVIRONMENT|OMP_NUM_THREADS"

# key=value of timedatectl and chrony, and epoch=.
probe_clock() {
    ! { has timedatectl && has_systemd; } || timedatectl show 2>/dev/null | grep -E '^(NTP|NTPSynchronized)='
    if has chronyc; then
        chronyc -n tracking 2>/dev/null | while IFS= read -r line; do
            value=${line#*: }
            case $line in
            'Leap status'*) echo "chrony_leap=$value" ;;
            'System time'*slow*) echo "chrony_offset_seconds=-${value%% *}" ;;
            'System time'*) echo "chrony_offset_seconds=${value%% *}" ;;
            esac
        done
    fi
    epoch=$(date +%s.%N)
    case $epoch in *[!0-9.]* | *.) epoch=$(date +%s) ;; esac
    echo "epoch=$epoch"
}

# ------------------------------------------------------------------------------------------------------ the driver

probe_modules() { print_file /proc/modules; }

# key=value: loaded_version, modinfo=found|none|absent, and where found disk_version, signer, license, path.
probe_module_nvidia() {
    if line_of /sys/module/nvidia/version; then
        echo "loaded_version=$LINE"
        seen=yes
    else
        seen=no
    fi
    if ! has modinfo || [ ! -d "/lib/modules/$(uname -r)" ]; then
        [ "$seen" = yes ] || absent "no nvidia module is loaded, and modules on disk cannot be looked up"
        echo modinfo=absent
        exit 0
    fi
    if ! modinfo nvidia >"$DIR/modinfo.said" 2>/dev/null; then
        echo modinfo=none
        exit 0
    fi
    echo modinfo=found
    signer=
    while IFS=' :' read -r key value; do
        case $key in
        version) echo "disk_version=$value" ;;
        license) echo "license=$value" ;;
        filename) echo "path=$value" ;;
        signer) signer=$value ;;
        esac
    done <"$DIR/modinfo.said"
    echo "signer=$signer"
}

probe_driver_version() { print_file /proc/driver/nvidia/version; }

probe_driver_params() { print_file /proc/driver/nvidia/params; }

# `== ADDRESS`, then the file.
probe_driver_gpus() {
    [ -d /proc/driver/nvidia/gpus ] || absent "/proc/driver/nvidia/gpus is not there"
    for gpu in /proc/driver/nvidia/gpus/*; do
        [ -d "$gpu" ] || continue
        echo "== ${gpu##*/}"
        cat "$gpu/information" || exit
    done
}

probe_driver_firmware() {
    [ -d /lib/firmware/nvidia ] || absent "/lib/firmware/nvidia is not there"
    for folder in /lib/firmware/nvidia/[0-9]*.[0-9]*; do
        [ ! -d "$folder" ] || echo "${folder##*/}"
    done
}

# Lines of `ls -lnd`: nodes, and the links in /dev/char that point to them.
probe_device_nodes() {
    set --
    for node in /dev/nvidia* /dev/nvidia-caps/* /dev/nvidia-caps-imex-channels/* /dev/nvidia-nvswitch* /dev/dxg; do
        case " $* " in *" $node "*) continue ;; esac
        [ ! -e "$node" ] || set -- "$@" "$node"
    done
    [ $# -eq 0 ] || ls -lnd "$@" || exit
    # shellcheck disable=SC2012 # numbers are the names there
    [ ! -d /dev/char ] || ls -ln /dev/char | sed -n 's# \([0-9]*:[0-9]*\) -> \(.*/nvidia.*\)$# /dev/char/\1 -> \2#p'
}

# `PID NAME`, the probes of this collector left out.
probe_device_users() {
    set -- /dev/nvidia*
    [ -e "$1" ] || exit 0
    # shellcheck disable=SC2012 # numbers again
    ls -l /proc/[0-9]*/fd 2>/dev/null |
        sed -n -e '/^\/proc\/[0-9]*\/fd:$/{s/[^0-9]//g;h;}' -e '/ -> \/dev\/nvidia/{g;p;}' | sort -un >"$DIR/users.list"
    while read -r pid; do
        { read -r status <"/proc/$pid/stat"; } 2>/dev/null || continue
        # shellcheck disable=SC2086 # state, parent, process group, session
        set -- ${status##*)}
        [ ! -e "$DIR/group.$3" ] && [ ! -e "$DIR/group.$4" ] || continue
        ! line_of "/proc/$pid/comm" || echo "$pid $LINE"
    done <"$DIR/users.list"
    [ "$(id -u)" -eq 0 ] || end denied "only root sees the open files of all processes"
}

# Lines of the kernel log that concern GPUs and what they hang on, and the line it begins with: a buffer that was
# overwritten since boot is told by it. The journal reaches further back where it is kept.
probe_kernel_log() {
    has dmesg || has journalctl || absent "neither dmesg nor journalctl is on the target"
    kept=
    if has dmesg && dmesg >"$DIR/kernel.said" 2>"$DIR/kernel.error"; then
        choose_lines <"$DIR/kernel.said" >"$DIR/kernel.lines"
        kept=$DIR/kernel.lines
    fi
    if { [ -z "$kept" ] || ! reaches_boot "$kept"; } && has journalctl && read_journal; then
        if [ -z "$kept" ] || reaches_boot "$DIR/journal.lines" ||
            [ "$(wc -l <"$DIR/journal.lines")" -gt "$(wc -l <"$kept")" ]; then
            kept=$DIR/journal.lines
        fi
    fi
    if [ -z "$kept" ]; then
        # A kernel that booted has said something: silence is what a user sees who may not read it.
        [ ! -s "$DIR/journal.lines" ] || end "cut" "journalctl did not end in time"
        end denied "$(head -n 1 "$DIR/kernel.error" 2>/dev/null | grep . || echo "the kernel log may not be read")"
    fi
    print_lines "$kept"
}

# choose_lines: print `NUMBER:LINE` for the first line and all that matter.
choose_lines() {
    ! IFS= read -r first || printf '0:%s\n' "$first"
    grep -n -E "$KERNEL_LINES|$KERNEL_FAULTS"
    return 0
}

# reaches_boot FILE: tell whether its first lines are those of a kernel that starts.
reaches_boot() { grep -q -E "^[0-9]{1,2}:.*($KERNEL_BOOT)" "$1"; }

# read_journal: fill journal.lines, or tell that the journal is silent or has too much to say.
read_journal() {
    set -- journalctl -k -b --no-pager -o short-iso
    # All that dmesg told is lost where the journal uses up the time of the probe.
    ! timeout 5 true 2>/dev/null || set -- timeout 6 "$@"
    {
        "$@" 2>/dev/null
        echo $? >"$DIR/journal.code"
    } | grep -v '^-- ' | choose_lines >"$DIR/journal.lines"
    { read -r code <"$DIR/journal.code"; } 2>/dev/null || code=1
    [ "$code" -lt 124 ] && [ -s "$DIR/journal.lines" ]
}

# print_lines FILE: as much of it as is kept. What tells of a fault goes before all the rest, and what is corrected by
# itself a thousand times a day comes last.
print_lines() {
    grep -E "^0:|^[0-9]{1,2}:.*($KERNEL_BOOT)|$KERNEL_FAULTS" "$1" >"$DIR/kernel.faults"
    grep -v -E "^0:|^[0-9]{1,2}:.*($KERNEL_BOOT)|$KERNEL_FAULTS" "$1" >"$DIR/kernel.others"
    if [ "$(wc -c <"$DIR/kernel.faults")" -gt $((COLLECT_LOG_BYTES * 3 / 4)) ]; then
        echo "$KERNEL_LEFT_OUT"
        head -c $((COLLECT_LOG_BYTES / 4)) "$DIR/kernel.faults" | sed '$d' >"$DIR/kernel.kept"
        tail -c $((COLLECT_LOG_BYTES / 2)) "$DIR/kernel.faults" | sed 1d >>"$DIR/kernel.kept"
    else
        cat "$DIR/kernel.faults" >"$DIR/kernel.kept"
    fi
    grep -v -E "$KERNEL_NOISE" "$DIR/kernel.others" | tail -n 5000 >"$DIR/kernel.general"
    grep -E "$KERNEL_NOISE" "$DIR/kernel.others" | tail -n 500 >"$DIR/kernel.noise"
    for class in general noise; do
        room=$((COLLECT_LOG_BYTES - $(wc -c <"$DIR/kernel.kept") - 100))
        if [ "$(wc -c <"$DIR/kernel.$class")" -le "$room" ]; then
            cat "$DIR/kernel.$class" >>"$DIR/kernel.kept"
        elif [ "$room" -gt 0 ]; then
            tail -c "$room" "$DIR/kernel.$class" | sed 1d >>"$DIR/kernel.kept"
        fi
    done
    sort -s -t : -k 1,1n "$DIR/kernel.kept" | sed 's/^[0-9]*://'
}
KERNEL_BOOT='Linux version [0-9]|Booting Linux on|\[ *0\.000000\]'
KERNEL_FAULTS='Xid|fallen off|lost from the bus|GPU_IS_LOST|[Uu]ncorrect|\((Non-)?Fatal\)|API mismatch|RmInitAdapter|rm_init_adapter|GSP'
KERNEL_FAULTS="$KERNEL_FAULTS|NVIDIA open|open kernel modules|[Kk]ey was rejected|unsigned module|module verification|invalid context"
KERNEL_FAULTS="$KERNEL_FAULTS|blocked for more than|[Dd]3cold|failed with error|NVIDIA probe routine|None of the NVIDIA"
KERNEL_FAULTS="$KERNEL_FAULTS|Link is Down|[Ll]ink down|lost carrier|Cable unplugged"
KERNEL_NOISE='[Cc]orrect(ed|able)|error status/mask|device \[[0-9a-f:]*\]|\[ ?[0-9]{1,2}\] (RxErr|BadTLP|BadDLLP|Rollover|Timeout|NonFatalErr)'
# Read by provision.probe.parse.kernel_log.
KERNEL_LEFT_OUT='-- lines that tell of faults are left out --'
KERNEL_LINES='NVRM|[Nn][Vv][Ii][Dd][Ii][Aa]|nvswitch|Xid|nouveau|fallen off|GPU|gpu|AER|pcieport|PCIe|BAR [0-9]|IOMMU|DMAR'
KERNEL_LINES="$KERNEL_LINES|mlx5|[Ii]nfini[Bb]and|peermem|peer_mem|segfault|libnccl|[Oo]ut of memory|oom[-_ ]|[Kk]illed process"
KERNEL_LINES="$KERNEL_LINES|soft lockup|hung task|blocked for more than|PM: suspend|[Dd]3cold|firmware|[Kk]ey was rejected"
KERNEL_LINES="$KERNEL_LINES|module verification|link is not ready|lost carrier|[Ll]ink ([Ii]s )?([Dd]own|DOWN|[Uu]p|UP)"

# ------------------------------------------------------------------------------------------------------- packages

PACKAGES='nvidia|cuda|cudnn|nccl|cublas|cufft|curand|cusolver|cusparse|nvjpeg|nvjitlink|nvinfer|tensorrt|nvlsm|nvlink'
PACKAGES="$PACKAGES|fabricmanager|imex|nscq|nvsdm|datacenter-gpu|dcgm|dkms|mlnx|ofed|doca|rdma|ibverbs|opensm|openmpi"
PACKAGES="$PACKAGES|docker|containerd|podman|cri-o|moby|mokutil|unattended-upgrades|dnf-automatic|node.exporter"
PACKAGES="$PACKAGES|initramfs|dracut|peermem|gdrcopy"
PACKAGE_STARTS='linux-(image|headers|modules|firmware|generic|aws|azure|gcp|oracle|kvm|nvidia)|kernel|runc|crun|shim'
PACKAGE_STARTS="$PACKAGE_STARTS|libc6|glibc|gcc|python3|systemd|ucx|chrony"

has_rpm() { has rpm && { [ -d /var/lib/rpm ] || [ -d /usr/lib/sysimage/rpm ]; }; }

# name, version, architecture, state by tabs.
probe_packages() {
    if has dpkg-query && [ -s /var/lib/dpkg/status ]; then
        # shellcheck disable=SC2016 # dpkg's own fields
        dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\t${db:Status-Status}\n' >"$DIR/packages.all" || exit
    elif has_rpm; then
        rpm -qa --qf '%{NAME}\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\t%{ARCH}\tinstalled\n' >"$DIR/packages.all" || exit
    else
        absent "neither dpkg-query nor rpm is on the target"
    fi
    [ -s "$DIR/packages.all" ] || exit 1
    tab=$(printf '\t')
    grep -E "^([^$tab]*($PACKAGES)|($PACKAGE_STARTS)([^a-z]|$))" "$DIR/packages.all" | grep -v "${tab}not-installed$"
    exit 0
}

# `held NAME`, `excluded PATTERN`, `unattended yes|no`.
probe_holds() {
    if has dpkg-query && [ -s /var/lib/dpkg/status ]; then
        # shellcheck disable=SC2016 # dpkg's own fields
        dpkg-query -W -f '${db:Status-Want} ${Package}\n' | sed -n 's/^hold /held /p'
        if has apt-config; then
            apt-config dump >"$DIR/apt.said" 2>/dev/null
            sed -n 's/^Unattended-Upgrade::Package-Blacklist:: "\(.*\)";$/excluded \1/p' "$DIR/apt.said"
            if ! has unattended-upgrade || ! grep -q '^APT::Periodic::Unattended-Upgrade "[1-9a]' "$DIR/apt.said"; then
                echo "unattended no"
            else
                echo "unattended yes"
            fi
        fi
    elif has_rpm; then
        for list in /etc/dnf/plugins/versionlock.list /etc/yum/pluginconf.d/versionlock.list; do
            [ ! -r "$list" ] || sed -n -e '/^ *#/d' -e '/^ *$/d' -e 's/^ */held /p' "$list"
        done
        for file in /etc/dnf/dnf.conf /etc/yum.conf; do
            [ ! -r "$file" ] || sed -n 's/^ *exclude\(pkgs\)\{0,1\} *= *//p' "$file" | tr -s ', ' '\n' |
                sed -n 's/^\(..*\)$/excluded \1/p'
        done | sort -u
        if has_systemd && has systemctl; then
            unattended=no
            for timer in dnf-automatic.timer dnf-automatic-install.timer dnf5-automatic.timer yum-cron.service; do
                ! systemctl -q is-enabled "$timer" 2>/dev/null || unattended=yes
            done
            echo "unattended $unattended"
        fi
    else
        absent "neither dpkg-query nor rpm is on the target"
    fi
}

probe_dkms() {
    need dkms
    exec dkms status
}

# Versions of nvidia modules in the image of the running kernel; nothing where it holds none.
probe_initramfs() {
    release=$(uname -r)
    for image in "/boot/initrd.img-$release" "/boot/initramfs-$release.img" "/boot/initrd-$release"; do
        [ ! -e "$image" ] || break
    done
    [ -e "$image" ] || absent "no initial RAM disk of $release is in /boot"
    [ -r "$image" ] || end denied "$image may not be read"
    if has lsinitramfs; then
        lsinitramfs "$image" >"$DIR/initramfs.list" || exit
    elif has lsinitrd; then
        lsinitrd "$image" >"$DIR/initramfs.list" || exit
    else
        absent "neither lsinitramfs nor lsinitrd is on the target"
    fi
    [ -s "$DIR/initramfs.list" ] || exit 1
    modules=$(sed -n 's#^.*[ /]\(\(usr/\)\{0,1\}lib/modules/[^ ]*/nvidia\.ko[.a-z0-9]*\)$#\1#p' "$DIR/initramfs.list")
    [ -n "$modules" ] || modules=$(sed -n 's#^\(\(usr/\)\{0,1\}lib/modules/[^ ]*/nvidia\.ko[.a-z0-9]*\)$#\1#p' "$DIR/initramfs.list")
    [ -n "$modules" ] || exit 0
    mkdir "$DIR/initramfs" || exit 1
    if has unmkinitramfs; then
        unmkinitramfs "$image" "$DIR/initramfs" 2>/dev/null
    else
        for module in $modules; do
            lsinitrd -f "$module" "$image" >"$DIR/initramfs/${module##*/}" 2>/dev/null
        done
    fi
    find "$DIR/initramfs" -type f -name 'nvidia.ko*' | while IFS= read -r module; do
        version=$(modinfo -F version "$module" 2>/dev/null)
        echo "${version:-unknown}"
    done | sort -u >"$DIR/initramfs.versions"
    [ -s "$DIR/initramfs.versions" ] || echo unknown >"$DIR/initramfs.versions"
    rm -rf "$DIR/initramfs"
    cat "$DIR/initramfs.versions"
}

# ------------------------------------------------------------------------------------------------------- services

probe_units() {
    need systemctl
    has_systemd || absent "systemd does not run here"
    # shellcheck disable=SC2086 # names have no blanks
    exec systemctl show --no-pager \
        --property=Id,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts $UNITS
}
UNITS='nvidia-persistenced.service nvidia-fabricmanager.service nvidia-imex.service nvidia-dcgm.service dcgm.service'
UNITS="$UNITS dcgm-exporter.service nvidia-dcgm-exporter.service nvidia-powerd.service nvidia-mig-manager.service"
UNITS="$UNITS nvidia-cdi-refresh.service nvidia-cdi-refresh.path nvidia-suspend.service nvidia-resume.service"
UNITS="$UNITS nv_peer_mem.service openibd.service opensm.service docker.service containerd.service kubelet.service"
UNITS="$UNITS slurmd.service prometheus-node-exporter.service node_exporter.service chrony.service chronyd.service"
UNITS="$UNITS systemd-timesyncd.service ntpd.service unattended-upgrades.service apt-daily-upgrade.timer"
UNITS="$UNITS dnf-automatic.timer irqbalance.service"

# What the program says of its version, or `no-program`; then the end of its log.
probe_fabric_manager() {
    log=/var/log/fabricmanager.log
    has nv-fabricmanager || [ -e "$log" ] || absent "neither nv-fabricmanager nor its log is on the target"
    if has nv-fabricmanager; then
        nv-fabricmanager --version 2>&1 | head -n 1
    else
        echo no-program
    fi
    if [ -e "$log" ]; then
        [ -r "$log" ] || end denied "$log may not be read"
        tail -n 400 "$log"
    fi
}

# ---------------------------------------------------------------------------------------- libraries and frameworks

# soname, path, name of the file behind it, origin by tabs.
probe_libraries() {
    if has ldconfig && ldconfig -p >"$DIR/ldconfig.said" 2>/dev/null; then
        while read -r soname rest; do
            case $rest in
            '(libc6) =>'* | *'/i386-linux-gnu/'*) continue ;;
            *'=> '*) is_library "$soname" && library "$soname" "${rest##*=> }" ldconfig ;;
            esac
        done <"$DIR/ldconfig.said"
    else
        libraries_in ldconfig /usr/local/lib /lib64 /usr/lib64 /lib /usr/lib "/usr/lib/$(uname -m)-linux-gnu"
    fi
    IFS=:
    set -f
    # shellcheck disable=SC2086 # folders by colons
    set -- ${LD_LIBRARY_PATH:-}
    set +f
    unset IFS
    libraries_in LD_LIBRARY_PATH "$@"
    libraries_in compat /usr/local/cuda*/compat
    if interpreter=$(python_path) && [ -x "$interpreter" ]; then
        site=$("$interpreter" -I -B -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)
        [ -z "$site" ] || libraries_in python "$site"/nvidia/*/lib "$site/torch/lib"
    fi
    exit 0
}

is_library() {
    case $1 in
    libcuda.so* | libcudart*.so* | libcudnn*.so* | libnccl*.so* | libnvidia-ml.so* | libnvJitLink*.so* | \
        libnvidia-ptxjitcompiler.so* | libcublas*.so* | libnvidia-fabric* | libnvidia-nscq.so* | libnvrtc*.so* | \
        libcufft*.so* | libcusolver*.so* | libcusparse*.so* | libcurand*.so* | libnvinfer.so* | libcupti.so* | \
        libnvidia-nvvm.so* | libnvidia-gpucomp.so*) return 0 ;;
    esac
    return 1
}

# library SONAME PATH ORIGIN
library() {
    target=$(readlink -f "$2" 2>/dev/null)
    target=${target:-$2}
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "${target##*/}" "$3"
}

# libraries_in ORIGIN FOLDER...: names a loader would ask for, not the files behind them.
libraries_in() {
    origin=$1
    shift
    for folder in "$@"; do
        [ -n "$folder" ] && [ -d "$folder" ] || continue
        folder=${folder%/}
        for path in "$folder"/lib*.so "$folder"/lib*.so.[0-9] "$folder"/lib*.so.[0-9][0-9] "$folder"/lib*.so.[0-9][0-9].[0-9]; do
            [ -e "$path" ] || continue
            ! is_library "${path##*/}" || library "${path##*/}" "$path" "$origin"
        done
    done
}

probe_nvcc() {
    for compiler in nvcc /usr/local/cuda/bin/nvcc; do
        ! has "$compiler" || exec "$compiler" --version
    done
    absent "nvcc is not on the target"
}

probe_python() { payload environment; }

probe_torch() { payload framework torch; }

probe_tensorflow() { payload framework tensorflow; }

# JAX opens every GPU as soon as it counts them; whoever lists the users of the GPUs must be done by then.
probe_jax() {
    after nvidia-smi-xml device-users
    payload framework jax
}

# --------------------------------------------------------------------------------------------------------- devices

# One device a line, words key=value by single tabs; what sysfs does not tell is left out:
#   address=0000:18:00.0 class=030200 vendor=10de device=2330 revision=a1 driver=nvidia width=16 width_max=16
#   speed=32.0 GT/s PCIe speed_max=32.0 GT/s PCIe numa=0 power_state=D0 d3cold=1 is_vf=no
# Devices of NVIDIA (10de) and Mellanox (15b3), network cards (class 02) and bridges (class 06).
probe_pci() {
    [ -d /sys/bus/pci/devices ] || absent "/sys/bus/pci/devices is not there"
    tab=$(printf '\t')
    for device in /sys/bus/pci/devices/*; do
        [ -e "$device" ] || continue
        line_of "$device/vendor" || continue
        vendor=${LINE#0x}
        line_of "$device/class" || continue
        class=${LINE#0x}
        case $vendor:$class in 10de:* | 15b3:* | *:02???? | *:06????) ;; *) continue ;; esac
        text="address=${device##*/}${tab}class=$class${tab}vendor=$vendor"
        pci_word device device
        pci_word revision revision
        if driver=$(readlink "$device/driver" 2>/dev/null); then text="$text${tab}driver=${driver##*/}"; fi
        pci_word width current_link_width
        pci_word width_max max_link_width
        pci_word speed current_link_speed
        pci_word speed_max max_link_speed
        pci_word numa numa_node
        pci_word power_state power_state
        pci_word d3cold d3cold_allowed
        if [ -e "$device/physfn" ]; then text="$text${tab}is_vf=yes"; else text="$text${tab}is_vf=no"; fi
        # What it hangs on stands in the path of its folder, the nearest last.
        path=$(readlink -f "$device" 2>/dev/null)
        parents=
        path=${path%/*}
        while case ${path##*/} in *:??:??.?) ;; *) false ;; esac; do
            parents=${path##*/}${parents:+,$parents}
            path=${path%/*}
        done
        [ -z "$parents" ] || text="$text${tab}parents=$parents"
        printf '%s\n' "$text"
    done
}

# pci_word KEY FILE: add a word to the line where the file says something.
pci_word() { ! line_of "$device/$2" || [ -z "$LINE" ] || text="$text$tab$1=${LINE#0x}"; }

# Of bridges only what tells about their links and about access control.
probe_lspci() {
    need lspci
    lspci -Dvvnn >"$DIR/lspci.said" || exit
    [ -s "$DIR/lspci.said" ] || exit 0
    keep=no
    while IFS= read -r line; do
        case $line in
        [0-9a-f]*)
            case $line in
            *'[10de:'* | *'[15b3:'* | *' [02'[0-9a-f][0-9a-f]']: '*) keep=yes ;;
            *' [06'[0-9a-f][0-9a-f]']: '*) keep=bridge ;;
            *) keep=no ;;
            esac
            [ "$keep" = no ] || printf '\n%s\n' "$line"
            ;;
        *)
            case $keep:$line in
            no:* | yes:) ;;
            yes:*) printf '%s\n' "$line" ;;
            bridge:*Bus:* | bridge:*Lnk*:* | bridge:*ACS* | bridge:*'Access Control'* | bridge:*'Kernel driver'* | \
                bridge:*'NUMA node'* | bridge:*'access denied'*) printf '%s\n' "$line" ;;
            esac
            ;;
        esac
    done <"$DIR/lspci.said" | sed 1d
}

# `NAME KEY VALUE`, keys mtu, operstate, speed, kind, address.
probe_interfaces() {
    [ -d /sys/class/net ] || absent "/sys/class/net is not there"
    for interface in /sys/class/net/*; do
        [ -e "$interface/mtu" ] || continue
        name=${interface##*/}
        for key in mtu operstate speed; do
            ! line_of "$interface/$key" || [ -z "$LINE" ] || echo "$name $key $LINE"
        done
        line_of "$interface/type"
        if [ "$name" = lo ] || [ "$LINE" = 772 ]; then
            kind=loopback
        elif [ "$LINE" = 32 ]; then
            kind=infiniband
        elif [ -d "$interface/bridge" ]; then
            kind=bridge
        elif [ -d "$interface/bonding" ]; then
            kind=bond
        elif [ -e "/proc/net/vlan/$name" ]; then
            kind=vlan
        elif [ -e "$interface/tun_flags" ]; then
            kind=tun
        elif [ -d "$interface/wireless" ]; then
            kind=wireless
        elif [ -e "$interface/device" ]; then
            kind=physical
        else
            case $name in veth*) kind=veth ;; *) kind=virtual ;; esac
        fi
        echo "$name kind $kind"
    done
    # Without iproute the addresses stay unknown; the rest is worth having.
    ! has ip || ip -o addr show 2>/dev/null | while read -r _ name family address _; do
        case $family in inet | inet6) echo "${name%%@*} address $address" ;; esac
    done
}

# `== TOOL` and its own listing, for each tool; last `== local-ports` and the range.
probe_firewall() {
    found=no
    refused=
    firewall nft nft list ruleset
    firewall iptables iptables -S
    firewall ip6tables ip6tables -S
    firewall ufw ufw status verbose
    firewall firewalld firewall-cmd --list-all-zones
    [ "$found" = yes ] || echo "== none"
    echo "== local-ports"
    cat /proc/sys/net/ipv4/ip_local_port_range
    [ -z "$refused" ] || end denied "$refused"
    exit 0
}

# firewall HEADING COMMAND...
firewall() {
    heading=$1
    shift
    has "$1" || return 0
    found=yes
    if "$@" >"$DIR/firewall.said" 2>"$DIR/firewall.error"; then
        echo "== $heading"
        cat "$DIR/firewall.said"
    elif grep -qi 'not running' "$DIR/firewall.said" "$DIR/firewall.error"; then
        printf '== %s\nnot running\n' "$heading"
    else
        refused="$heading: $(head -n 1 "$DIR/firewall.error")"
    fi
}

# `DEVICE PORT KEY VALUE`, keys state, phys_state, rate, link_layer, link_downed, fw_ver, role. Nothing without RDMA.
# Newer GPU boards manage their NVSwitches through network adapters, which only their product data tells from others.
probe_infiniband() {
    for port in /sys/class/infiniband/*/ports/*; do
        [ -d "$port" ] || continue
        device=${port%/ports/*}
        words="${device##*/} ${port##*/}"
        for key in state phys_state rate link_layer; do
            ! line_of "$port/$key" || echo "$words $key $LINE"
        done
        ! line_of "$port/counters/link_downed" || echo "$words link_downed $LINE"
        ! line_of "$device/fw_ver" || echo "$words fw_ver $LINE"
        line_of "$port/link_layer" && [ "$LINE" = InfiniBand ] && [ -r "$device/device/vpd" ] || continue
        code=0
        grep -q SW_MNG "$device/device/vpd" 2>/dev/null || code=$?
        case $code in 0) echo "$words role switch-management" ;; 1) echo "$words role network" ;; esac
    done
}

# ------------------------------------------------------------------------------------------------------ nvidia-smi

# The supported clocks are four fifths of the document and nobody reads them; the exit code stays nvidia-smi's.
probe_nvidia_smi_xml() {
    need nvidia-smi
    {
        code=$(
            {
                {
                    nvidia-smi -q -x 3>&- 4>&-
                    echo $? >&3
                } | sed -e '/<supported_clocks>.*<\/supported_clocks>/d' \
                    -e '/<supported_clocks>/,/<\/supported_clocks>/d' >&4 3>&-
            } 3>&1
        )
    } 4>&1
    exit "${code:-1}"
}

probe_nvidia_smi_topology() { smi topo -m; }

probe_nvidia_smi_p2p() { smi topo -p2p r; }

probe_nvlink_status() { smi nvlink -s; }

probe_nvlink_errors() { smi nvlink -e; }

# The same once more after the GPUs have worked: what counts is whether the counters rise.
probe_nvlink_errors_later() { smi nvlink -e; }

smi() {
    need nvidia-smi
    exec nvidia-smi "$@"
}

# ------------------------------------------------------------------------------------------------------ containers

probe_docker_config() { print_file /etc/docker/daemon.json /var/snap/docker/current/config/daemon.json; }

probe_containerd_config() { print_file /etc/containerd/config.toml /var/lib/rancher/k3s/agent/etc/containerd/config.toml; }

probe_toolkit() {
    need nvidia-ctk
    exec nvidia-ctk --version
}

probe_toolkit_config() { print_file /etc/nvidia-container-runtime/config.toml; }

# `== PATH MTIME`, then the lines of the file that name kinds, devices and libraries.
probe_cdi() {
    for specification in /etc/cdi/*.yaml /etc/cdi/*.yml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json; do
        [ -e "$specification" ] || continue
        [ -r "$specification" ] || end denied "$specification may not be read"
        echo "== $specification $(stat -c %Y "$specification")"
        grep -E 'cdiVersion|kind|name|\.so\.' "$specification"
    done >"$DIR/cdi.said"
    [ ! -e "$DIR/$NAME.status" ] || exit 1
    [ -s "$DIR/cdi.said" ] || absent "no CDI specification is in /etc/cdi or /var/run/cdi"
    cat "$DIR/cdi.said"
}

probe_docker_info() {
    need docker
    # The parts that matter, where this release knows all of them; else the whole document.
    set --
    for field in $DOCKER_FIELDS; do
        set -- "$@" "\"$field\":{{json .$field}}"
    done
    docker info --format "{$(IFS=, && echo "$*")}" >"$DIR/$NAME.said" 2>"$DIR/$NAME.error"
    code=$?
    ! grep -q "can't evaluate field" "$DIR/$NAME.error" || exec docker info --format '{{json .}}'
    cat "$DIR/$NAME.said"
    cat "$DIR/$NAME.error" >&2
    exit "$code"
}
DOCKER_FIELDS='ServerVersion Runtimes DefaultRuntime CgroupDriver CgroupVersion DockerRootDir OperatingSystem'
DOCKER_FIELDS="$DOCKER_FIELDS SecurityOptions CDISpecDirs ServerErrors"

# require_image: leave unless the engine holds the image; pulling one is not this program's business.
require_image() {
    [ -n "$COLLECT_IMAGE" ] || end not-run "no container image was named"
    need "$COLLECT_ENGINE"
    "$COLLECT_ENGINE" image inspect "$COLLECT_IMAGE" >/dev/null 2>"$DIR/$NAME.said" && return
    ! grep -qi 'no such image\|not known\|not found' "$DIR/$NAME.said" ||
        absent "the image $COLLECT_IMAGE is not on the target"
    cat "$DIR/$NAME.said" >&2
    exit 1
}

# container COMMAND...: run COMMAND of the engine with the words that hand over all GPUs.
container() {
    verb=$1
    shift
    if [ "$COLLECT_ENGINE" = podman ]; then
        podman "$verb" --device nvidia.com/gpu=all --name "provision-$COLLECT_NONCE" --network none "$@"
    else
        "$COLLECT_ENGINE" "$verb" --gpus all --name "provision-$COLLECT_NONCE" --network none "$@"
    fi
}

remove_container() { "$COLLECT_ENGINE" rm -f "provision-$COLLECT_NONCE" >/dev/null 2>&1; }

probe_container_gpu() {
    require_image
    container run --rm --entrypoint nvidia-smi "$COLLECT_IMAGE" -L
}

# A container that runs through `systemctl daemon-reload` loses its GPUs where cgroups know nothing of them.
probe_daemon_reload() {
    [ "$COLLECT_DISRUPTIVE" = yes ] || end not-run "it disturbs other containers and was not allowed"
    require_image
    need systemctl
    has_systemd || absent "systemd does not run here"
    [ "$(id -u)" -eq 0 ] || end denied "only root may reload systemd"
    container run --detach --entrypoint sleep "$COLLECT_IMAGE" 120 >/dev/null || exit
    systemctl daemon-reload
    sleep 3
    "$COLLECT_ENGINE" exec "provision-$COLLECT_NONCE" nvidia-smi -L
    code=$?
    remove_container
    exit "$code"
}

# --------------------------------------------------------------------------------------------------------- network

# fetch ADDRESS: print a document of this host.
fetch() {
    if has curl; then
        curl -s -S -f -m 8 "$1"
    elif has wget; then
        wget -q -T 8 -O - "$1"
    elif interpreter=$(python_path); then
        "$interpreter" -I -B -c 'import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=8).read().decode("utf-8", "replace"))' "$1"
    else
        absent "neither curl nor wget nor Python is on the target"
    fi
}

probe_exporter() {
    [ -n "$COLLECT_EXPORTER_PORT" ] || end not-run "no port was named"
    no_proxy='*'
    export no_proxy
    fetch "http://127.0.0.1:$COLLECT_EXPORTER_PORT/metrics" >"$DIR/exporter.said" 2>"$DIR/exporter.error"
    code=$?
    [ ! -e "$DIR/$NAME.status" ] || exit 1
    if [ "$code" -ne 0 ]; then
        echo "port $COLLECT_EXPORTER_PORT: $(tail -n 1 "$DIR/exporter.error")" >&2
        exit "$code"
    fi
    grep '^DCGM_' "$DIR/exporter.said"
    exit 0
}

# Age in seconds.
probe_textfile() {
    for folder in ${COLLECT_TEXTFILES:+"$COLLECT_TEXTFILES"} /var/lib/prometheus/node-exporter \
        /var/lib/node_exporter/textfile_collector /var/lib/node_exporter; do
        if [ -e "$folder/provision.prom" ]; then
            changed=$(stat -c %Y "$folder/provision.prom") || exit 1
            echo $(($(date +%s) - changed))
            exit 0
        fi
        [ "$folder" != "$COLLECT_TEXTFILES" ] || break
    done
    absent "provision.prom is in no folder of node_exporter"
}

# `HOST PORT open|refused|silent`
probe_ports() {
    [ -n "$COLLECT_PEERS" ] && [ -n "$COLLECT_PORTS" ] || end not-run "no other host was named"
    interpreter=$(python_path) || has nc || has bash || absent "neither Python nor nc nor bash is on the target"
    # shellcheck disable=SC2086 # several words each
    for peer in $COLLECT_PEERS; do
        for port in $COLLECT_PORTS; do
            answer_of "$peer" "$port" &
        done
    done >"$DIR/ports.said"
    wait
    # The jobs were started inside a compound command: they are this shell's, and done now.
    sort "$DIR/ports.said"
}

answer_of() {
    if [ -n "$interpreter" ]; then
        "$interpreter" -I -B -c 'import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
try:
    socket.create_connection((host, port), 4).close()
    said = "open"
except ConnectionRefusedError:
    said = "refused"
except OSError:
    said = "silent"
print(host, port, said)' "$1" "$2"
        return
    fi
    if has bash; then
        # shellcheck disable=SC2016 # for bash
        said=$(timeout 4 bash -c ': >"/dev/tcp/$1/$2"' bash "$1" "$2" 2>&1)
    else
        said=$(nc -z -w 4 "$1" "$2" 2>&1)
    fi
    case $?:$said in
    0:*) echo "$1 $2 open" ;;
    *refused*) echo "$1 $2 refused" ;;
    *) echo "$1 $2 silent" ;;
    esac
}

# ----------------------------------------------------------------------------------------------------------- work

probe_cuda_work() { payload cuda_work; }

probe_torch_work() { payload torch_work; }

probe_torch_nccl() { payload torch_nccl local "$COLLECT_BACKEND"; }

probe_nccl_pair() {
    [ -n "$COLLECT_RANK" ] && [ -n "$COLLECT_MASTER" ] || end not-run "no other host was named"
    RANK=$COLLECT_RANK
    WORLD_SIZE=$COLLECT_WORLD
    MASTER_ADDR=$COLLECT_MASTER
    MASTER_PORT=$COLLECT_MASTER_PORT
    export RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
    payload torch_nccl pair "$COLLECT_BACKEND"
}

# DCGM ends with codes of its own while its document is whole: where there is one, the document is the answer.
diagnose() {
    need "$COLLECT_DCGMI"
    cd "$DIR" || exit 1
    "$COLLECT_DCGMI" diag -r "$1" -j >"$DIR/$NAME.said"
    code=$?
    cat "$DIR/$NAME.said"
    ! grep -q '"DCGM.*Diagnostic"' "$DIR/$NAME.said" || echo ok >"$DIR/$NAME.status"
    exit "$code"
}

probe_dcgmi_diag() { diagnose 1; }

probe_dcgmi_diag_2() { diagnose 2; }

probe_dcgmi_diag_3() { diagnose 3; }

# choose_program NAMED WORD PLACE...: set PROGRAM to what was named, or to WORD as the PATH or a usual place has it. Where
# a folder with sources was named, set SOURCES instead.
choose_program() {
    PROGRAM=
    SOURCES=
    named=$1
    word=$2
    shift 2
    case $named in
    '')
        PROGRAM=$(command -v "$word") && return
        for candidate in "${CONDA_PREFIX:-}/bin/$word" "$@"; do
            [ ! -f "$candidate" ] || [ ! -x "$candidate" ] || { PROGRAM=$candidate && return; }
        done
        absent "$word is neither on the PATH nor in a usual place"
        ;;
    */*) ;;
    *)
        PROGRAM=$(command -v "$named") || absent "$named is not on the target"
        return
        ;;
    esac
    case $named in /*) ;; *) named=$PWD/$named ;; esac
    if [ -d "$named" ]; then
        for candidate in "$named/$word" "$named/build/$word" "$named/bin/$word"; do
            [ ! -f "$candidate" ] || [ ! -x "$candidate" ] || { PROGRAM=$candidate && return; }
        done
        SOURCES=$named
    elif [ ! -e "$named" ]; then
        absent "$named is not on the target"
    elif [ ! -x "$named" ]; then
        end denied "$named may not be run"
    else
        PROGRAM=$named
    fi
}

# seconds_left BEGAN: set LEFT to what is left of this probe's time.
seconds_left() {
    LEFT=0
    for entry in $COLLECT_PROBES; do
        [ "${entry%%:*}" != "$NAME" ] || LEFT=${entry#*:}
    done
    now
    LEFT=$((${LEFT%%:*} - (NOW - $1) / 100))
}

# require_compilers WHAT TOOL...: set CUDA_NVCC, CUDA_FOLDER and COMPILER, or tell what is missing to build WHAT.
require_compilers() {
    what=$1
    shift
    missing=
    for tool in "$@"; do
        has "$tool" || missing="$missing $tool,"
    done
    CUDA_NVCC=
    for candidate in "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
        [ ! -x "$candidate" ] || [ -d "$candidate" ] || { CUDA_NVCC=$candidate && break; }
    done
    [ -n "$CUDA_NVCC" ] || missing="$missing nvcc,"
    COMPILER=
    for candidate in "${CXX:-}" g++ c++ clang++; do
        [ -z "$candidate" ] || ! has "$candidate" || { COMPILER=$candidate && break; }
    done
    [ -n "$COMPILER" ] || missing="$missing a C++ compiler,"
    [ -z "$missing" ] || absent "$what lies on the target as sources, and to build it these are missing:${missing%,}"
    # A launcher or a link stands for the one in the toolkit, beside which its headers lie.
    real=$(readlink -f "$CUDA_NVCC" 2>/dev/null) || real=$CUDA_NVCC
    CUDA_FOLDER=${real%/bin/nvcc}
    [ -d "$CUDA_FOLDER/include" ] || [ ! -d /usr/local/cuda/include ] || CUDA_FOLDER=/usr/local/cuda
    printf '#!/bin/sh\nexit 0\n' >"$DIR/runs" && chmod 700 "$DIR/runs"
    "$DIR/runs" 2>/dev/null || end denied "programs may not run below ${DIR%/*}: name another folder with TMPDIR"
    TMPDIR=$DIR
    export TMPDIR
}

# has_header NAME FOLDER...: whether the compiler finds it.
has_header() {
    header=$1
    shift
    for folder in "$@"; do
        shift
        set -- "$@" -I "$folder"
    done
    echo "#include <$header>" | "$COMPILER" -x c++ -E "$@" - >/dev/null 2>&1
}

# architectures: print what the compute capabilities of the GPUs are, as in 90, each once.
architectures() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\.\([0-9]\)$/\1\2/p' |
        sort -u
}

# build WHAT COMMAND...: run it, its output aside, or tell what was wrong. A build that does not end leaves no time to
# measure, so it is given up before the probe is.
build() {
    what=$1
    shift
    rm -f "$DIR/build.code"
    (
        "$@" >"$DIR/build.said" 2>&1
        echo $? >"$DIR/build.code"
    ) &
    seconds_left "$BEGAN"
    most=$((LEFT * 3 / 4))
    now
    since=$NOW
    code=
    until { read -r code <"$DIR/build.code"; } 2>/dev/null; do
        sleep 0.1 2>/dev/null || sleep 1
        now
        [ $((NOW - since)) -lt $((most * 100)) ] || end hung "building $what from $SOURCES did not end within $most seconds"
    done
    [ "$code" -ne 0 ] || return 0
    said=$(grep -i 'error\|could not\|cannot\|not found\|no such\|required\|no space' "$DIR/build.said" |
        grep -v '^make\|^gmake\|rror [0-9]*$\|^collect2\|^CMake Error at .*:$\|errors\{0,1\} occurred\|^ *CMakeLists.txt:' | tail -n 1)
    [ -n "$said" ] || said=$(grep -v '^ *$\|^make\|^gmake' "$DIR/build.said" | tail -n 1)
    echo "$what could not be built from $SOURCES: ${said#"${said%%[! ]*}"}" >&2
    exit 2
}

# build_nccl_tests: set PROGRAM. Only the one program and only for the GPUs that are there: all of it takes minutes.
build_nccl_tests() {
    [ -f "$SOURCES/src/Makefile" ] && [ -f "$SOURCES/src/all_reduce.cu" ] ||
        absent "$SOURCES has neither all_reduce_perf nor the sources of nccl-tests"
    require_compilers nccl-tests make
    wheel=
    ! interpreter=$(python_path) || wheel=$("$interpreter" -I -B -c 'import nvidia.nccl
print(list(nvidia.nccl.__path__)[0])' 2>/dev/null)
    home=
    for candidate in "${NCCL_HOME:-}" /usr /usr/local "$CUDA_FOLDER" /usr/local/nccl "${CONDA_PREFIX:-}" "$wheel"; do
        [ ! -f "$candidate/include/nccl.h" ] || { home=$candidate && break; }
    done
    [ -n "$home" ] || has_header nccl.h "$CUDA_FOLDER/include" ||
        absent "nccl-tests lies on the target as sources, and to build it nccl.h is missing, a header of NCCL"
    LD_LIBRARY_PATH=${home:+$home/lib:}${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
    if [ -f "$home/lib/libnccl.so.2" ] && [ ! -e "$home/lib/libnccl.so" ]; then
        # A wheel has the library without the name that a linker looks for.
        mkdir -p "$DIR/nccl/lib"
        ln -s "$home/include" "$DIR/nccl/include"
        ln -s "$home/lib/libnccl.so.2" "$DIR/nccl/lib/libnccl.so"
        home=$DIR/nccl
    fi
    gencode=
    for number in $(architectures); do
        gencode="$gencode -gencode=arch=compute_$number,code=sm_$number"
    done
    PROGRAM=$DIR/built/all_reduce_perf
    build nccl-tests make -C "$SOURCES/src" -j "$(processors)" MPI=0 BUILDDIR="$DIR/built" CUDA_HOME="$CUDA_FOLDER" \
        NVCC="$CUDA_NVCC" CXX="$COMPILER" ${home:+NCCL_HOME="$home"} ${gencode:+NVCC_GENCODE="$gencode"} "$PROGRAM"
    [ -x "$PROGRAM" ] || absent "the sources in $SOURCES were built, and all_reduce_perf is not among the result"
}

processors() { nproc 2>/dev/null || echo 2; }

# build_nvbandwidth: set PROGRAM.
build_nvbandwidth() {
    [ -f "$SOURCES/CMakeLists.txt" ] && [ -f "$SOURCES/nvbandwidth.cpp" ] ||
        absent "$SOURCES has neither nvbandwidth nor its sources"
    require_compilers nvbandwidth cmake make
    has_header boost/program_options.hpp "${CONDA_PREFIX:-/usr}/include" ||
        absent "nvbandwidth lies on the target as sources, and to build it Boost's program_options is missing, with headers"
    numbers=$(architectures | tr '\n' ';')
    # A container has the driver's libraries without the names that a linker looks for.
    stubs="-L$CUDA_FOLDER/lib64/stubs -L$CUDA_FOLDER/lib/stubs"
    build nvbandwidth cmake -S "$SOURCES" -B "$DIR/built" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$COMPILER" \
        -DCMAKE_CUDA_HOST_COMPILER="$COMPILER" -DCMAKE_CUDA_COMPILER="$CUDA_NVCC" -DCMAKE_EXE_LINKER_FLAGS="$stubs" \
        ${numbers:+-DCMAKE_CUDA_ARCHITECTURES="${numbers%;}"}
    build nvbandwidth cmake --build "$DIR/built" --parallel "$(processors)" --target nvbandwidth
    PROGRAM=$DIR/built/nvbandwidth
    [ -x "$PROGRAM" ] || absent "the sources in $SOURCES were built, and nvbandwidth is not among the result"
}

# What it measures beside these four nobody judges, and all of it takes many times as long.
probe_nvbandwidth() {
    now
    BEGAN=$NOW
    choose_program "$COLLECT_NVBANDWIDTH" nvbandwidth /opt/nvidia/nvbandwidth/nvbandwidth /opt/nvbandwidth/nvbandwidth \
        /opt/nvbandwidth/build/nvbandwidth /opt/nvbandwidth/bin/nvbandwidth /usr/local/nvbandwidth/nvbandwidth \
        /usr/local/cuda/bin/nvbandwidth
    [ -n "$PROGRAM" ] || build_nvbandwidth
    # Its numbers are those of nvidia-smi only where the order is and nothing is hidden.
    CUDA_DEVICE_ORDER=PCI_BUS_ID
    export CUDA_DEVICE_ORDER
    unset CUDA_VISIBLE_DEVICES
    cd "$DIR" || exit 1
    set -- host_to_device_memcpy_ce device_to_host_memcpy_ce device_to_device_memcpy_read_ce device_to_device_memcpy_write_ce
    "$PROGRAM" -j -t "$@" >"$DIR/$NAME.said" 2>"$DIR/$NAME.error"
    code=$?
    if [ "$code" -ne 0 ] && grep -qsi 'invalid argument\|unrecogni[sz]ed option' "$DIR/$NAME.said" "$DIR/$NAME.error"; then
        exec "$PROGRAM" -t "$@"
    fi
    cat "$DIR/$NAME.said"
    cat "$DIR/$NAME.error" >&2
    exit "$code"
}

# count_gpus: set GPUS to how many a program sees, or end the probe where fewer than two are whole.
count_gpus() {
    nvidia-smi -L >"$DIR/gpus.list" 2>/dev/null
    GPUS=$(grep -c '^GPU ' "$DIR/gpus.list")
    if [ "$GPUS" -eq 0 ]; then
        set -- /proc/driver/nvidia/gpus/*
        [ -e "$1" ] || absent "no GPU is on the target"
        GPUS=$#
    fi
    ! grep -q '^ *MIG ' "$DIR/gpus.list" || end not-run "MIG divides the GPUs, and their parts do not reduce together"
    if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
        # A program sees those before the first that is none.
        visible=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | sed -n '/^ *[0-9G]/!q;p' | grep -c .)
        [ "$visible" -ge "$GPUS" ] || GPUS=$visible
    fi
    [ "$GPUS" -gt 1 ] || end not-run "one GPU has nobody to talk to"
}

# choose_sizes: set FROM and TO, in MiB. Sent, received and expected values must fit into the memory that is free.
choose_sizes() {
    free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2>/dev/null | grep '^[0-9]*$' | sort -n |
        head -n 1)
    TO=8192
    while [ -n "$free" ] && [ "$TO" -gt 8 ] && [ $((TO * 3 + 4096)) -gt "$free" ]; do
        TO=$((TO / 2))
    done
    FROM=1024
    [ "$FROM" -le "$TO" ] || FROM=$TO
}

# The program's code tells that values were wrong; so does its table, which is the better answer. What it printed before
# its time was over is kept.
probe_nccl_tests() {
    now
    BEGAN=$NOW
    choose_program "$COLLECT_ALL_REDUCE" all_reduce_perf /opt/provision/nccl-tests/current/build/all_reduce_perf \
        /opt/nccl-tests/build/all_reduce_perf /opt/nccl_tests/build/all_reduce_perf \
        /opt/nccl-tests/bin/all_reduce_perf /opt/nccl-tests/all_reduce_perf \
        /usr/local/nccl-tests/build/all_reduce_perf /usr/local/nccl-tests/bin/all_reduce_perf \
        /usr/libexec/nccl-tests/all_reduce_perf /usr/lib/nccl-tests/all_reduce_perf \
        /opt/oci-hpc/nccl-test*/build/all_reduce_perf /usr/local/cuda*/efa/test-cuda*/all_reduce_perf \
        /third_party/nccl-tests/build/all_reduce_perf /workspace/nccl-tests/build/all_reduce_perf \
        /root/nccl-tests/build/all_reduce_perf "${HOME:-/root}/nccl-tests/build/all_reduce_perf"
    count_gpus
    [ -n "$PROGRAM" ] || build_nccl_tests
    choose_sizes
    seconds_left "$BEGAN"
    set -- -b "${FROM}M" -e "${TO}M" -f 2 -g "$GPUS"
    # Given up by the program itself, a transfer that does not end is told with what was measured before.
    [ "$LEFT" -le 20 ] || set -- "$@" -T $((LEFT * 2 / 3))
    # Into a pipe it would print all at the end.
    if stdbuf -oL true 2>/dev/null; then set -- stdbuf -oL "$PROGRAM" "$@"; else set -- "$PROGRAM" "$@"; fi
    CUDA_DEVICE_ORDER=PCI_BUS_ID
    export CUDA_DEVICE_ORDER
    cd "$DIR" || exit 1
    {
        "$@"
        echo $? >"$DIR/$NAME.ended"
    } | tee "$DIR/$NAME.said"
    { read -r code <"$DIR/$NAME.ended"; } 2>/dev/null || code=1
    ! grep -q '^# Out of bounds values' "$DIR/$NAME.said" || echo ok >"$DIR/$NAME.status"
    exit "$code"
}

# ------------------------------------------------------------------------------------------------------------ main

RUNNING=
PREFIX=
HAS_TIMEOUT=no

# choose_prefix: what gives a probe a process group and a time limit of its own, as far as the target has it.
choose_prefix() {
    if has setsid && setsid true >/dev/null 2>&1 </dev/null; then PREFIX=setsid; fi
    if timeout -k 1 5 true >/dev/null 2>&1 </dev/null; then
        HAS_TIMEOUT=yes
        PREFIX="$PREFIX timeout -k 1 LIMIT"
    elif timeout 5 true >/dev/null 2>&1 </dev/null; then
        PREFIX="$PREFIX timeout LIMIT"
    fi
    TICK=0.05
    sleep 0.01 2>/dev/null || TICK=1
}

# cap_of PROBE: set CAP to the bytes that are kept of its output.
cap_of() {
    case $1 in
    kernel-log) CAP=$COLLECT_LOG_BYTES ;;
    *) CAP=$COLLECT_BYTES ;;
    esac
}

# launch PROBE SECONDS
launch() {
    cap_of "$1"
    now
    (
        exec </dev/null >/dev/null 2>&1 8>&- 9>&-
        {
            limited "$1" "$2" 2>&3 3>&- | head -c $((CAP + 1)) >"$DIR/$1.out" 3>&-
        } 3>&1 | {
            # Errors beyond what is kept are read all the same: a tool that is refused them would end of it.
            head -c "$COLLECT_ERROR_BYTES" >"$DIR/$1.err"
            cat
        }
        : >"$DIR/$1.done"
    ) &
    RUNNING="$RUNNING $1:$2:$NOW:$!"
}

# limited PROBE SECONDS: run it, note its process group, its code and when it ended.
limited() {
    # shellcheck disable=SC2046,SC2086 # split on purpose
    ${PREFIX:+$(echo $PREFIX | sed "s/LIMIT/$2/")} "${COLLECT_SHELL:-sh}" "$DIR/collector" probe "$DIR" "$1" &
    : >"$DIR/group.$!"
    echo $! >"$DIR/$1.pid"
    wait $!
    code=$?
    now
    echo "$code $NOW" >"$DIR/$1.code"
}

# signal_probe PROBE SIGNAL: to its whole process group, or to it and its children where it has none.
signal_probe() {
    { read -r group <"$DIR/$1.pid"; } 2>/dev/null || return 0
    kill -s "$2" -- "-$group" 2>/dev/null || signal_tree "$group" "$2"
}

# signal_tree PID SIGNAL: to a process and all that it started.
signal_tree() {
    # Its children are looked up first: without it they are nobody's.
    for process in /proc/[0-9]*/stat; do
        { read -r line <"$process"; } 2>/dev/null || continue
        child=${line%% *}
        line=${line##*) ? }
        [ "${line%% *}" != "$1" ] || echo "$child"
    done >"$DIR/tree.$1"
    kill -s "$2" "$1" 2>/dev/null
    while read -r child; do
        signal_tree "$child" "$2"
    done <"$DIR/tree.$1"
}

# is_settled PROBE SECONDS STARTED PID: tell whether nothing more is to be expected of a probe, and end it when its
# time is over. With a `timeout` that ends what it started, this is the second line only.
is_settled() {
    [ ! -e "$DIR/$1.done" ] || return 0
    if { read -r code ended <"$DIR/$1.code"; } 2>/dev/null; then
        # It ended and left somebody behind who holds its output.
        [ $((NOW - ended)) -ge 100 ] || return 1
        signal_probe "$1" KILL
        [ $((NOW - ended)) -ge 200 ] || return 1
        abandon "$4"
        return 0
    fi
    late=$((NOW - $3 - $2 * 100))
    [ "$DEADLINE" -eq 0 ] || [ $((NOW - DEADLINE)) -le "$late" ] || late=$((NOW - DEADLINE))
    [ "$late" -ge 0 ] || return 1
    if [ "$late" -lt 150 ]; then
        [ "$HAS_TIMEOUT" = yes ] && [ $((NOW - $3)) -le $(($2 * 100 + 150)) ] && [ "$DEADLINE" -eq 0 ] ||
            signal_probe "$1" TERM
        return 1
    fi
    signal_probe "$1" KILL
    [ "$late" -ge 250 ] || return 1
    : >"$DIR/$1.lost"
    abandon "$4"
    return 0
}

# abandon PID: end the job around a probe. Some shells remark on a job that was ended, which nobody wants to read.
abandon() {
    exec 2>/dev/null
    signal_tree "$1" KILL
}

# settle: return when no probe is left.
settle() {
    while [ -n "$RUNNING" ]; do
        sleep "$TICK"
        now
        left=
        for job in $RUNNING; do
            IFS=:
            # shellcheck disable=SC2086 # split on purpose
            set -- $job
            unset IFS
            if is_settled "$@"; then
                conclude "$@"
            else
                left="$left $job"
            fi
        done
        RUNNING=$left
    done
}

# conclude PROBE SECONDS STARTED PID: write down status, code and duration of a probe that is settled.
conclude() {
    code=-
    ended=$NOW
    { read -r code ended <"$DIR/$1.code"; } 2>/dev/null || code=-
    status=
    { read -r status <"$DIR/$1.status"; } 2>/dev/null
    took=$((ended - $3))
    if [ -e "$DIR/$1.lost" ] || [ "$code" = - ]; then
        status=hung
        code=-
    elif [ "$took" -ge $(($2 * 100)) ] || { [ "$code" -ge 128 ] && [ "$DEADLINE" -ne 0 ] && [ "$ended" -ge "$DEADLINE" ]; }; then
        status=hung
        code=-
    elif [ -n "$status" ]; then
        case $status in ok) ;; *) code=- ;; esac
    elif [ "$code" -eq 0 ]; then
        status=ok
    else
        case $code:$(head -c 4096 "$DIR/$1.err" 2>/dev/null) in
        127:*'not found'*) status=absent ;;
        126:*) status=denied ;;
        *'ermission denied'* | *'peration not permitted'* | *'nsufficient Permissions'* | *'nsufficient permissions'* | \
            *'must be root'* | *'must be run as root'* | *'superuser'* | *'You need to be root'*) status=denied ;;
        *) status=failed ;;
        esac
    fi
    [ "$status" != hung ] || forget "$1"
    : >"$DIR/$1.done"
    [ "$took" -ge 0 ] || took=0
    echo "$status $code $((took * 10))" >"$DIR/$1.result"
}

# forget PROBE: end what a hung probe may have left.
forget() {
    signal_probe "$1" KILL
    case $1 in
    container-gpu | daemon-reload)
        # shellcheck disable=SC2046,SC2086 # split on purpose
        ${PREFIX:+$(echo $PREFIX | sed "s/LIMIT/15/")} "$COLLECT_ENGINE" rm -f "provision-$COLLECT_NONCE" \
            </dev/null >/dev/null 2>&1 8>&- 9>&- &
        ;;
    esac
}

# print_records
print_records() {
    set --
    number=0
    for entry in $COLLECT_PROBES; do
        name=${entry%%:*}
        : >>"$DIR/$name.out"
        : >>"$DIR/$name.err"
        set -- "$@" "$DIR/$name.out" "$DIR/$name.err"
        number=$((number + 1))
    done
    wc -c "$@" | {
        for entry in $COLLECT_PROBES; do
            name=${entry%%:*}
            read -r size _
            read -r error_size _
            { read -r status code took <"$DIR/$name.result"; } 2>/dev/null || { status=not-run code=- took=0; }
            cap_of "$name"
            if [ "$size" -gt "$CAP" ]; then
                size=$CAP
                # What was cut off is the reason for which the program ended as it did.
                case $status in ok | failed) status="cut" ;; esac
            fi
            printf '@record %s %s %s %s %s %s %s\n' "$COLLECT_NONCE" "$name" "$status" "$code" "$took" "$size" "$error_size"
            # The number of bytes was announced: a process that still writes must not add to them.
            [ "$size" -eq 0 ] || head -c "$size" "$DIR/$name.out"
            [ "$error_size" -eq 0 ] || head -c "$error_size" "$DIR/$name.err"
            echo
        done
    }
    printf '@end %s %s\n' "$COLLECT_NONCE" "$number"
}

# stop: end all probes, in less time than who asked for it waits before it ends this script too.
stop() {
    trap '' HUP INT TERM PIPE
    for job in $RUNNING; do
        forget "${job%%:*}"
    done
    sleep "${TICK:-1}"
    for job in $RUNNING; do
        # Looking for children takes time on a machine with many processes; most jobs have ended with their probe.
        [ -e "$DIR/${job%%:*}.done" ] || abandon "${job##*:}"
    done
    exit 1
}

main() {
    trap stop HUP INT TERM PIPE
    printf '%s\n' "$PATH" >"$DIR/path"
    PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib
    export PATH
    # shellcheck disable=SC3045 # where it is not known, cores are not kept either
    ulimit -c 0 2>/dev/null
    choose_prefix
    now
    DEADLINE=0
    [ "$COLLECT_TOTAL_SECONDS" -eq 0 ] || DEADLINE=$((NOW + COLLECT_TOTAL_SECONDS * 100))
    for kind in quick alone; do
        for entry in $COLLECT_PROBES; do
            name=${entry%%:*}
            [ "${entry##*:}" = "$kind" ] || continue
            now
            if [ "$DEADLINE" -ne 0 ] && [ "$NOW" -ge "$DEADLINE" ]; then
                echo "the time for all probes was over" >"$DIR/$name.err"
                continue
            fi
            seconds=${entry#*:}
            launch "$name" "${seconds%%:*}"
            [ "$kind" = quick ] || settle
        done
        settle
    done
    if [ "$COLLECT_GZIP" = yes ] && echo | gzip -c >/dev/null 2>&1; then
        printf '@provision-collector %s 1 gzip\n' "$COLLECT_NONCE"
        print_records | gzip -c
    else
        printf '@provision-collector %s 1 plain\n' "$COLLECT_NONCE"
        print_records
    fi
}

case $MODE in
main) main ;;
probe) "probe_$(echo "$NAME" | tr - _)" ;;
*) exit 2 ;;
esac
