#!/bin/sh
# Install Ray into an environment of its own for the tests of Ray clusters, saying what is done.
#
# Usage: tools/ray.sh [DIRECTORY]
#
# The release is pinned, since the tests ask private modules of it; RAY_VERSION names another.
#
# Exits 0 when `ray` is on PATH or in DIRECTORY (.build/ray), 7 with the reason when it cannot be had: that takes a
# package index. Nothing is touched while it is already there. It is no dependency of the tests, for it takes 214 MB.
set -eu

directory=${1:-.build/ray}
version=${RAY_VERSION:-2.60.0}

say() { printf 'ray: %s\n' "$*" >&2; }

if command -v ray >/dev/null 2>&1; then
    say "$(ray --version) is here"
    exit 0
fi
if [ -x "$directory/bin/ray" ]; then
    say "$("$directory/bin/ray" --version) is in $directory"
    exit 0
fi

say "installing into $directory: ray $version"
log=$(mktemp)
uv=.venv/bin/uv
[ -x "$uv" ] || uv=uv
python=.venv/bin/python
[ -x "$python" ] || python=python3
if ! { "$uv" venv --quiet --clear --python "$python" "$directory" &&
    "$uv" pip install --quiet --python "$directory/bin/python" "ray==$version"; } >"$log" 2>&1; then
    rm -rf "$directory"
    tail -n 15 "$log" >&2
    say "it could not be installed; the whole log is $log"
    exit 7
fi
rm -f "$log"
say "$("$directory/bin/ray" --version) is in $directory"
