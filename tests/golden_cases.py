"""The stacks and options whose build contexts are kept in ``tests/golden``."""

from __future__ import annotations

from dataclasses import dataclass, field

from provision.generate.image import ImageOptions
from provision.records import replace
from provision.resolve.request import Request
from provision.resolve.stack import BaseImage, DriverNeed, ExtraPart, ImagePart, LockedPackage, SourceBuild, Stack

__all__ = ["CASES", "CERTIFICATE", "TOOLS", "Case"]

EPOCH = 1_702_512_000
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PYTORCH = "https://download.pytorch.org/whl"


@dataclass(frozen=True)
class Case:
    """One golden context."""

    stack: Stack
    options: ImageOptions = field(default_factory=ImageOptions)


def _package(
    name: str,
    version: str,
    layer: str = "rest",
    *,
    is_hashed: bool = True,
    index: str = "pypi",
    url: str | None = None,
    index_url: str | None = None,
) -> LockedPackage:
    """Return a package whose sha256 is a made-up one, told apart by the name."""
    return LockedPackage(
        name=name,
        version=version,
        layer=layer,
        index=index,
        url=url,
        index_url=index_url,
        sha256=f"{sum(map(ord, name + version)):064x}" if is_hashed else None,
        why="test",
    )


TOOLS = (_package("uv", "0.9.0"), _package("dumb-init", "1.2.5"))

_DRIVER_11 = DriverNeed(minimum="450.80.02", recommended_branch="535")
_DRIVER_12 = DriverNeed(minimum="525.60.13", recommended_branch="535")
_DRIVER_13 = DriverNeed(minimum="580.65.06", recommended_branch="580")


def _stack(
    packages: tuple[LockedPackage, ...],
    image: ImagePart | None = None,
    **values: object,
) -> Stack:
    defaults: dict[str, object] = {
        "request": Request(),
        "facts_date": "2026-11-21",
        "python": "3.11",
        "platform": "linux/amd64",
        "os": "debian12",
        "driver": _DRIVER_12,
        "packages": {package.name: package.version for package in packages},
        "image": replace(
            image or ImagePart(flavor="runtime", base=BaseImage(ref="python:3.11-slim-bookworm")),
            packages=packages,
            tools=() if values.get("python", "") is None else TOOLS,
            source_date_epoch=EPOCH,
        ),
    }
    return Stack(**(defaults | values))  # type: ignore[arg-type]


_COMMON = (
    _package("numpy", "1.26.4"),
    _package("packaging", "24.1"),
    _package("filelock", "3.13.1"),
)

_WHEEL = "torch-2.1.2%2Bcu118-cp311-cp311-linux_x86_64.whl"
_CU118 = _stack(
    (
        _package("torch", "2.1.2+cu118", "framework", index="pytorch", url=f"{PYTORCH}/cu118/{_WHEEL}"),
        _package("torchaudio", "2.1.2+cu118", "framework", is_hashed=False, index_url=f"{PYTORCH}/cu118"),
        _package("torchvision", "0.16.2+cu118", "framework", is_hashed=False, index_url=f"{PYTORCH}/cu118"),
        _package("triton", "2.1.0", "framework"),
        *_COMMON,
    ),
    cuda="11.8",
    variant="cu118",
    variants={"torch": "cu118"},
    cudnn="8.7.0.84",
    frameworks={"torch": "2.1.2"},
    sm=("sm_80", "sm_90"),
    driver=_DRIVER_11,
)

_TORCH_PACKAGES = (
    _package("nvidia-cublas-cu12", "12.1.3.1", "cuda"),
    _package("nvidia-cudnn-cu12", "8.9.2.26", "cuda"),
    _package("torch", "2.1.2", "framework"),
    _package("torchvision", "0.16.2", "framework"),
    _package("triton", "2.1.0", "framework"),
    *_COMMON,
)


