#!/bin/sh
# Run a linter over the files of one kind; finding no file of that kind is a failure, not a pass.
#
# usage: tools/lint.sh ansible|dockerfiles|shell LINTER
set -eu

kind=$1
linter=$2

# files FIND-ARGUMENTS...: print the paths found, sorted, or fail.
files() {
    found=$(find "$@" | LC_ALL=C sort)
    if [ -z "$found" ]; then
        echo "error: no file to lint: find $*" >&2
        exit 1
    fi
    echo "$found"
}

case $kind in
ansible)
    # It calls ansible-playbook by name, so the environment's own comes first on PATH. Nothing is fetched: there are
    # no collections to fetch.
    tasks=$(files playbooks molecule -name '*.yml')
    PATH=$(CDPATH='' cd "$(dirname "$linter")" && pwd):$PATH
    export PATH
    echo "$linter on $(echo "$tasks" | wc -l) files of playbooks and molecule"
    "$linter" --offline --profile production --strict --nocolor -f pep8 -q playbooks molecule
    ;;
dockerfiles)
    dockerfiles=$(files tests/golden -name Dockerfile)
    echo "$linter on $(echo "$dockerfiles" | wc -l) Dockerfiles of tests/golden"
    # shellcheck disable=SC2086
    "$linter" $dockerfiles
    ;;
shell)
    scripts=$(files .ci/run images molecule playbooks provision tests tools -type f '(' -name '*.sh' -o -path .ci/run ')' ! -path 'tests/corpus/*')
    # What roles put on a node has the name it has there.
    for script in $(files playbooks -type f -path '*/files/*' ! -name '*.*'); do
        case $(head -n 1 "$script") in
        '#!/bin/sh'* | '#!/bin/bash'*) scripts="$scripts $script" ;;
        esac
    done
    echo "$linter on $(echo "$scripts" | wc -w) scripts"
    # shellcheck disable=SC2086
    "$linter" $scripts
    ;;
*)
    echo "error: unknown kind \`$kind\`" >&2
    exit 2
    ;;
esac
