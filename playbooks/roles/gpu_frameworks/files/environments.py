"""Build Python environments on a node, point the names at them, and remove what is no longer needed.

Run by role gpu_frameworks on the node, with this text and a call of ``main`` on standard input, so that addresses with
passwords stand in no list of processes. An environment is built in its final folder, for scripts in it name that
folder, and becomes one only by the mark that is written last: whatever lacks it was interrupted, and is built anew.
Python 3.8 and the standard library alone.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess

MARK = ".provision-complete"
TAIL_LINES = 25

# What is run in a new environment: the imports, what is installed, and whether the GPU is seen.
LOOK = r"""
import importlib, importlib.metadata, json, logging, os, re, sys, tempfile
asked, found = json.loads(sys.argv[1]), {"errors": [], "accelerator": {}}
for name in asked:
    try:
        importlib.import_module(name)
    except Exception as error:
        found["errors"].append("import %s: %s: %s" % (name, type(error).__name__, str(error)[:500]))
found["versions"] = {
    str(row.metadata["Name"]): row.version for row in importlib.metadata.distributions() if row.metadata["Name"]
}
class Spoken(logging.Handler):
    # What C++ writes to the standard error, and what JAX logs of a plugin that it cannot use.
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines, self.file, self.real = [], tempfile.TemporaryFile(), os.dup(2)
        os.dup2(self.file.fileno(), 2)
        logging.getLogger("jax").addHandler(self)
    def emit(self, record):
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(record.getMessage() if error is None else str(error).strip() or type(error).__name__)
    def end(self):
        logging.getLogger("jax").removeHandler(self)
        os.dup2(self.real, 2)
        self.file.seek(0)
        said = self.file.read(1 << 20).decode("utf-8", "replace").splitlines()
        # Severity, time and thread stand before the words.
        said = [re.sub(r"^[IWEF]\d{4} [\d:.]+ +\d+ ", "", line.strip()) for line in said]
        self.lines += [line for line in said if re.search(r"GPU|CUDA|cuda|dlopen|libcu", line)]
def accelerator(name, ask):
    module = sys.modules.get(name)
    if module is None:
        return
    spoken = Spoken()
    try:
        is_available, reason = ask(module)
    except Exception as error:
        is_available, reason = False, str(error).strip() or type(error).__name__
    spoken.end()
    # A framework's own error says less than what it said on the way there.
    lines = [" ".join(line.split()) for line in spoken.lines if line.strip()]
    if not is_available and lines and name != "torch":
        reason = "; ".join(dict.fromkeys(lines))
    found["accelerator"][name] = {
        "is_available": is_available, "reason": None if is_available else reason.splitlines()[0][:300]
    }
def torch(module):
    if module.version.cuda is None:
        return False, "built without CUDA"
    if not module.cuda.is_available():
        module.cuda.init()
    return module.cuda.is_available(), "unknown"
def tensorflow(module):
    if not module.test.is_built_with_cuda():
        return False, "built without CUDA"
    return bool(module.config.list_physical_devices("GPU")), "TensorFlow lists no GPU"
def jax(module):
    try:
        return bool(module.devices("gpu")), "JAX lists no GPU"
    except RuntimeError:
        # Before there were plugins the version of jaxlib named its CUDA.
        pattern = r"jax[-_]cuda\d+[-_]plugin==|jaxlib==.*cuda"
        if not any(re.match(pattern, "%s==%s" % row) for row in found["versions"].items()):
            return False, "no CUDA plugin is installed"
        raise
accelerator("torch", torch)
accelerator("tensorflow", tensorflow)
accelerator("jax", jax)
print("\n" + json.dumps(found))
"""


class BuildError(Exception):
    """What stopped a build, in words for the person who reads the play."""


def redact(text):
    """Return the text without the names and passwords that addresses carry."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def tail(text):
    """Return the last lines of a program's output, fit to be shown."""
    # pip lists every hash that would have done, and the package's name scrolls away.
    lines = [line for line in text.strip().splitlines() if not line.strip().startswith("Expected     or ")]
    return redact("\n".join(lines[-TAIL_LINES:]))


