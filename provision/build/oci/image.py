"""A stack to an image without an engine: which layers it has, how they are made at once, what describes them.

The layers are those of the Dockerfile, lowest first: the base's own; ``setup`` (the user, the empty environment, pip
taken away), which depends on the base; one layer for each group of wheels, which depends on their hashes alone, and
one for the init; ``files`` (entrypoint, verification, lock), which is the stack's own; and ``code``, the user's.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from provision.build.oci.base import Base, open_base, read_tree
from provision.build.oci.codec import Codec
from provision.build.oci.download import Wanted, Wheels, locate
from provision.build.oci.layer import UNDATED, Layer, LayerWriter
from provision.build.oci.overlap import Files, find_overlaps
from provision.build.oci.refused import Halt, Stopped, refuse_base
from provision.build.oci.store import Store
from provision.build.oci.target import Document, Formats, Target, manifest_of
from provision.build.oci.tree import Tree
from provision.build.oci.watch import Silent, Watch
from provision.build.oci.wheel import ENVIRONMENT, WheelWriter, write_wheel
from provision.build.reader import Reader
from provision.errors import ActionFailedError, ProvisionError, UsageError
from provision.generate.image import CODE, count_unlocked, group_layers, mode_of
from provision.generate.recipe import (
    Cmd,
    Copy,
    Entrypoint,
    Env,
    Expose,
    Install,
    Label,
    Recipe,
    Run,
    Setup,
    Step,
    User,
    Verify,
    Workdir,
)
from provision.index.account import Accounts
from provision.index.address import IndexAddress
from provision.records import record
from provision.resolve.stack import INIT, ImagePart, LockedPackage, Stack

LAYOUT_VERSION = 1
"""Version of how wheels lie in a layer; another one gives other layers of the same wheels."""

_TIMEOUT_SECONDS = 60
_DOWNLOADS_AT_ONCE = 4
_LAYERS_AT_ONCE = 3
_SHARED_FOLDERS = ("opt", "home", "etc", "usr", "usr/local", "usr/local/bin")

_Result = TypeVar("_Result")


@record
class OciJob:
    """What to write, from what, where.

    Attributes:
        recipe: The image of the same stack.
        base: A layout or an archive with the base.
        target: A folder to become a layout, or an archive to write.
        is_folder: Which of the two the target is.
        tags: Names of the image.
        address: The index of pip, for wheels without an address of their own, and how it is reached.
        index_url: Index for all wheels instead.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        accounts: Users and passwords beside those in addresses and in the netrc file.
        local: The folder of the context with wheels of the machine that wrote it.
        code: The folder with the copies of the user's code, where the image has any.
    """

    stack: Stack
    recipe: Recipe
    base: Path
    target: Path
    is_folder: bool
    tags: tuple[str, ...]
    codec: Codec
    store: Store
    formats: Formats
    address: IndexAddress | None = None
    index_url: str | None = None
    ca_cert: str | None = None
    accounts: Accounts | None = None
    local: Path | None = None
    code: Path | None = None


@record
class OciWriter:
    """Who made an image that no engine made, as its record names it."""

    version: str
    name: str = "provision"
    image_store: str = "none"


@record
class OciImage:
    """What was written.

    Attributes:
        config_digest: The image's id.
        layers: Lowest first, the base's first.
        size: Bytes of all blobs.
        notes: What a person should know.
    """

    target: Path
    config_digest: str
    manifest_digest: str
    layers: tuple[Layer, ...]
    size: int
    notes: tuple[str, ...]
    seconds: float


def check_possible(stack: Stack, recipe: Recipe) -> None:
    """Refuse a stack whose image needs something to be run while it is made.

    Raises:
        UsageError: It does, with every reason.
    """
    reasons = _reasons(stack, stack.image) if stack.image is not None else ["the stack has no image"]
    if not reasons:
        reasons = [
            f"it needs `{text[:100]}{'…' if len(text) > 100 else ''}`"
            for step in recipe.steps
            if (text := _only_an_engine(step))
        ]
    if reasons:
        raise UsageError(
            f"the image of {stack.name} cannot be written without an engine",
            because=reasons,
            hints=("build it with one: `--engine docker --build`",),
        )


def _only_an_engine(step: Step) -> str:
    """Return what a step changes in a way only an engine can; nothing where it is done here."""
    match step:
        case Run():
            return " && ".join(map(str, step.commands))
        case Copy(stage=str(), sources=sources) if not all(source.endswith(f"/{INIT}") for source in sources):
            return f"COPY --from={step.stage} {' '.join(sources)}"
        case Install(built_in=str()):
            return "pip wheel"
        case Setup() | Install() | Verify() | Copy() | Env() | Label() | Expose() | Workdir() | User():
            return ""
        case Entrypoint() | Cmd():
            return ""
    return str(step)


def _reasons(stack: Stack, image: ImagePart) -> list[str]:
    if stack.python is None:
        return ["it is an image of CUDA alone, without wheels"]
    reasons = []
    if image.apt:
        reasons.append(f"apt installs {' '.join(image.apt)}")
    if image.cuda_base is not None:
        reasons.append(f"libraries are copied from the image {image.cuda_base.ref} and ldconfig is run")
    if image.flavor == "dev":
        reasons.append("the flavor dev makes its environment writable")
    for package in image.packages:
        if package.is_source:
            reasons.append(f"{package.name} {package.version} has no wheel and must be compiled")
        elif package.sha256 is None or package.file is None:
            reasons.append(f"no hash of {package.name} {package.version} is known (`--fetch-hashes` may find it)")
    if unlocked := count_unlocked(image):
        lines = "1 line" if unlocked == 1 else f"{unlocked} lines"
        reasons.append(f"{lines} of the requirements would be resolved while the image is built")
    return reasons


def write_image(job: OciJob, watch: Watch | None = None) -> OciImage:
    """Write an image; the target is there whole, or not at all.

    Args:
        job: What to write.
        watch: Told how far it is.

    Raises:
        UsageError: The image needs an engine, or the base is not the one of the stack.
        ActionFailedError: A wheel or the base is refused, or a file cannot be written.
        MissingDependencyError: A wheel or a library could not be had.
    """
    check_possible(job.stack, job.recipe)
    image = job.stack.image
    if image is None or image.source_date_epoch is None:
        raise ProvisionError("the stack has no image part with a date")
    started = time.monotonic()
    halt = Halt()
    watch = watch or Silent()
    with open_base(job.base, job.stack.platform, image.base.digest) as opened, job.store.held(watch):
        installed = [*group_layers(image), *([("init", [image.init])] if image.init is not None else [])]
        groups = [(name, _key(job, packages), packages) for name, packages in installed]
        work = _Work(job, halt, watch)
        base, tree, wheel_layers, notes = work.run(opened, groups)
        _check_base(base, tree, _python(job.stack))
        date = image.source_date_epoch
        setup = work.write_small("setup", date, lambda layer: _write_setup(layer, job, base, tree))
        files = work.write_small("files", date, lambda layer: _write_files(layer, job.recipe))
        own = [step for step in job.recipe.steps if isinstance(step, Copy) and step.uid is not None]
        code = [work.write_small("code", date, lambda layer: _write_code(layer, own, job.code, tree))] if own else []
        layers = (setup, *wheel_layers, files, *code)
        config = _config(base, job.recipe.steps, layers, date)
        below = tuple(
            Layer(
                name="base",
                diff_id=layer.diff_id,
                digest=layer.digest,
                size=layer.size,
                unpacked=0,
                media_type=layer.media_type,
                is_cached=True,
            )
            for layer in base.layers
        )
        config_document = Document.of("application/vnd.oci.image.config.v1+json", config)
        manifest = manifest_of(config_document, (*below, *layers), _annotations(config))
        target = Target(job.target, is_folder=job.is_folder, mtime=date, halt=halt)
        target.write(
            job.tags, job.stack.platform, config_document, manifest, (*below, *layers), base, job.store, job.formats
        )
        for layer in (setup, files, *code):
            job.store.blob(layer.digest).unlink(missing_ok=True)
    return OciImage(
        target=job.target,
        config_digest=config_document.digest,
        manifest_digest=manifest.digest,
        layers=(*below, *layers),
        size=sum(layer.size for layer in (*below, *layers)) + len(config_document.content) + len(manifest.content),
        notes=(*(note for layer in layers for note in layer.notes), *notes),
        seconds=time.monotonic() - started,
    )


def _python(stack: Stack) -> str:
    return f"python{stack.python}"


def _key(job: OciJob, packages: list[LockedPackage]) -> str:
    """Return what decides the bytes of a layer of wheels."""
    try:
        library = version("installer")
    except PackageNotFoundError:
        library = "absent"
    parts = [
        LAYOUT_VERSION,
        library,
        job.codec.identity,
        _python(job.stack),
        [[package.file, package.sha256] for package in packages],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class _Work:
    """The parts that run at once, and how all of them end when one fails."""

    def __init__(self, job: OciJob, halt: Halt, watch: Watch) -> None:
        self._job = job
        self._watch = watch
        self._halt = halt
        self._reader = Reader(job.address, ca_cert=job.ca_cert, accounts=job.accounts, timeout_seconds=_TIMEOUT_SECONDS)
        self._wheels = Wheels(job.store, self._reader, halt=halt, watch=watch, local=job.local)

    def run(
        self, base: Base, groups: list[tuple[str, str, list[LockedPackage]]]
    ) -> tuple[Base, Tree, tuple[Layer, ...], tuple[str, ...]]:
        """Read the base, bring the wheels here and write their layers; say what these do to each other."""
        with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as fetching, ThreadPoolExecutor(_LAYERS_AT_ONCE) as making:
            reading = making.submit(self._guard, lambda: read_tree(base, self._halt))
            kept = {key: self._job.store.find_layer(key) for _, key, _ in groups}
            wanted = [package for _, key, packages in groups if kept[key] is None for package in packages]
            try:
                placed = {item.sha256: item for item in self._locate(wanted)}
            except BaseException:
                self._halt.set()
                raise
            # The order in which layers need them, the layers side by side.
            rows = [[package.sha256 or "" for package in packages] for _, key, packages in groups if kept[key] is None]
            order = [row[at] for at in range(max(map(len, rows), default=0)) for row in rows if at < len(row)]
            loaded: dict[str, Future[Path]] = {
                sha256: fetching.submit(self._guard, _call(self._wheels.fetch, placed[sha256])) for sha256 in order
            }
            made: dict[str, Future[tuple[Layer, Files]]] = {}
            for name, key, packages in groups:
                if kept[key] is None:
                    wheels = [placed[package.sha256 or ""] for package in packages]
                    made[key] = making.submit(self._guard, _call(self._make, name, key, wheels, loaded))
            self._wait([reading, *loaded.values(), *made.values()])
        found, tree = reading.result()
        for name, key, _ in groups:
            if kept[key] is not None:
                self._watch.begin(f"layer {name}", None)
                self._watch.end(f"layer {name}", "cached")
        layers = [kept[key] or made[key].result() for _, key, _ in groups]
        notes = find_overlaps([(layer.name, files) for layer, files in layers])
        return found, tree, tuple(layer for layer, _ in layers), notes

    def _locate(self, packages: list[LockedPackage]) -> tuple[Wanted, ...]:
        return locate(packages, self._reader, index_url=self._job.index_url)

    def _guard(self, action: Callable[[], _Result]) -> _Result:
        """Run one part; when it fails, the others need not go on."""
        try:
            return action()
        except BaseException:
            self._halt.set()
            raise

    def _wait(self, futures: list[Future[Any]]) -> None:
        """Wait for all parts, and raise what the first that failed had to say."""
        first: BaseException | None = None
        try:
            for future in as_completed(futures):
                error = future.exception()
                if error is not None and (first is None or isinstance(first, Stopped)):
                    first = error
        except BaseException:
            # An interrupt reaches this thread alone.
            self._halt.set()
            raise
        if first is not None:
            raise first

    def _make(self, name: str, key: str, wheels: list[Wanted], loaded: dict[str, Future[Path]]) -> tuple[Layer, Files]:
        part = f"layer {name}"
        store, watch = self._job.store, self._watch
        watch.begin(part, sum(item.installed or 0 for item in wheels) or None)
        with store.draft() as (draft, stream):
            writer = LayerWriter(
                stream,
                self._job.codec,
                mtime=UNDATED,
                halt=self._halt,
                root=ENVIRONMENT,
                advance=lambda count: watch.advance(part, count),
            )
            contents = WheelWriter(writer, _python(self._job.stack))
            for item in wheels:
                path = self._await(loaded[item.sha256])
                try:
                    write_wheel(contents, path, item.file, installed=item.installed)
                except ActionFailedError:
                    # Its hash was right, so the lock wants it; but nothing of it shall stay.
                    path.unlink(missing_ok=True)
                    raise
            layer = writer.finish(name, tuple(contents.conflicts))
            stream.flush()
            layer = store.keep_layer(key, layer, contents.files, draft)
        for item in wheels:
            store.wheel(item.sha256).unlink(missing_ok=True)
        watch.end(part, f"{len(wheels)} wheels, {layer.size / 1e6:.0f} MB")
        return layer, contents.files

    def _await(self, future: Future[Path]) -> Path:
        while True:
            try:
                return future.result(timeout=0.2)
            except TimeoutError:
                if future.done():
                    # It ended between the time-out and here, well or with an error of its own.
                    return future.result()
                self._halt.check()

    def write_small(self, name: str, date: int, fill: Callable[[LayerWriter], None]) -> Layer:
        """Write a layer that takes no time and is not kept."""
        with self._job.store.draft() as (draft, stream):
            writer = LayerWriter(stream, self._job.codec, mtime=date, halt=self._halt)
            fill(writer)
            layer = writer.finish(name)
            stream.flush()
            target = self._job.store.blob(layer.digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.chmod(0o644)
            draft.replace(target)
        return layer


def _call(action: Callable[..., _Result], *values: Any) -> Callable[[], _Result]:
    return lambda: action(*values)


def _check_base(base: Base, tree: Tree, python: str) -> None:
    """Refuse a base on which the layers would not mean what they mean on the Dockerfile's."""
    for folder in _SHARED_FOLDERS:
        entry = tree.entries.get(folder)
        if entry is not None and entry.kind != "folder":
            raise refuse_base(base.where, f"/{folder} is not a folder in it but a {entry.kind}")
    for path in ("etc/passwd", "etc/group"):
        if path not in tree.entries or tree.entries[path].data is None:
            raise refuse_base(base.where, f"it has no /{path}")
    if tree.resolve(ENVIRONMENT) is not None:
        raise refuse_base(base.where, f"it has a /{ENVIRONMENT} of its own")
    if tree.find_program(python, _search_path(base)) is None:
        raise refuse_base(
            base.where,
            f"none of the folders of its PATH ({_search_path(base)}) has {python}",
            "name a base with the Python of the stack, or another Python with `--python`",
        )


