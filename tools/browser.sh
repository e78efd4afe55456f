#!/bin/sh
# Install a Chromium and its driver for the browser tests, saying what is done.
#
# Usage: tools/browser.sh
#
# Exits 0 when both are there, 7 with the reason when they cannot be had: that takes root and apt. Nothing is touched
# while they are already there. What it installs: the distribution's own chromium and chromium-driver. Ubuntu packs
# both as snaps, which need a running snapd; there Google's or another build on PATH serves as well.
set -eu

say() { printf 'browser: %s\n' "$*" >&2; }
refuse() {
    say "$1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 7
}
is_here() {
    command -v chromedriver >/dev/null 2>&1 || return 1
    for name in chromium chromium-browser google-chrome; do
        ! command -v "$name" >/dev/null 2>&1 || return 0
    done
    return 1
}

if is_here; then
    say "$(chromedriver --version | cut -d ' ' -f 1,2) and a Chromium are here"
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    refuse "no Chromium with its driver is here, and installing one takes root on Debian" \
        "install chromium and chromium-driver, or run \`sudo tools/browser.sh\`"
fi
if ! grep -q '^ID=debian$' /etc/os-release; then
    refuse "this system packs Chromium as a snap, which is not installed from here" \
        "put a chromium or google-chrome and its chromedriver on PATH"
fi

say "installing with apt: chromium chromium-driver"
log=$(mktemp)
# A half-working mirror still serves most lists, so only the installation decides.
apt-get update -q >"$log" 2>&1 || say "apt-get update reported an error; going on"
if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    chromium chromium-driver >>"$log" 2>&1; then
    tail -n 15 "$log" >&2
    refuse "apt could not install the browser" "the whole log is $log"
fi
rm -f "$log"
is_here || refuse "apt installed a browser that is not on PATH"
