"""What can be said about a job of Slurm beyond the lock, checked against a grammar before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.errors import UsageError
from provision.generate.image import check_value
from provision.records import NOTHING, record

"""What runs a job: enroot by Slurm's plugin pyxis, Apptainer, or the node itself."""

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,+-]{0,127}", re.ASCII)
_TIME = re.compile(r"(?:[0-9]{1,3}-)?[0-9]{1,2}:[0-9]{2}:[0-9]{2}|[0-9]{1,6}", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._/+@-]{0,500}", re.ASCII)
_SIF = re.compile(r"/[A-Za-z0-9._/+@-]{1,500}\.sif", re.ASCII)
_MOUNT = re.compile(r"/[A-Za-z0-9._/+@-]{0,500}(?::/[A-Za-z0-9._/+@-]{0,500})?", re.ASCII)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,127}", re.ASCII)
_GPUS_MAX = 16
_NODES_MAX = 10_000
_CPUS_MAX = 4096
_GIB_MAX = 65_536
_SAVE_SECONDS_MAX = 65_535
_PORT_MAX = 65_535
_WORD_MAX = 4096


@record
class JobOptions:
    """How the lock is written down for Slurm.

    Attributes:
        runtime: ``pyxis``, ``apptainer`` or ``host``.
        image: Of the jobs: a reference, or with Apptainer an absolute path that ends in ``.sif``.
        environment: Folder of the virtual environment on the nodes, for ``host``.
        script: What torchrun starts, with its arguments.
        service: Words of a service that one node runs until it is ended.
        nccl_tests_image: An image with nccl-tests on its path.
        nodes: Nodes of a training and of a measurement.
        gpus: GPUs of each.
        gpu_type: What Slurm calls them; empty for any.
        cpus: Processors of each node; absent for Slurm's own rule. ``memory_gib`` likewise, where 0 is all of it.
        time: Limit as Slurm takes it (``1-00:00:00``, ``12:00:00`` or minutes).
        partition: Where to run; empty for the default, as are ``account`` and ``qos``.
        save_seconds: So long before its limit a job is told to save.
        mounts: ``SRC`` or ``SRC:DST``, for containers.
        variables: More variables.

    Raises:
        UsageError: A value does not fit its grammar, or two do not go together.
    """

    runtime: str = "pyxis"
    image: str | None = None
    environment: str | None = None
    script: tuple[str, ...] = ()
    service: tuple[str, ...] = ()
    nccl_tests_image: str | None = None
    nodes: int = 1
    gpus: int = 1
    gpu_type: str = ""
    cpus: int | None = None
    memory_gib: int | None = None
    time: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    save_seconds: int = 120
    mounts: tuple[str, ...] = ()
    variables: Mapping[str, str] = NOTHING

    def __post_init__(self) -> None:
        """Check every value, then what goes with what."""
        for flag, text in (("--partition", self.partition), ("--account", self.account), ("--qos", self.qos)):
            _check(flag, text, _WORD, "name", "letters, digits, `_`, `.`, `,` and `-` are one")
        _check("--gpu-type", self.gpu_type, _WORD, "name", "write what `sinfo -o %G` shows, as in `--gpu-type h100`")
        _check("--time", self.time, _TIME, "limit of Slurm", "write it as in `--time 12:00:00` or `--time 2-00:00:00`")
        _check("--env-dir", self.environment or "", _PATH, "absolute path", "name the folder that holds `bin/activate`")
        for mount in self.mounts:
            _check("--mount", mount, _MOUNT, "mount", "write it as in `--mount /data` or `--mount /data:/mnt/data`")
        for flag, number, least, most in (
            ("--nodes", self.nodes, 1, _NODES_MAX),
            ("--gpus", self.gpus, 1, _GPUS_MAX),
            ("--cpus", self.cpus, 1, _CPUS_MAX),
            ("--memory-gib", self.memory_gib, 0, _GIB_MAX),
            ("--save-seconds", self.save_seconds, 30, _SAVE_SECONDS_MAX),
        ):
            if number is not None and not least <= number <= most:
                raise UsageError(
                    f"{flag} `{number}` is not from {least} to {most}",
                    hints=(f"write a whole number from {least} to {most}",),
                )
        for word in (*self.script, *self.service, *self.variables.values()):
            if not word.isprintable() or not word.isascii() or len(word) > _WORD_MAX:
                raise UsageError(
                    f"{word[:80]!a} is not a word of a command",
                    because=("only printable ASCII goes into a batch file",),
                )
        for name in self.variables:
            _check("--env", name, _VARIABLE, "name of a variable", "write it as in `--env NCCL_DEBUG=INFO`")
        self._check_images()

    def _check_images(self) -> None:
        for flag, image in (("--image", self.image), ("--nccl-tests-image", self.nccl_tests_image)):
            if image is None:
                continue
            if self.runtime == "host":
                raise UsageError(f"{flag} has no effect with --runtime host", hints=("leave one of the two out",))
            if self.runtime != "apptainer" or not image.startswith("/"):
                check_value("image reference", image, flag)
            elif not _SIF.fullmatch(image):
                raise UsageError(f"{flag}: {image[:80]!a} is not a path of an image", hints=("it ends in `.sif`",))
        if self.environment is not None and self.runtime != "host":
            raise UsageError("--env-dir has no effect without --runtime host", hints=("leave one of the two out",))
        if self.mounts and self.runtime == "host":
            raise UsageError("--mount has no effect with --runtime host", hints=("leave one of the two out",))
        if (self.script or self.service) and self.runtime != "host" and self.image is None:
            raise UsageError(
                "what runs needs --image to run in",
                hints=(
                    "build one with `provision image`",
                    "or run it in an environment of the nodes: `--runtime host`",
                ),
            )


def _check(flag: str, text: str, grammar: re.Pattern[str], kind: str, hint: str) -> None:
    if text and not grammar.fullmatch(text):
        raise UsageError(f"{flag} {text[:80]!a} is not a valid {kind}", hints=(hint,))
