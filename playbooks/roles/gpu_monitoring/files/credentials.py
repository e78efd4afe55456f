"""Make and look after what monitoring is trusted by: an authority, a certificate for each host, one password.

Run on a node as ``python3 -`` with this text on standard input and before it a line ``OPTIONS = "…"``, a JSON
document: nothing secret stands in a list of processes. Prints one JSON document; ``problem`` says what cannot be done.
Python 3.8, the standard library, openssl, and the C library's own crypt, which knows bcrypt while the others do not.

Actions: ``authority`` (the monitor: authority, password, hash), ``secret`` (a password for one user), ``request`` (a
host: what is wrong with its certificate, and a new key and request), ``sign`` (the monitor), ``install`` (the host),
``check`` (files that somebody else put there).
"""

import ctypes
import grp
import ipaddress
import json
import os
import pwd
import re
import secrets
import subprocess
import sys
import tempfile

BCRYPT = b"$2b$"
BCRYPT_COST = 10
DAY_SECONDS = 86400
CURVE = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class ImpossibleError(Exception):
    """What cannot be done, in words for a person."""


def call(*argv, stdin=None):
    done = attempt(*argv, stdin=stdin)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ImpossibleError("`%s` failed: %s" % (" ".join(argv[:2]), said[-1] if said else "it said nothing"))
    return done.stdout


def attempt(*argv, stdin=None):
    try:
        return subprocess.run(
            argv,
            input=stdin if stdin is not None else b"",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
            env=dict(os.environ, LC_ALL="C"),
        )
    except OSError as error:
        raise ImpossibleError("%s: %s" % (argv[0], error.strerror)) from None


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ImpossibleError("%s: %s" % (path, error.strerror)) from None


def write(path, content, mode, group="root", owner=0):
    """Put a file in place whole; nobody can read it meanwhile who may not read it after."""
    folder = os.path.dirname(path)
    make_folder(folder)
    handle, name = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chown(name, owner, group_id(group))
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def make_folder(path, mode=0o755):
    """Make a folder and those above it, open to the services that read in it whatever the umask is."""
    if os.path.isdir(path):
        return
    make_folder(os.path.dirname(path))
    os.mkdir(path)
    os.chmod(path, mode)


def group_id(name):
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ImpossibleError("the group %s is not there" % name) from None