def _search_path(base: Base) -> str:
    return _variables(base).get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def _variables(base: Base) -> dict[str, str]:
    environment: list[str] = (base.config.get("config") or {}).get("Env") or []
    return {name: value for name, _, value in (item.partition("=") for item in environment)}


def _write_setup(layer: LayerWriter, job: OciJob, base: Base, tree: Tree) -> None:
    """Write the start of the image: the user, pip taken away, the empty environment."""
    setup = next(step for step in job.recipe.steps if isinstance(step, Setup))
    uid = setup.uid
    lines = {"etc/group": f"provision:x:{uid}:\n", "etc/passwd": f"provision:x:{uid}:{uid}::/home/provision:/bin/sh\n"}
    for path, line in sorted(lines.items()):
        entry = tree.entries[path]
        before = entry.data or b""
        layer.add(path, before + line.encode(), mode=entry.mode & 0o7777, owner=entry.owner)
    if "home" not in tree.entries:
        layer.add_folder("home")
    layer.add_folder("home/provision", owner=(uid, uid))
    _write_environment(layer, job.stack, base, tree)
    layer.add_folder("workspace", owner=(uid, uid))
    patterns = [pattern for place in setup.removed for pattern in place]
    for path in sorted({path for pattern in patterns for path in tree.match(pattern)}):
        layer.add_removal(path)


