"""Print the interpreter and its distributions as one JSON document; runs on the target, standard library only.

Names and versions come from the folders' names, which costs a listing and not a read of every file.
"""

import json
import os
import re
import sys
from pathlib import Path

MARKER = "@provision-payload "
INFORMATION = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._]*?)-([0-9][^-]*)(?:-py[0-9.]+)?\.(?:dist|egg)-info$")


def find_distributions(folders):
    """Return name → versions in the order in which the interpreter would find them."""
    found = {}
    for folder in folders:
        try:
            entries = sorted(Path(folder).iterdir())
        except OSError:
            continue
        for entry in entries:
            match = INFORMATION.match(entry.name)
            if match and is_whole(entry):
                name = re.sub(r"[-_.]+", "-", match.group(1)).lower()
                found.setdefault(name, []).append(match.group(2))
    return found


def is_whole(path):
    """Tell whether a distribution's folder has its metadata: what an interrupted removal leaves has none."""
    return path.is_file() or any((path / name).is_file() for name in ("METADATA", "PKG-INFO"))


def main():
    """Print the document."""
    here = str(Path(__file__).resolve().parent)
    folders = []
    for folder in sys.path:
        path = os.path.realpath(folder)
        if folder and path != here and path not in folders:
            folders.append(path)
    found = find_distributions(folders)
    document = {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "prefix": sys.prefix,
        "packages": {name: versions[0] for name, versions in sorted(found.items())},
        "duplicates": sorted(name for name, versions in found.items() if len(set(versions)) > 1),
    }
    print("\n" + MARKER + json.dumps(document))


if __name__ == "__main__":
    main()
