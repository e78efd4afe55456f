#!/bin/sh
# Run a linter over the files of one kind; finding no file of that kind is a failure, not a pass.
#
# usage: tools/lint.sh data|dockerfiles|shell LINTER
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
data)
    # One schema a table file, named alike; one for all wheel files.
    tables=$(files compat -name '*.toml')
    for table in $tables; do
        schema=compat/schema/$(basename "$table" .toml).schema.json
        if [ ! -f "$schema" ]; then
            echo "error: $table has no schema $schema" >&2
            exit 1
        fi
        echo "$linter --schemafile $schema $table"
        "$linter" --quiet --schemafile "$schema" "$table"
    done
    wheels=$(files compat/wheels -name '*.json')
    echo "$linter --schemafile compat/schema/wheels.schema.json compat/wheels/*.json"
    # shellcheck disable=SC2086 # our own file names have no blanks
    "$linter" --quiet --schemafile compat/schema/wheels.schema.json $wheels
    ;;
dockerfiles)
    dockerfiles=$(files tests/golden -name Dockerfile)
    echo "$linter on $(echo "$dockerfiles" | wc -l) Dockerfiles of tests/golden"
    # shellcheck disable=SC2086
    "$linter" $dockerfiles
    ;;
shell)
    scripts=$(files .ci/run images tests tools -type f '(' -name '*.sh' -o -path .ci/run ')')
    echo "$linter on $(echo "$scripts" | wc -l) scripts"
    # shellcheck disable=SC2086
    "$linter" $scripts
    ;;
*)
    echo "error: unknown kind \`$kind\`" >&2
    exit 2
    ;;
esac