def _write_environment(layer: LayerWriter, stack: Stack, base: Base, tree: Tree) -> None:
    """Write what ``python -m venv --without-pip`` writes, but for the scripts that activate it: PATH names it."""
    python = _python(stack)
    program = tree.find_program(python, _search_path(base)) or ""
    exact = _variables(base).get("PYTHON_VERSION", "")
    text = (
        f"home = {posixpath.dirname(program)}\n"
        "include-system-site-packages = false\n"
        f"version = {exact if exact.startswith(f'{stack.python}.') else stack.python}\n"
        f"executable = /{tree.resolve(program)}\n"
        f"command = {program} -m venv --without-pip /{ENVIRONMENT}\n"
    )
    for folder in ("", "/bin", "/include", "/lib", f"/lib/{python}", f"/lib/{python}/site-packages"):
        layer.add_folder(ENVIRONMENT + folder)
    layer.add_link(f"{ENVIRONMENT}/bin/{python}", program)
    for name in ("python", "python3"):
        layer.add_link(f"{ENVIRONMENT}/bin/{name}", python)
    layer.add_link(f"{ENVIRONMENT}/lib64", "lib")
    layer.add(f"{ENVIRONMENT}/pyvenv.cfg", text.encode())


def _write_files(layer: LayerWriter, recipe: Recipe) -> None:
    """Write what the recipe copies out of the context."""
    copied = {}
    for step in recipe.steps:
        if isinstance(step, Copy) and step.stage is None and step.uid is None:
            for source in step.sources:
                place = posixpath.join(step.target, source) if step.target.endswith("/") else step.target
                copied[place.lstrip("/")] = source
    layer.add_folder("opt/provision")
    for place, source in sorted(copied.items()):
        layer.add(place, recipe.files[source].encode(), mode=mode_of(source))


