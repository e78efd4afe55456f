"""One rule a module, named after what it finds; ``compat/audit_rules.toml`` has its id and the name of its module.

Most files have nothing to do with most rules, and importing a rule takes longer than asking it. What a rule needs to
say anything at all is therefore written here, so that only those that may speak are imported. A test holds every line
against the rules themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import cast

from provision.audit.bases import has_moving_tag
from provision.audit.model import ERROR, Command, Environment, Options, Rule, Span
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS

_IN_PAIRS = "bitsandbytes|onnxruntime-gpu|ctranslate2|faster-whisper|whisperx|cupy-cuda11x|cupy-cuda12x|cupy-cuda13x"
_COMPILED = "flash-attn|causal-conv1d|mamba-ssm|deepspeed|detectron2|pytorch3d|apex|build-option"
_TWICE = (
    "cupy-cuda11x|cupy-cuda12x|opencv-python|opencv-contrib-python|opencv-contrib-python-headless|"
    "tensorflow-cpu|tensorflow-gpu|tf-nightly"
)
SCOPES: dict[str, str] = {
    "B01": "base own-base",
    "B02": "cuda target framework",
    "B03": "base own-base",
    "B04": "base own-base",
    "B05": f"no-nvcc {_COMPILED}",
    "B06": "moving-tag own-base stage",
    "B07": "base framework|!wget|!curl|download",
    "B08": "base-frameworks framework|torchvision|torchaudio|vllm|xformers",
    "B09": "base stage",
    "B10": "stage command",
    "B11": "stage",
    "B12": "package cupy",
    "B13": "base stage command package",
    "B14": "base stage !apt-get|!apt|!sudo|!aptitude",
    "B15": "base stage !apt-get|!apt|!sudo|!yum|!dnf|!microdnf",
    "B16": "stage !conda|!mamba",
    "B17": "stage !source",
    "B18": "base stage !apt-get|!apt|!sudo|!aptitude",
    "B19": "base stage !apt-get|!apt|!sudo|!aptitude",
    "C01": f"cuda nvcc {_COMPILED}",
    "C02": "framework",
    "C03": "torch|pytorch|base-frameworks torchvision|torchaudio",
    "C04": "local",
    "C05": "torch open-framework extra-index",
    "C06": "open-framework stage|requirements|script",
    "C07": "tensorflow|tensorflow-gpu",
    "C08": "jax",
    "C09": f"pinned|{_IN_PAIRS}",
    "C10": "torch|pytorch|base-frameworks package",
    "C11": "torch|pytorch|base-frameworks vllm|xformers|torchtext",
    "C12": "torch|tensorflow",
    "C13": "conda",
    "C14": "cuda target torch",
    "C15": "package",
    "C16": "conda torch pytorch",
    "C17": "stage|requirements|conda|pyproject|script package",
    "C18": "stage|requirements|conda|pyproject|script package",
    "C19": "stage|requirements|conda|pyproject|script pinned",
    "C20": "stage|requirements|conda|pyproject|script extra",
    "C21": "package",
    "C22": "stage|script package second-install",
    "C23": "torch|pytorch|base-frameworks extra-index|flash-attn|causal-conv1d|mamba-ssm",
    "C24": "pinned",
    "C25": "file",
    "C26": "torch second-install",
    "C27": "command package",
    "C28": "refused",
    "C29": "unencrypted",
    "C30": "stage backend",
    "D01": "driver framework|pytorch|base-frameworks",
    "D02": "cuda target framework",
    "D03": "command",
    "E01": "cuda framework $LD_LIBRARY_PATH",
    "E02": "base stage target framework",
    "E03": "$NVIDIA_DRIVER_CAPABILITIES",
    "E04": "stage $NVIDIA_DISABLE_REQUIRE",
    "E05": "target $NVIDIA_VISIBLE_DEVICES|$NVIDIA_DRIVER_CAPABILITIES",
    "G01": "gpu framework|pytorch|base-frameworks",
    "G02": "cuda nvcc $TORCH_CUDA_ARCH_LIST",
    "G03": "framework|base-frameworks",
    "L01": "package",
    "N01": "pinned|framework|pytorch|base-frameworks",
    "N02": "setuptools pinned|framework|pytorch|base-frameworks",
    "N03": "nvidia-nvjitlink-cu12 pinned|framework|pytorch|base-frameworks",
    "N04": "lock|python-base pinned|framework|pytorch|base-frameworks",
    "N05": "pinned|framework|pytorch|base-frameworks",
    "P01": "arm framework",
    "R01": "service cuda",
    "S01": "base stage target",
    "S02": "!curl|!wget|download",
    "S03": "plain-index|--trusted-host|--allow-insecure-host|$PIP_TRUSTED_HOST|$UV_INSECURE_HOST",
    "S04": "key|base-frameworks",
    "X01": "stage|requirements|conda|script package",
    "X02": "stage|requirements|conda|script mmcv|mmcv-full|openai-whisper",
}
"""What must be there before a rule can find anything, by its id: words that must all hold, or one of several (``|``).

