#!/bin/sh
# Install and start a container engine for the engine tests, saying what is done.
#
# Usage: tools/engine.sh
#
# Exits 0 when an engine answers, 7 with the reason when none can be had: that takes root and apt. Nothing is
# touched while an engine already answers. What it installs: the distribution's own docker.io, docker-cli and
# docker-buildx, plus what the tests make images, registries and ssh servers with (mmdebstrap, docker-registry,
# openssh-server), the other shell that the collector is tested with, also as all that a container has (busybox-static),
# and a reader of images that is not the engine (skopeo).
#
# Debian 12 ships Docker 20.10, whose BuildKit knows no `COPY --link`. There the engine comes from the next release,
# pinned below everything else, so that only these packages and what they strictly need come from it.
set -eu

say() { printf 'engine: %s\n' "$*" >&2; }
refuse() {
    say "$1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 7
}
answers() { command -v docker >/dev/null 2>&1 && timeout 20 docker info >/dev/null 2>&1; }
# The builder is a plug-in that a bare docker command may lack.
builds() { docker buildx version >/dev/null 2>&1; }
describe() {
    say "$(docker version --format 'Docker {{.Server.Version}}'), store $(docker info --format '{{.Driver}}') answers"
    builds || say "there is no buildx plug-in: images are built through the engine's classic builder"
}
makes_bases() { command -v mmdebstrap >/dev/null 2>&1 && command -v docker-registry >/dev/null 2>&1; }
# Tests of what is reached over ssh start servers of their own.
has_sshd() { { command -v sshd || [ -x /usr/sbin/sshd ]; } >/dev/null 2>&1 && command -v ssh >/dev/null 2>&1; }

# One that needs no library: it is also all that a container has.
has_busybox() { command -v busybox >/dev/null 2>&1 && ! ldd "$(command -v busybox)" 2>/dev/null | grep -q '=>'; }

has_skopeo() { command -v skopeo >/dev/null 2>&1; }

if answers && builds && makes_bases && has_sshd && has_busybox && has_skopeo; then
    describe
    exit 0
fi

can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }
if ! can_install; then
    if answers; then
        describe
        makes_bases || say "mmdebstrap or docker-registry is absent: tests that make their own base images are skipped"
        has_sshd || say "openssh-server is absent: tests that start an ssh server are skipped"
        has_busybox || say "busybox-static is absent: tests of the collector in its shell are skipped"
        has_skopeo || say "skopeo is absent: the test that it reads our images is skipped"
        exit 0
    fi
    refuse "no container engine answers this user, and installing one takes root on Debian or Ubuntu" \
        "start yours (\`sudo systemctl start docker\`) and join its group, or run \`sudo tools/engine.sh\`"
fi

# shellcheck source=/dev/null
. /etc/os-release
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND

# The mirror this machine already uses, in either form of apt's lists.
mirror_in_use() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null |
        sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' | head -n 1
}

add_newer_release() {
    newer=$1
    mirror=$(mirror_in_use)
    [ -n "$mirror" ] || refuse "apt has no source to take a newer engine from" "add one to /etc/apt/sources.list.d"
    say "adding Debian $newer below everything else (priority 100) for the engine's packages"
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
        "$mirror" "$newer" /usr/share/keyrings/debian-archive-keyring.gpg \
        >/etc/apt/sources.list.d/provision-engine.sources
    printf 'Package: *\nPin: release n=%s\nPin-Priority: 100\n' "$newer" \
        >/etc/apt/preferences.d/provision-engine
}

install_packages() {
    suffix=''
    if [ "${ID:-}" = debian ] && [ "${VERSION_CODENAME:-}" = bookworm ]; then
        add_newer_release trixie
        suffix=/trixie
    fi
    wanted=''
    command -v mmdebstrap >/dev/null 2>&1 || wanted="$wanted mmdebstrap"
    command -v docker-registry >/dev/null 2>&1 || wanted="$wanted docker-registry"
    has_sshd || wanted="$wanted openssh-server openssh-client"
    has_busybox || wanted="$wanted busybox-static"
    has_skopeo || wanted="$wanted skopeo"
    # The base images are Debian's also where the machine is not.
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || wanted="$wanted debian-archive-keyring"
    # dockerd needs it for the containers' network; docker.io merely recommends it.
    command -v iptables >/dev/null 2>&1 || wanted="$wanted iptables"
    if ! builds || ! command -v dockerd >/dev/null 2>&1; then
        wanted="$wanted docker.io$suffix docker-buildx$suffix"
        # Ubuntu's docker.io carries the command itself; Debian 13 packs it separately.
        [ "${ID:-}" != debian ] || wanted="$wanted docker-cli$suffix"
    fi
    [ -n "$wanted" ] || return 0
    say "installing with apt:$wanted"
    log=$(mktemp)
    # A half-working mirror still serves most lists, so only the installation decides.
    apt-get update -q >"$log" 2>&1 || say "apt-get update reported an error; going on"
    # shellcheck disable=SC2086 # a list of package names
    if ! apt-get install -y -q --no-install-recommends $wanted >>"$log" 2>&1; then
        tail -n 15 "$log" >&2
        refuse "apt could not install the engine" "the whole log is $log"
    fi
    rm -f "$log"
}

wait_for_engine() {
    left=$1
    while [ "$left" -gt 0 ]; do
        answers && return 0
        [ -z "${2:-}" ] || kill -0 "$2" 2>/dev/null || return 1
        left=$((left - 1))
        sleep 1
    done
    return 1
}

start_engine() {
    if [ -d /run/systemd/system ]; then
        say "starting docker.service"
        systemctl start docker || true
        wait_for_engine 30 && return 0
        refuse "docker.service does not answer" "see \`journalctl -u docker\`"
    fi
    folder=$(mktemp -d)
    say "starting dockerd in the background, log $folder/dockerd.log"
    setsid dockerd >"$folder/dockerd.log" 2>&1 </dev/null &
    wait_for_engine 60 $! && return 0
    tail -n 5 "$folder/dockerd.log" >&2
    refuse "dockerd did not come up" "the whole log is $folder/dockerd.log"
}

install_packages
answers || wait_for_engine 3 || start_engine
describe