def _write_code(layer: LayerWriter, copies: list[Copy], code: Path | None, tree: Tree) -> None:
    """Write the copies of the user's code; folders that are there already stay as they are."""
    there = {folder for folder, entry in tree.entries.items() if entry.kind == "folder"} | {"workspace"}

    def add_folders(path: str) -> None:
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            if (folder := "/".join(parts[:count])) not in there:
                layer.add_folder(folder, owner=owner)

    for step in copies:
        owner = (step.uid or 0, step.uid or 0)
        target = step.target
        source = (code or Path()) / step.sources[0].removeprefix(f"{CODE}/")
        paths = sorted(source.rglob("*")) if source.is_dir() else [source]
        if source.is_dir():
            add_folders(target.strip("/"))
        for path in paths:
            place = target.strip("/") + (f"/{path.relative_to(source).as_posix()}" if source.is_dir() else "")
            if path.is_dir() and not path.is_symlink():
                add_folders(place)
                continue
            add_folders(posixpath.dirname(place))
            if path.is_symlink():
                layer.add_link(place, str(path.readlink()))
            else:
                layer.add(place, path.read_bytes(), mode=path.stat().st_mode & 0o777, owner=owner)


def _config(base: Base, steps: tuple[Step, ...], layers: tuple[Layer, ...], date: int) -> dict[str, Any]:
    """Return the image's configuration: the base's, with the steps applied to it."""
    created = datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config, said = _describe(steps, base.config.get("config") or {})
    history = [dict(item) for item in base.config.get("history") or ()]
    # Older tools leave entries out; what has none of its own gets one, or the count of layers would not fit.
    full = sum(not item.get("empty_layer") for item in history)
    history += [{"created_by": "a layer of the base"}] * (len(base.layers) - full)
    entries = [
        {"created": created, "created_by": f"provision image --engine oci: {layer.name}", "comment": layer.diff_id}
        for layer in layers
    ]
    history += entries
    history += [{"created": created, "created_by": text, "comment": "Dockerfile", "empty_layer": True} for text in said]
    return {
        "architecture": base.config["architecture"],
        **({"variant": base.config["variant"]} if base.config.get("variant") else {}),
        "config": config,
        "created": created,
        "history": history,
        "os": base.config["os"],
        "rootfs": {
            "diff_ids": [item.diff_id for item in base.layers] + [item.diff_id for item in layers],
            "type": "layers",
        },
    }


