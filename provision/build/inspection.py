"""What is inside a built image, as its engine and the image's own Python tell it."""

from __future__ import annotations

import contextlib
from typing import Any

from provision.errors import MissingDependencyError, UsageError, install_command
from provision.records import record

_ANSWER_SECONDS = 120
_PYTHONS = ("python3", "python", "/opt/conda/bin/python", "/opt/venv/bin/python")


@record
class Inspection:
    """A built image.

    Attributes:
        document: What the engine keeps of it: configuration, platform, digests.
        history: Its layers, newest first, each with ``CreatedBy``.
        python: What its Python prints about itself and its distributions; empty where none answered.
    """

    document: dict[str, Any]
    history: tuple[dict[str, Any], ...]
    python: str


def inspect_image(name: str) -> Inspection:
    """Look into an image that the engine here has; nothing is pulled, and the network of the container is off.

    Args:
        name: As the engine knows it.

    Raises:
        MissingDependencyError: The docker SDK is not installed, or no engine answers.
        UsageError: The engine has no such image.
    """
    try:
        import docker
        from docker.errors import DockerException, ImageNotFound, NotFound
        from requests.exceptions import RequestException
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "--image needs the docker SDK for Python, which is not installed",
            hints=(install_command("docker"),),
        ) from error
    try:
        client = docker.from_env(timeout=_ANSWER_SECONDS)
    except DockerException as error:
        raise _absent(error) from error
    try:
        image = client.images.get(name)
        document, history = dict(image.attrs), tuple(image.history())
        return Inspection(document=document, history=history, python=_ask_python(client, str(document["Id"])))
    except (ImageNotFound, NotFound) as error:
        raise UsageError(
            f"--image: the engine has no image `{name}`",
            because=("nothing is pulled to check it",),
            hints=(f"`docker pull {name}` fetches it, `docker images` lists the local images",),
        ) from error
    except (DockerException, RequestException) as error:
        raise _absent(error) from error
    finally:
        with contextlib.suppress(DockerException, RequestException):
            client.close()


def _absent(error: Exception) -> MissingDependencyError:
    return MissingDependencyError(
        "no container engine answers",
        because=(" ".join(str(error).split())[:200],),
        hints=("start it, or point DOCKER_HOST at one", "check the Dockerfile instead of the image"),
    )


def _ask_python(client: Any, image: str) -> str:
    """Run the probe's own script with the image's Python; the first interpreter that answers counts."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    script = _payload()
    for program in _PYTHONS:
        container = None
        try:
            container = client.containers.create(
                image, ["-c", script], entrypoint=[program], network_mode="none", user="0", mem_limit="1g"
            )
            container.start()
            status = int(container.wait(timeout=_ANSWER_SECONDS)["StatusCode"])
            said = str(container.logs(stdout=True, stderr=False), "utf-8", "replace")
        except (DockerException, RequestException):
            continue
        finally:
            if container is not None:
                with contextlib.suppress(DockerException, RequestException):
                    container.remove(force=True)
        if status == 0 and said:
            return said
    return ""


def _payload() -> str:
    """Return the script; it looks for its own folder, which a script on the command line has not."""
    from importlib.resources import files

    text = files("provision.probe").joinpath("payloads", "environment.py").read_text(encoding="utf-8")
    return f"__file__ = '/nowhere/environment.py'\n{text}"