def _torch(image: ImagePart | None = None, **values: object) -> Stack:
    defaults: dict[str, object] = {
        "cuda": "12.1",
        "variant": "cu121",
        "variants": {"torch": "cu121"},
        "cudnn": "8.9.2.26",
        "nccl": "2.18.1",
        "frameworks": {"torch": "2.1.2"},
        "sm": ("sm_80", "sm_86", "sm_90"),
        "ptx": ("compute_90",),
    }
    return _stack(_TORCH_PACKAGES, image, **(defaults | values))


_CU121 = _torch()
_USER = ("einops>=0.7", "transformers[torch]>=4.40,<5; python_version >= '3.9'")
_SLIM = BaseImage(ref="python:3.11-slim-bookworm", digest=f"sha256:{'1' * 64}", os="debian12")

_WITH_USER = _torch(ImagePart(flavor="runtime", base=_SLIM, user_requirements=_USER))
assert _CU118.image is not None
_OPEN_CU118 = replace(
    _CU118,
    image=replace(
        _CU118.image,
        packages=tuple(replace(item, has_unknown_dependencies=item.sha256 is None) for item in _CU118.image.packages),
    ),
)
_JUPYTER = ExtraPart(id="jupyter", requires=("jupyterlab>=4",), port=8888, command=("jupyter", "lab", "--ip=0.0.0.0"))

_DEV = _torch(
    ImagePart(flavor="dev", base=_SLIM, apt=("gcc=4:12.*", "git=1:2.39.*"), apt_snapshot="2026-05-01"),
    request=Request(apt=("git=1:2.39.*",)),
)
_OWN = ImageOptions(
    command=("python", "-m", "app", "--name", "two words"),
    copies={"src/": "/workspace/src/", "train.py": "/opt/train.py"},
    hooks=("before-packages", "after-packages"),
)


def _whole() -> Stack:
    """Return a stack whose lines were resolved: a wheel, and sources and commits with locked and with open tools."""
    plain = _torch(ImagePart(flavor="runtime", base=_SLIM, user_requirements=_USER))
    commit = f"git+https://git.example/demo.git@{'c' * 40}"
    own = (
        _package("einops", "0.7.0", "user"),
        replace(_package("fire", "0.4.0", "user"), is_source=True),
        replace(_package("demo", "1.0", "user", is_hashed=False, url=commit), is_source=True),
        replace(_package("rouge-score", "0.1.2", "user"), is_source=True),
        replace(_package("sample", "1.0", "user", is_hashed=False, url=commit), is_source=True),
    )
    builders = (_package("setuptools", "70.0.0"), _package("wheel", "0.43.0"))
    image = replace(
        plain.image,
        packages=(*plain.image.packages, *own),
        build_base=BaseImage(ref="python:3.11-bookworm", os="debian12"),
        build_bounds=("setuptools<82",),
        source_builds=(SourceBuild(names=("rouge-score", "sample"), requires=("setuptools",), packages=builders),),
        resolved_before="2024-01-01T00:00:00Z",
    )
    return replace(plain, image=image, packages={**plain.packages, **{item.name: item.version for item in own}})