def settle(path, mode, group):
    """Give a file its rights back; say whether that was needed."""
    status = os.stat(path)
    if (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (mode, 0, group_id(group)):
        return False
    os.chown(path, 0, group_id(group))
    os.chmod(path, mode)
    return True


# ------------------------------------------------------------------------------------------------------- the monitor


def authority(options):
    made = []
    certificate = None
    if options["is_generated"]:
        certificate = make_authority(options, made)
    hashed = make_password(options, made)
    return {"made": made, "ca": (certificate or b"").decode(), "hash": hashed}


def make_authority(options, made):
    folder = options["folder"] + "/authority"
    key, path = folder + "/ca.key", folder + "/ca.crt"
    certificate = read(path)
    if certificate is not None:
        if public_of(certificate) != call("openssl", "pkey", "-pubout", "-in", key):
            raise ImpossibleError(
                "%s is not the key of %s: delete both, and every host gets a new certificate" % (key, path)
            )
        if lasts(path, options["renew_days"]):
            return certificate
    made.append("the authority")
    if options["is_check"]:
        return certificate
    make_folder(folder, 0o700)
    secret = call("openssl", "genpkey", *CURVE)
    settings = (
        "[req]\ndistinguished_name = name\nprompt = no\nx509_extensions = authority\n"
        "[name]\nCN = provision monitoring %s\n"
        "[authority]\nbasicConstraints = critical, CA:TRUE, pathlen:0\nkeyUsage = critical, keyCertSign, cRLSign\n"
        "subjectKeyIdentifier = hash\n" % secrets.token_hex(4)
    )
    with Scratch(key=secret, settings=settings.encode()) as files:
        words = ("-new", "-x509", "-sha256", "-days", str(options["ca_days"]))
        certificate = call("openssl", "req", *words, "-key", files["key"], "-config", files["settings"])
    write(key, secret, 0o600)
    write(path, certificate, 0o644)
    return certificate


def make_password(options, made):
    """Return the bcrypt hash of the password, the same one as long as the password stays."""
    path, place = options["folder"] + "/password", options["folder"] + "/authority/password.bcrypt"
    password, found = options["password"].encode(), read(path)
    if found is None and not password:
        made.append("the password")
        if options["is_check"]:
            return ""
        password = secrets.token_urlsafe(24).encode()
    elif password and password != found:
        made.append("the password")
    password = password or found
    if not options["is_check"]:
        if password != found:
            write(path, password, 0o640, options["group"])
        elif settle(path, 0o640, options["group"]):
            made.append("the rights of the password")
    hashed = read(place)
    if hashed is None or not hashed.startswith(BCRYPT) or crypt(password, hashed) != hashed:
        hashed = crypt(password, None)
        if not options["is_check"]:
            make_folder(os.path.dirname(place), 0o700)
            write(place, hashed, 0o600)
    return hashed.decode()


def secret(options):
    """Keep a password for one user alone; one that is given takes the place of another."""
    path, given = options["path"], options["password"].encode()
    try:
        owner = int(options["owner"]) if options["owner"].isdigit() else pwd.getpwnam(options["owner"]).pw_uid
    except KeyError:
        raise ImpossibleError("the user %s is not there" % options["owner"]) from None
    found = read(path)
    if found is not None and given in (b"", found):
        status = os.stat(path)
        if (status.st_mode & 0o7777, status.st_uid) == (0o600, owner):
            return {"made": []}
    write(path, given or found or secrets.token_urlsafe(24).encode(), 0o600, owner=owner)
    return {"made": ["the password"]}


def crypt(password, setting):
    """Return the bcrypt hash of a password, with the salt of another hash or a new one."""
    try:
        library = ctypes.CDLL("libcrypt.so.1", use_errno=True)
        library.crypt.restype = library.crypt_gensalt.restype = ctypes.c_char_p
        library.crypt_gensalt.argtypes = [ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int]
        library.crypt.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        setting = setting or library.crypt_gensalt(BCRYPT, BCRYPT_COST, None, 0)
        hashed = library.crypt(password, setting) if setting else None
    except (OSError, AttributeError) as error:
        raise ImpossibleError("the system's libcrypt cannot be used: %s" % error) from None
    if not hashed or not hashed.startswith(BCRYPT):
        raise ImpossibleError("the system's libcrypt knows no bcrypt")
    return hashed


def sign(options):
    folder = options["folder"] + "/authority"
    settings = (
        "[node]\nbasicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\n"
        "extendedKeyUsage = serverAuth\nsubjectAltName = %s\n" % ",".join(options["names"])
    )
    with Scratch(request=options["request"].encode(), settings=settings.encode()) as files:
        call("openssl", "req", "-noout", "-verify", "-in", files["request"])
        certificate = call("openssl", "x509", "-req", "-sha256", "-days", str(options["days"]),
            "-set_serial", str(secrets.randbits(127) | 1), "-CA", folder + "/ca.crt", "-CAkey", folder + "/ca.key",
            "-in", files["request"], "-extfile", files["settings"], "-extensions", "node")  # fmt: skip
    return {"certificate": certificate.decode()}


# --------------------------------------------------------------------------------------------------------- each host


def request(options):
    paths = options["paths"]
    why = faults(options)
    rights = []
    if not why and not options["is_check"]:
        rights = [path for path, mode, group in rights_of(options) if settle(path, mode, group)]
    asked = ""
    if why and not options["is_check"]:
        secret = call("openssl", "genpkey", *CURVE)
        write(paths["key"] + ".new", secret, 0o600)
        subject = "/CN=provision exporter"
        asked = call("openssl", "req", "-new", "-sha256", "-subj", subject, "-key", paths["key"] + ".new").decode()
    return {"is_due": bool(why), "why": why, "rights": rights, "request": asked}


def rights_of(options):
    paths = options["paths"]
    return (
        (paths["ca"], 0o644, "root"),
        (paths["certificate"], 0o644, "root"),
        (paths["key"], 0o640, options["group"]),
    )


def faults(options):
    """Return why a certificate is not what this host needs; empty where it is."""
    paths = options["paths"]
    missing = [name for name in ("ca", "certificate", "key") if read(paths[name]) is None]
    if missing:
        return ["%s is not there" % paths[name] for name in missing]
    why = []
    certificate = read(paths["certificate"])
    if not lasts(paths["certificate"], options["renew_days"]):
        why.append("it is valid for no more than %d days" % options["renew_days"])
    if public_of(certificate) != attempt("openssl", "pkey", "-pubout", "-passin", "pass:", "-in", paths["key"]).stdout:
        why.append("it does not fit its key")
    if options["ca"] and read(paths["ca"]) != options["ca"].encode():
        why.append("the authority is a new one")
    elif attempt("openssl", "verify", "-CAfile", paths["ca"], "-untrusted", paths["certificate"], "-purpose",
                 "sslserver", paths["certificate"]).returncode and lasts(paths["certificate"], 0):  # fmt: skip
        why.append("the authority did not sign it")
    absent = sorted(wanted(options["names"]) - names_in(paths["certificate"]))
    if absent:
        why.append("it is not for %s" % ", ".join(absent))
    return why


def check(options):
    """Judge files that somebody else put there; they are not touched."""
    why = faults(options)
    group, status = options["group"], None
    if not why:
        status = os.stat(options["paths"]["key"])
        if status.st_mode & 0o007:
            why.append("everybody on this host can read the key")
        elif not status.st_mode & 0o040 or status.st_gid != group_id(group):
            why.append("the group %s cannot read the key (mode 0640)" % group)
    return {"why": why}


def install(options):
    paths, group = options["paths"], options["group"]
    certificate = options["certificate"].encode()
    if public_of(certificate) != call("openssl", "pkey", "-pubout", "-in", paths["key"] + ".new"):
        raise ImpossibleError("the monitor signed another key than this host's: run again")
    secret = read(paths["key"] + ".new")
    write(paths["ca"], options["ca"].encode(), 0o644)
    write(paths["key"], secret, 0o640, group)
    write(paths["certificate"], certificate, 0o644)
    os.unlink(paths["key"] + ".new")
    return {"made": ["the certificate"]}


# ------------------------------------------------------------------------------------------------------- certificates


class Scratch:
    """Files for openssl in a folder that nobody else can look into, gone at the end."""

    def __init__(self, **contents):
        self.contents = contents

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        paths = {}
        for name, content in self.contents.items():
            paths[name] = os.path.join(self.folder.name, name)
            with open(paths[name], "wb") as file:
                file.write(content)
        return paths

    def __exit__(self, *_):
        self.folder.cleanup()


def public_of(certificate):
    return attempt("openssl", "x509", "-noout", "-pubkey", stdin=certificate).stdout


def lasts(path, days):
    return not attempt("openssl", "x509", "-noout", "-checkend", str(days * DAY_SECONDS), "-in", path).returncode


def names_in(path):
    text = attempt("openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", path).stdout.decode()
    return wanted(part.replace("IP Address:", "IP:") for line in text.splitlines()[1:] for part in line.split(","))


def wanted(names):
    """Return names in the one form in which they can be compared."""
    found = set()
    for name in names:
        kind, _, value = name.strip().partition(":")
        if kind == "IP":
            try:
                value = str(ipaddress.ip_address(value))
            except ValueError:
                continue
        if re.fullmatch(r"DNS|IP", kind):
            found.add("%s:%s" % (kind, value.lower()))
    return found


ACTIONS = {
    "authority": authority,
    "secret": secret,
    "request": request,
    "sign": sign,
    "install": install,
    "check": check,
}


def main(options):
    # Whatever is secret is made by mkstemp, for root alone, and given its rights before it gets its name.
    os.umask(0o022)
    try:
        answer = ACTIONS[options["action"]](options)
    except ImpossibleError as problem:
        answer = {"problem": str(problem)}
    except OSError as error:
        answer = {"problem": "%s: %s" % (error.filename, error.strerror)}
    json.dump(answer, sys.stdout, sort_keys=True)


if __name__ == "__main__":
    main(json.loads(OPTIONS))  # noqa: F821 - the play puts it in front
