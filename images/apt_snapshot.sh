#!/bin/sh
# Write a configuration of apt into folder $2 whose sources are those of the base as of the moment $1 (20260501T000000Z).
# The base's own stays as it is: APT_CONFIG=$2/snapshot.conf names the other for one installation.
#
# Debian's images say in a comment above each source where all its days are kept; apt in Ubuntu knows that itself.
# Other sources are left out, since nobody keeps their days.
set -eu

stamp=$1 folder=$2 etc=${3:-/etc}
mkdir -p "$folder/sources.list.d"
id=$(sed -n 's/^ID=//p' "$etc/os-release" | tr -d '"')
for source in "$etc/apt/sources.list" "$etc/apt/sources.list.d/$id.sources"; do
    if [ ! -f "$source" ]; then continue; fi
    target=$folder${source#"$etc/apt"}
    if [ "$id" = ubuntu ]; then
        sed -E -e "s,^Types:,Snapshot: $stamp\\n&," \
            -e "s,^deb +(\\[([^]]*)\\] *)?,deb [\\2 snapshot=$stamp] ," "$source" > "$target"
    else
        moment='[0-9]{8}T[0-9]{6}Z/?'
        sed -E -e '/^deb/d' \
            -e "s,^# *deb +([^ ]*)/$moment +,deb [check-valid-until=no] \\1/$stamp ," \
            -e "\\|^# *[^ ]*:.*/$moment\$| { s,^# *(.*)/$moment\$,URIs: \\1/$stamp\\nCheck-Valid-Until: no,; n; d; }" \
            "$source" > "$target"
    fi
done
if ! grep -rqF "$stamp" "$folder"; then
    echo "provision: the sources of apt in this base do not say where the archive of a day is kept;" \
        "leave --apt-snapshot out, or take an official image of Debian or Ubuntu as base" >&2
    exit 1
fi
printf 'Dir::Etc::SourceList "%s";\nDir::Etc::SourceParts "%s";\n' \
    "$folder/sources.list" "$folder/sources.list.d" > "$folder/snapshot.conf"