def _describe(steps: tuple[Step, ...], config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the ``config`` part of a base with the steps that describe an image, and their lines of its history."""
    made = dict(config)
    environment = dict(item.partition("=")[::2] for item in config.get("Env") or ())
    labels = dict(config.get("Labels") or {})
    ports = dict(config.get("ExposedPorts") or {})
    history = []
    for step in steps:
        match step:
            case Env():
                # Every value is expanded with what held before the step.
                values = {name: _expand(value, environment) for name, value in step.values.items()}
                environment |= values
                history.append(f"ENV {' '.join(f'{name}={value}' for name, value in values.items())}")
            case Label():
                labels[step.name] = step.value
                history.append(f"LABEL {step.name}={step.value}")
            case Expose():
                ports[f"{step.port}/tcp"] = {}
                history.append(f"EXPOSE map[{step.port}/tcp:{{}}]")
            case Workdir():
                made["WorkingDir"] = step.path
                history.append(f"WORKDIR {step.path}")
            case User():
                made["User"] = f"{step.uid}:{step.uid}"
                history.append(f"USER {step.uid}:{step.uid}")
            case Entrypoint() | Cmd():
                word = type(step).__name__
                made[word] = list(step.words)
                # The history of engines has no commas there.
                history.append(f"{word.upper()} [{' '.join(map(json.dumps, step.words))}]")
    made["Env"] = [f"{name}={value}" for name, value in environment.items()]
    made |= {"Labels": labels} if labels else {}
    made |= {"ExposedPorts": ports} if ports else {}
    return made, history


def _expand(value: str, environment: Mapping[str, str]) -> str:
    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", lambda found: environment.get(found[1], ""), value)


def _annotations(config: dict[str, Any]) -> dict[str, str]:
    labels = config["config"].get("Labels") or {}
    return {name: value for name, value in labels.items() if name.startswith("org.opencontainers.image.")}
