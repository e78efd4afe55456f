"""Refuse a certificate with which exporters would not start, or that they could not read.

Run on the node as ``python3 - '{"certificate": …, "key": …, "group": …}'`` with this text on standard input, before a
restart. Exits 1 with one line where something is wrong. Python 3.8 and the standard library alone.
"""

import grp
import json
import os
import ssl
import stat
import sys


def check(certificate, key, group):
    """Return what is wrong, or None."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A key behind a passphrase would be asked for on a terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        return "%s and %s are no certificate and its key: %s" % (certificate, key, error)
    status = os.stat(key)
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError:
        return "there is no group %s on this node" % group
    if not (status.st_mode & stat.S_IRGRP and status.st_gid == number):
        return "%s cannot be read by the group %s: chgrp %s it and chmod 0640 it" % (key, group, group)
    if status.st_mode & stat.S_IRWXO:
        return "%s can be read by everybody on this node: chmod 0640 it" % key
    return None


if __name__ == "__main__":
    sys.exit(check(**json.loads(sys.argv[1])))
