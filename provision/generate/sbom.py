"""A Stack to a software bill of materials: CycloneDX, from the lock alone.

It says what the lock says and nothing more: a licence, a supplier or the packages inside a base image are left out,
because the lock does not hold them, and the bill calls itself incomplete. It has no serial number and no time, so
that equal locks have equal bills.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provision.assets import asset_dir
from provision.errors import ProvisionError
from provision.generate.image import ImageOptions, pull_reference, to_artifacts, unlocked_lines
from provision.generate.write import Artifact
from provision.resolve.requirements import normalise_name
from provision.resolve.stack import BaseImage, LockedPackage, Stack

SBOM = "sbom.cdx.json"


def render_sbom(stack: Stack, options: ImageOptions | None = None) -> tuple[Artifact, ...]:
    """Write down what an image of a stack is made of.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: The mirror of registries counts, and the index.

    Returns:
        One file.
    """
    options = options or ImageOptions()
    image = stack.image
    if image is None:
        raise ProvisionError("the stack has no image part")
    components = [_package(package, options) for package in sorted(image.packages, key=lambda item: item.name)]
    init = image.init
    if init is not None and all(package.name != init.name for package in image.packages):
        components.append(_package(init, options))
    components += [_base(base, "base", options) for base in (image.base,)]
    components += [_base(image.cuda_base, "cuda", options)] if image.cuda_base is not None else []
    components += [_system(pattern, image.base.os) for pattern in image.apt]
    root = {
        "type": "container",
        "bom-ref": f"stack:{stack.name}",
        "name": stack.name,
        "version": stack.lock_digest,
    }
    properties = [
        {"name": "provision:lock", "value": stack.lock_digest},
        {"name": "provision:facts", "value": stack.facts_date},
        {"name": "provision:platform", "value": stack.platform},
        *({"name": "provision:unlocked", "value": line} for line in unlocked_lines(image)),
    ]
    document: dict[str, Any] = json.loads((asset_dir("images") / "sbom.json").read_text(encoding="utf-8"))
    document |= {
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "provision"}]},
            "component": root,
            "properties": properties,
        },
        "components": sorted(components, key=lambda item: str(item["bom-ref"])),
        "compositions": [{"aggregate": "incomplete", "assemblies": [root["bom-ref"]]}],
    }
    return to_artifacts({SBOM: json.dumps(document, indent=1, ensure_ascii=False) + "\n"})


def _package(package: LockedPackage, options: ImageOptions) -> dict[str, Any]:
    url = package.url if options.index_url is None else None
    index_url = options.index_url or (None if url else package.index_url)
    qualifiers = {
        **({"file_name": package.file} if package.file else {}),
        **({"repository_url": index_url} if index_url else {}),
    }
    purl = _purl("pypi", normalise_name(package.name), package.version, qualifiers)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }
    if package.sha256 is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": package.sha256}]
    if url is not None:
        component["externalReferences"] = [{"type": "distribution", "url": url}]
    component["properties"] = [
        {"name": "provision:layer", "value": package.layer},
        {"name": "provision:why", "value": package.why},
    ]
    return component


def _base(base: BaseImage, role: str, options: ImageOptions) -> dict[str, Any]:
    reference = pull_reference(base, options)
    folder, slash, last = pull_reference(base, options, with_digest=False).rpartition("/")
    last, _, tag = last.partition(":")
    name = f"{folder}{slash}{last}"
    component: dict[str, Any] = {"type": "container", "bom-ref": f"{role}:{reference}", "name": name}
    if tag:
        component["version"] = tag
    if base.digest is not None:
        component["purl"] = _purl("oci", last, base.digest, {"repository_url": name, **({"tag": tag} if tag else {})})
        component["hashes"] = [{"alg": "SHA-256", "content": base.digest.removeprefix("sha256:")}]
    return component


def _system(pattern: str, os_id: str | None) -> dict[str, Any]:
    """Return a package of the system; a pattern is not a version, so it stands beside the name."""
    name, _, version = pattern.partition("=")
    vendor = "ubuntu" if (os_id or "").startswith("ubuntu") else "debian"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"apt:{name}",
        "name": name,
        "purl": f"pkg:deb/{vendor}/{_percent(name)}",
    }
    if version:
        component["properties"] = [{"name": "provision:apt", "value": pattern}]
    return component


def _purl(kind: str, name: str, version: str, qualifiers: Mapping[str, str]) -> str:
    tail = "&".join(f"{key}={_percent(value, ':/')}" for key, value in sorted(qualifiers.items()))
    return f"pkg:{kind}/{_percent(name)}@{_percent(version, ':')}{f'?{tail}' if tail else ''}"


def _percent(text: str, more: str = "") -> str:
    """Return a text as a part of a package URL: everything but letters, digits and a few signs is escaped."""
    kept = set(f"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_~{more}")
    return "".join(chr(byte) if chr(byte) in kept else f"%{byte:02X}" for byte in text.encode())
