#!/bin/sh
# Make a virtual environment and install this checkout into it, editable.
#
# usage: tools/venv.sh DIRECTORY REQUIREMENT
#
#   DIRECTORY    where the environment is, or is to be
#   REQUIREMENT  `.` or `.[extra,...]`
#
# uv is used where it is present, pip otherwise. PYTHON names the interpreter; without it the first of python3,
# python3.11 ... python3.15 that is new enough is taken. Both installers read their own settings (PIP_*, UV_*).
# Nothing is ever installed outside DIRECTORY.
set -eu

directory=$1
requirement=$2

# fail MESSAGE HINT...: say what is missing and what to do, exit as `provision` does when something is absent.
fail() {
    echo "error: $1" >&2
    echo >&2
    shift
    for hint in "$@"; do
        echo "hint: $hint" >&2
    done
    exit 7
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# find_python: print the first interpreter that is new enough, nothing when there is none.
find_python() {
    for candidate in python3 python3.11 python3.12 python3.13 python3.14 python3.15; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
}

if [ -n "${PYTHON:-}" ]; then
    is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11 or newer" "leave PYTHON out, or name another"
    python=$PYTHON
else
    python=$(find_python)
fi
uv=$(command -v uv || true)

if [ -e "$directory" ] && [ ! -f "$directory/pyvenv.cfg" ]; then
    fail "\`$directory\` exists and is not a virtual environment" "move it away and run make again"
fi

if ! is_new_enough "$directory/bin/python"; then
    if [ -n "$uv" ]; then
        # Without an interpreter of its own the machine may still have one that uv manages, or can fetch.
        echo "making $directory with uv"
        "$uv" venv --quiet --clear --seed ${python:+--python "$python"} "$directory"
    elif [ -z "$python" ]; then
        found=$(python3 --version 2>/dev/null || echo 'no python3')
        fail "Python 3.11 or newer is needed, and this machine has $found" \
            "install python3.11 or newer with the system's package manager; \`make install PYTHON=/path/to/python\` uses it" \
            "or install uv, which brings a Python of its own, and run make again"
    elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        package=python$version-venv
        [ "$python" != python3 ] || package=python3-venv
        fail "$python ($version) cannot make virtual environments: its venv or ensurepip module is missing" \
            "on Debian and Ubuntu, as root: apt-get install $package" \
            "then run make again"
    else
        echo "making $directory with $python -m venv"
        "$python" -m venv --clear "$directory"
    fi
fi

echo "installing $requirement into $directory"
if [ -n "$uv" ]; then
    "$uv" pip install --quiet --python "$directory/bin/python" --editable "$requirement"
elif "$directory/bin/python" -c 'import pip' >/dev/null 2>&1; then
    "$directory/bin/python" -m pip install --quiet --editable "$requirement"
else
    fail "\`$directory\` has no pip, and uv is not on PATH" "remove \`$directory\` and run make again"
fi