def call(argv, environment, step):
    """Run a program and return its output; say its last lines where it fails."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            check=False,
        )
    except OSError as error:
        raise BuildError("%s: %s: %s" % (step, argv[0], error.strerror)) from error
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise BuildError("%s: %s ended with %d:\n%s" % (step, os.path.basename(argv[0]), done.returncode, tail(text)))
    return text


def find_python(wanted):
    """Return the interpreter for a minor version, a path, or nothing in particular."""
    name = wanted if wanted.startswith("/") else "python" + (wanted or "3")
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin")
    if path is None:
        raise BuildError("Python: no %s on this node; install it or set gpu_frameworks_python" % name)
    return path


def settings(options, scratch):
    """Return the variables that pip and uv read."""
    values = {key: os.environ[key] for key in ("PATH", "LANG", "SSL_CERT_FILE") if key in os.environ}
    values.update(LC_ALL="C.UTF-8", HOME=scratch, TMPDIR=scratch, PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    # What a node's pip.conf may say of its users is not meant for a shared environment.
    values.update(PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0", PIP_NO_CACHE_DIR="1", UV_NO_CACHE="1", UV_NO_CONFIG="1")
    if options.get("ca"):
        values.update(dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), options["ca"]))
    if options.get("index_url"):
        values.update(
            PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL=options["index_url"], UV_DEFAULT_INDEX=options["index_url"]
        )
    if options.get("proxy"):
        values.update(dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), options["proxy"]))
    if options.get("no_proxy"):
        values.update(no_proxy=options["no_proxy"], NO_PROXY=options["no_proxy"])
    return values


def installer(options, row):
    """Return the words that install the list of an environment."""
    uv = shutil.which("uv", path=os.environ.get("PATH", "") + ":/usr/local/bin")
    if options["installer"] == "uv" and uv is None:
        raise BuildError("uv: not on this node; install it or leave gpu_frameworks_installer at auto")
    python = os.path.join(row["path"], "bin", "python")
    if uv is not None and options["installer"] != "pip":
        words = [uv, "pip", "install", "--python", python, "--no-progress"]
    else:
        words = [python, "-m", "pip", "install", "--progress-bar", "off"]
    words += ["--require-hashes", "--no-deps"]
    if not options["allow_source"]:
        # Building from source would fetch build tools that no hash covers.
        words += ["--only-binary", ":all:"]
    if options.get("wheelhouse"):
        if not os.path.isdir(options["wheelhouse"]):
            raise BuildError("wheelhouse: %s is not a folder on this node" % options["wheelhouse"])
        words += ["--no-index", "--find-links", options["wheelhouse"]]
    return [*words, "-r", row["list"]]


def look(row, environment):
    """Import what the environment is for, and compare what is installed with the lock."""
    python = os.path.join(row["path"], "bin", "python")
    text = call([python, "-I", "-c", LOOK, json.dumps(row["imports"])], environment, "imports")
    # Native code that ends may have the last word, after the answer.
    answer = next((line for line in reversed(text.splitlines()) if line.startswith('{"errors": ')), None)
    if answer is None:
        raise BuildError("check of %s: no answer, only:\n%s" % (row["name"], tail(text)))
    found = json.loads(answer)
    names = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found["versions"].items()}
    for name, version in sorted(row["versions"].items()):
        installed = names.get(re.sub(r"[-_.]+", "-", name).lower())
        # A build's local part (2.1.2+cu118) is told by its hash, not by the lock's version.
        if installed is None or version not in (installed, installed.partition("+")[0]):
            found["errors"].append("%s: the lock has %s, installed is %s" % (name, version, installed or "nothing"))
    if found["errors"]:
        raise BuildError("check of %s:\n%s" % (row["name"], "\n".join(found["errors"])))
    return found


def write_mark(row, found):
    """Write the mark that makes a folder an environment, last and on the disk."""
    path = os.path.join(row["path"], MARK)
    document = {"digest": row["digest"], "name": row["name"], "python": row["python"], "versions": found["versions"]}
    with open(path + ".new", "w") as file:
        json.dump(document, file, indent=2, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    # All that was installed reaches the disk before the mark gets its name: a power cut leaves no false one.
    os.sync()
    os.replace(path + ".new", path)


def build(row, options, base):
    """Build one environment; leave nothing of it where that fails."""
    scratch = os.path.join(base, ".scratch-" + row["folder"])
    for folder in (row["path"], scratch):
        shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(scratch, 0o700)
    try:
        environment = settings(options, scratch)
        step = "environment %s" % row["name"]
        call([find_python(row["python"]), "-m", "venv", row["path"]], environment, step)
        call(installer(options, row), environment, step)
        found = look(row, environment)
        python = os.path.join(row["path"], "bin", "python")
        try:
            call([python, "-m", "pip", "check"], environment, "pip check")
            notes = []
        except BuildError as error:
            notes = [str(error)]
        write_mark(row, found)
        return {"accelerator": found["accelerator"], "notes": notes}
    except BaseException:
        shutil.rmtree(row["path"], ignore_errors=True)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def point(row, base):
    """Let the name stand for the folder, in one step; return whether it did not before."""
    link = os.path.join(base, row["name"])
    if os.path.islink(link) and os.readlink(link) == row["folder"]:
        return False
    if os.path.isdir(link) and not os.path.islink(link):
        raise BuildError("%s is a folder that this play did not make; move it away" % link)
    new = os.path.join(base, ".link-" + row["name"])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.symlink(row["folder"], new)
    os.replace(new, link)
    # The time of the mark is when it was last chosen: that decides which older ones are kept.
    os.utime(os.path.join(base, row["folder"], MARK))
    return True


def is_used(path, proc="/proc"):
    """Tell whether a process was started from the folder or has a file of it mapped."""
    needle = os.fsencode(path) + b"/"
    for pid in os.listdir(proc):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        for name in ("cmdline", "maps"):
            try:
                with open(os.path.join(proc, pid, name), "rb") as file:
                    if needle in file.read():
                        return True
            except OSError:
                continue
    return False


def collect(rows, base, keep):
    """Remove builds that never ended and all but the newest ``keep`` of each name, those in use excepted."""
    current = {os.path.basename(os.readlink(entry.path)) for entry in os.scandir(base) if entry.is_symlink()}
    planned = {row["folder"]: row for row in rows}
    removed, used = [], []
    for name in sorted({row["name"] for row in rows}):
        finished = []
        for entry in os.scandir(base):
            if entry.is_symlink() or not re.fullmatch(re.escape(name) + r"-[0-9a-f]{12}", entry.name):
                continue
            mark = os.path.join(entry.path, MARK)
            if os.path.exists(mark):
                finished.append((os.stat(mark).st_mtime, entry.name))
            else:
                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(entry.name)
        finished.sort(reverse=True)
        kept = [folder for _, folder in finished if folder in current or folder in planned]
        for _, folder in finished:
            if folder in kept:
                continue
            if len(kept) < keep:
                kept.append(folder)
            elif is_used(os.path.join(base, folder)):
                used.append(folder)
            else:
                shutil.rmtree(os.path.join(base, folder), ignore_errors=True)
                removed.append(folder)
    for entry in os.scandir(base):
        # Scratch folders and links of builds that were killed; the lock says that nobody works on them.
        if entry.name.startswith(".scratch-"):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name.startswith(".link-"):
            os.unlink(entry.path)
    lists = os.path.dirname(rows[0]["list"]) if rows else None
    for folder in removed:
        if lists and folder not in planned:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(lists, folder + ".txt"))
    return removed, used


def run(options):
    """Do everything that is asked; return what happened."""
    base, rows = options["base"], options["environments"]
    os.umask(0o022)
    os.makedirs(base, exist_ok=True)
    result = {"built": [], "relinked": [], "removed": [], "in_use": [], "accelerator": {}, "notes": []}
    with open(os.path.join(base, ".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BuildError(
                "another run is building in %s; wait for it to end, then start this one again" % base
            ) from None
        # Every environment is finished before the first name moves: a node never has half of a lock.
        for row in rows:
            if not os.path.exists(os.path.join(row["path"], MARK)):
                outcome = build(row, options, base)
                result["built"].append(row["folder"])
                result["accelerator"][row["name"]] = outcome["accelerator"]
                result["notes"] += outcome["notes"]
        for row in rows:
            if point(row, base):
                result["relinked"].append(row["folder"])
        result["removed"], result["in_use"] = collect(rows, base, max(int(options["keep"]), 1))
    return result


def stop(number, _frame):
    """End as a failed build does when the connection or the play goes away."""
    raise BuildError("stopped by signal %d" % number)


def main(options):
    """Print one JSON document; return the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        print(json.dumps(run(options), sort_keys=True))
    except BuildError as error:
        print(json.dumps({"error": redact(str(error))}))
        return 1
    except OSError as error:
        print(json.dumps({"error": "%s: %s" % (error.filename or options["base"], error.strerror)}))
        return 1
    return 0
