#!/bin/sh
# Install Prometheus and Alertmanager with their checking tools for the tests of alerts, saying what is done.
#
# Usage: tools/prometheus.sh
#
# Exits 0 when all four programs are there, 7 with the reason when they cannot be had: that takes root and apt. Nothing
# is touched while they are already there. The tests start servers of their own; the packages' services are not needed.
set -eu

say() { printf 'prometheus: %s\n' "$*" >&2; }
refuse() {
    say "$1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 7
}
is_here() {
    for name in prometheus promtool amtool; do
        command -v "$name" >/dev/null 2>&1 || return 1
    done
    command -v prometheus-alertmanager >/dev/null 2>&1 || command -v alertmanager >/dev/null 2>&1
}

if is_here; then
    say "$(promtool --version 2>&1 | sed -n 's/^promtool, version \([^ ]*\).*/promtool \1/p') and Alertmanager are here"
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    refuse "promtool, amtool and their servers are not all here, and installing them takes root on Debian or Ubuntu" \
        "install prometheus and prometheus-alertmanager, or run \`sudo tools/prometheus.sh\`"
fi

say "installing with apt: prometheus prometheus-alertmanager"
log=$(mktemp)
# A half-working mirror still serves most lists, so only the installation decides.
apt-get update -q >"$log" 2>&1 || say "apt-get update reported an error; going on"
if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    prometheus prometheus-alertmanager >>"$log" 2>&1; then
    tail -n 15 "$log" >&2
    refuse "apt could not install them" "the whole log is $log"
fi
rm -f "$log"
is_here || refuse "apt installed programs that are not on PATH"
