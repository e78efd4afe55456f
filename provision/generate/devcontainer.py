"""A Stack to a development container: ``devcontainer.json`` beside the Dockerfile that it builds.

The GPU is asked for as optional, so that the container also opens on a machine without one; tools that find a GPU
hand it in. What the image runs as, editors run as too.
"""

from __future__ import annotations

import json
from typing import Any

from provision.generate.image import ImageOptions, render_image, to_artifacts
from provision.generate.write import Artifact
from provision.resolve.stack import Stack

DEVCONTAINER = "devcontainer.json"


def render_devcontainer(stack: Stack, options: ImageOptions | None = None) -> tuple[Artifact, ...]:
    """Write a stack down as what belongs into ``.devcontainer``.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: How to write the Dockerfile.

    Returns:
        The files, sorted by path.
    """
    artifacts = render_image(stack, options)
    document: dict[str, Any] = {
        "name": stack.name,
        "build": {"dockerfile": "Dockerfile", "context": ".", "options": ["--platform", stack.platform]},
        "hostRequirements": {"gpu": "optional"},
        "init": True,
        "remoteUser": "provision",
    }
    image = stack.image
    if image is not None and image.source_date_epoch:
        document["build"]["args"] = {"SOURCE_DATE_EPOCH": str(image.source_date_epoch)}
    ports = [extra.port for extra in image.extras if extra.port is not None] if image is not None else []
    if ports:
        document["forwardPorts"] = ports
    if stack.python is not None:
        document["customizations"] = {
            "vscode": {
                "extensions": ["ms-python.python"],
                "settings": {"python.defaultInterpreterPath": "/opt/venv/bin/python"},
            }
        }
    texts = {DEVCONTAINER: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}
    return tuple(sorted((*artifacts, *to_artifacts(texts)), key=lambda artifact: artifact.path))