A word is the kind of environment, a name of :func:`aspects_of`, a package that is asked for or, behind ``$``, a
variable that is set, behind ``!`` a program that this very environment runs, and behind ``--`` a flag that it gives
one. A rule without a line looks at everything.
"""


def rule_ids(matrix: Matrix) -> tuple[str, ...]:
    """Return the ids of all rules, in the order of their findings."""
    return tuple(matrix.audit_rules)


def load_rule(rule: str, matrix: Matrix) -> Rule:
    """Import the module of a rule."""
    return _load(matrix.audit_rules[rule].module)


@cache
def _load(module: str) -> Rule:
    return cast("Rule", import_module(f"provision.audit.rules.{module}"))


def aspects_of(environment: Environment, options: Options) -> frozenset[str]:
    """Return the words that hold of an environment whose surroundings are complete."""
    base = environment.base
    found = {environment.kind}
    for word, is_so in (
        ("base", base is not None and base.repository is not None),
        ("own-base", environment.own_base),
        ("base-frameworks", base is not None and bool(base.frameworks)),
        ("python-base", base is not None and base.repository == "python"),
        ("moving-tag", base is not None and base.repository is not None and has_moving_tag(base)),
        ("cuda", base is not None and base.cuda is not None),
        ("target", environment.is_target),
        ("nvcc", environment.has_nvcc is True),
        ("no-nvcc", environment.has_nvcc is False),
        ("command", bool(environment.own_commands)),
        ("second-install", len(environment.installs) > 1),
        ("build-option", _has_build_option(environment)),
        ("download", bool(environment.downloads)),
        ("driver", options.driver is not None),
        ("gpu", bool(options.gpus)),
        ("arm", "linux/arm64" in (environment.platform, *options.platforms)),
    ):
        if is_so:
            found.add(word)
    found.update(_of_installs(environment))
    found.update(_of_commands(environment.own_commands))
    found.update(f"${name}" for name in environment.variables)
    found.update(f"${variable.name}" for variable in environment.own_variables)
    return frozenset(found)


def _of_installs(environment: Environment) -> Iterator[str]:
    for install in environment.installs:
        if install.refused:
            yield "refused"
        if install.installer == "conda":
            yield "conda"
        for index in install.indexes:
            if index.kind in ("extra", "find-links"):
                yield "extra-index"
            if index.kind == "backend":
                yield "backend"
            if (index.url or "").lower().startswith("http://"):
                yield "plain-index"
    for _, requirement in environment.requirements():
        yield from ("package", requirement.name)
        if requirement.name in FRAMEWORKS:
            yield from ("framework",) if requirement.version is not None else ("framework", "open-framework")
        if requirement.version is not None:
            yield "pinned"
        if requirement.local:
            yield "local"
        if requirement.url is not None and requirement.url.startswith("file:"):
            yield "file"
        if requirement.url is not None and requirement.url.startswith("git+git:"):
            yield "unencrypted"
        if requirement.extras:
            yield "extra"


def _of_commands(commands: Iterable[Command]) -> Iterator[str]:
    for command in commands:
        yield f"!{command.program}"
        for inner in command.substitutes:
            yield f"!{inner.program}"
        for word in command.words:
            if word.text is None:
                continue
            if word.text.startswith("--"):
                yield word.text.partition("=")[0]
            if ".pub" in word.text.lower():
                yield "key"
            if word.text.startswith("git:"):
                yield "unencrypted"


def _has_build_option(environment: Environment) -> bool:
    """Tell whether a command has a word such as ``--cuda_ext``, which asks a setup for extensions."""
    return any(
        word.text is not None and word.text.endswith("_ext")
        for command in environment.commands
        for word in command.words
    )


def is_in_scope(rule: str, aspects: frozenset[str]) -> bool:
    """Tell whether a rule may have something to say where some aspects hold."""
    # A generator would take as long again as what it asks, and this is asked of every rule for every environment.
    for words in _needs_of(rule):  # noqa: SIM110
        if aspects.isdisjoint(words):
            return False
    return True


def spans_of(
    rules: Iterable[str],
    environment: Environment,
    matrix: Matrix,
    options: Options,
    severities: Collection[str] = (ERROR,),
) -> Iterator[Span]:
    """Yield what errors of some rules point at: they say what a fault means, where solving says that it is there."""
    aspects = aspects_of(environment, options)
    for name in rules:
        if is_in_scope(name, aspects):
            found = load_rule(name, matrix).check(environment, matrix, options)
            yield from (finding.span for finding in found if finding.severity in severities)


@cache
def _needs_of(rule: str) -> tuple[frozenset[str], ...]:
    """Return the words that a rule needs, one of each set."""
    return tuple(frozenset(words.split("|")) for words in SCOPES.get(rule, "").split())
