"""Write files that a node does not have yet, all in one round trip.

Run by role gpu_facts on the node, from standard input: this text, and after it a call of `write` with what to write.
Each file is written whole: beside its place first, then moved there. Python 3.8 and the standard library alone.
"""

import base64
import grp
import json
import os
import pwd
import sys
import tempfile


def write(encoded, root="/"):
    """Write the files, make the folders that they lack, and print the paths of those that changed.

    Args:
        encoded: Base64 of a JSON list of items with path, content, mode (octal digits), owner and group.
        root: What the paths are under; a folder in tests.
    """
    # Folders are open to read, whatever the connection came with.
    os.umask(0o022)
    changed = []
    for item in json.loads(base64.b64decode(encoded)):
        path = os.path.join(root, item["path"].lstrip("/"))
        try:
            if _write_one(path, item):
                changed.append(item["path"])
        except (OSError, KeyError) as error:
            sys.exit("cannot write %s: %s" % (item["path"], error))
    print("\n".join(changed))


def _write_one(path, item):
    content = item["content"].encode()
    mode = int(item["mode"], 8)
    owner, group = pwd.getpwnam(item["owner"]).pw_uid, grp.getgrnam(item["group"]).gr_gid
    if _is_there(path, content, mode, owner, group):
        return False
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=folder, prefix=".provision-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chown(beside, owner, group)
        os.chmod(beside, mode)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    return True


def _is_there(path, content, mode, owner, group):
    if os.path.islink(path) or not os.path.exists(path):
        return False
    found = os.stat(path)
    if (found.st_mode & 0o7777, found.st_uid, found.st_gid) != (mode, owner, group):
        return False
    with open(path, "rb") as file:
        return file.read() == content
