"""Make a certificate for staging, or check one that is there: that it fits its key, is valid, and can be read.

Run with one JSON argument: certificate, key, user, is_self_signed, names, days. Python 3.8 and the standard library
alone; openssl does the work.
"""

import json
import os
import shutil
import subprocess
import sys


def call(*argv):
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
        )
    except OSError as error:
        sys.exit("%s: %s" % (argv[0], error.strerror))
    if done.returncode:
        sys.exit("%s: %s" % (" ".join(argv[:2]), done.stderr.decode("utf-8", "replace").strip() or "failed"))
    return done.stdout


def make(options):
    folder = os.path.dirname(options["key"])
    os.makedirs(folder, mode=0o755, exist_ok=True)
    names = ",".join(options["names"])
    new_key, new = options["key"] + ".new", options["certificate"] + ".new"
    os.umask(0o077)
    call("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256",
         "-days", str(options["days"]), "-subj", "/CN=provision staging", "-addext", "subjectAltName=" + names,
         "-keyout", new_key, "-out", new)  # fmt: skip
    shutil.chown(new_key, "root", options["user"])
    os.chmod(new_key, 0o640)
    os.chmod(new, 0o644)
    os.replace(new_key, options["key"])
    os.replace(new, options["certificate"])


def check(options):
    for path in (options["certificate"], options["key"]):
        if not os.path.isfile(path):
            sys.exit("%s is not a file on this node" % path)
    call("openssl", "x509", "-noout", "-checkend", "0", "-in", options["certificate"])
    public = call("openssl", "x509", "-noout", "-pubkey", "-in", options["certificate"])
    if public != call("openssl", "pkey", "-pubout", "-passin", "pass:", "-in", options["key"]):
        sys.exit("%s is not the key of %s" % (options["key"], options["certificate"]))
    if os.stat(options["key"]).st_mode & 0o007:
        sys.exit("%s can be read by everybody on this node; take that right away" % options["key"])
    done = subprocess.run(["runuser", "-u", options["user"], "--", "test", "-r", options["key"]], check=False)
    if done.returncode:
        sys.exit("the user %s cannot read %s" % (options["user"], options["key"]))


def main(options):
    if options["is_self_signed"] and not (os.path.exists(options["key"]) and os.path.exists(options["certificate"])):
        make(options)
        print("made")
    check(options)


main(json.loads(sys.argv[1]))