CASES: dict[str, Case] = {
    "torch-cu118": Case(_CU118),
    "torch-cu121": Case(_CU121),
    "torch-user-requirements": Case(
        _torch(ImagePart(flavor="runtime", base=_SLIM, user_requirements=_USER, extras=(_JUPYTER,)))
    ),
    "torch-user-locked": Case(_whole()),
    "torch-jit": Case(_torch(ImagePart(flavor="jit", base=_SLIM, apt=("gcc=4:12.*", "libc6-dev=2.36-*")))),
    "torch-devel": Case(
        _torch(
            ImagePart(
                flavor="devel",
                base=BaseImage(ref="python:3.11-bookworm"),
                cuda_base=BaseImage(ref="nvidia/cuda:12.1.1-cudnn8-devel-ubuntu22.04", cuda="12.1"),
            )
        )
    ),
    "torch-devel-sources": Case(
        _torch(
            ImagePart(
                flavor="devel",
                base=_SLIM,
                cuda_base=BaseImage(ref="nvidia/cuda:12.1.1-devel-ubuntu22.04", cuda="12.1"),
                compiled=("flash-attn",),
                compile_base=BaseImage(ref="python:3.11-bookworm", os="debian12"),
                extras=(ExtraPart(id="flash-attn", requires=("flash-attn>=2.5,<3", "einops>=0.6")),),
                build_apt=("cmake=3.25.*",),
                build_env={"FLASH_ATTENTION_FORCE_BUILD": "TRUE"},
            )
        )
    ),
    "torch-devel-sources-at-run-time": Case(
        _torch(
            ImagePart(
                flavor="devel",
                base=BaseImage(ref="python:3.11-bookworm"),
                cuda_base=BaseImage(ref="nvidia/cuda:12.1.1-devel-ubuntu22.04", cuda="12.1"),
                compiled=("deepspeed",),
                user_requirements=("deepspeed>=0.10",),
            )
        )
    ),
    "torch-dev": Case(_DEV, _OWN),
    "torch-dev-classic": Case(_DEV, replace(_OWN, frontend="classic")),
    "tensorflow-cuda-base": Case(
        _stack(
            (_package("tensorflow", "2.13.1", "framework"), *_COMMON),
            ImagePart(
                flavor="runtime",
                base=_SLIM,
                cuda_base=BaseImage(ref="nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04", digest=f"sha256:{'2' * 64}"),
            ),
            cuda="11.8",
            variant="cu118",
            variants={"tensorflow": "plain"},
            cudnn="8.6",
            frameworks={"tensorflow": "2.13.1"},
            sm=("sm_80",),
            driver=_DRIVER_11,
        )
    ),
    "tensorflow-and-cuda": Case(
        _stack(
            (
                _package("nvidia-cudnn-cu12", "9.3.0.75", "cuda"),
                _package("tensorflow", "2.21.0", "framework"),
                *_COMMON,
            ),
            ImagePart(flavor="runtime", base=_SLIM, library_path=("nvidia/cublas/lib", "nvidia/cudnn/lib")),
            cuda="12.5",
            variant="and-cuda",
            variants={"tensorflow": "and-cuda"},
            cudnn="9",
            frameworks={"tensorflow": "2.21.0"},
            sm=("sm_80", "sm_90"),
        )
    ),
    "jax-cuda13": Case(
        _stack(
            (
                _package("jax", "0.8.1", "framework"),
                _package("jax-cuda13-pjrt", "0.8.1", "framework"),
                _package("jax-cuda13-plugin", "0.8.1", "framework"),
                _package("jaxlib", "0.8.1", "framework"),
                _package("nvidia-cublas", "13.0.0.19", "cuda"),
                *_COMMON,
            ),
            ImagePart(flavor="runtime", base=BaseImage(ref="python:3.13-slim-trixie")),
            python="3.13",
            platform="linux/arm64",
            cuda="13.0",
            variant="cuda13",
            variants={"jax": "cuda13"},
            frameworks={"jax": "0.8.1"},
            driver=_DRIVER_13,
        )
    ),
    "cuda-only": Case(
        _stack(
            (),
            ImagePart(flavor="runtime", base=BaseImage(ref="nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04")),
            python=None,
            os="ubuntu22.04",
            cuda="12.4",
            variant="cu124",
        )
    ),
    "builtin": Case(_WITH_USER, ImageOptions(frontend="builtin")),
    "classic": Case(_WITH_USER, ImageOptions(frontend="classic", ca_cert=CERTIFICATE)),
    "air-gapped": Case(
        _OPEN_CU118,
        ImageOptions(
            index_url="https://mirror.example/simple/",
            ca_cert=CERTIFICATE,
            registry_mirror="mirror.example:5000/hub",
            non_root_uid=2000,
            labels={"org.example.team": "vision & audio", "org.opencontainers.image.title": "training"},
            syntax="docker/dockerfile:1",
        ),
    ),
}
