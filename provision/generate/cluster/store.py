"""Data sets and checkpoints in object storage: copied in before the work, and out while it runs and when it ends.

rclone does it, in containers beside the work. Keys are in a Secret or a file that no output holds.
"""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.options import CHECKPOINTS, DATA, ClusterOptions, Place
from provision.generate.cluster.plan import Plan

GRACE_SECONDS = 600
"""What is left for the last copy of checkpoints when a Pod is told to end."""

_REMOTE = "store"
_EVERY_SECONDS = 60
# What the work's own user may change, whoever that is.
_FETCH = 'umask 0; exec rclone copy "$1" "$2" --transfers 16'
# The first run has no checkpoint yet, which is rclone's exit code 3; a new volume of Compose belongs to root.
_RESTORE = 'umask 0; mkdir -p "$2"; chmod 0777 "$2"; rclone copy "$1" "$2" --update --transfers 16 || [ $? -eq 3 ]'
# What was just written may not be whole; the last copy takes all there is. Another Pod may have written the same name
# since this one restored it, so that nothing newer is written over.
_KEEP = """\
trap 'rclone copy "$1" "$2" --update --transfers 16; exit $?' TERM
while :; do
    sleep "$3" &
    wait $!
    rclone copy "$1" "$2" --update --transfers 16 --min-age 30s || :
done
"""


def store_steps(plan: Plan) -> list[dict[str, Any]]:
    """Return the containers that run before the work, the one that goes on beside it last."""
    options = plan.options
    steps = []
    if options.data is not None:
        steps.append(_container(plan, "data", DATA, _words(_FETCH, _address(options.data), DATA)))
    if options.checkpoints is not None:
        there = _address(options.checkpoints)
        steps.append(_container(plan, "checkpoints", CHECKPOINTS, _words(_RESTORE, there, CHECKPOINTS)))
        keeper = _container(plan, "keep", CHECKPOINTS, _words(_KEEP, CHECKPOINTS, there, str(_EVERY_SECONDS)))
        # It starts before the work, is ended after it, and does not keep the Pod from being done.
        steps.append({**keeper, "restartPolicy": "Always"})
    return steps


def store_mounts(options: ClusterOptions) -> list[dict[str, Any]]:
    """Return where the work finds what was copied."""
    mounts: list[dict[str, Any]] = []
    if options.data is not None:
        mounts.append({"name": "store-data", "mountPath": DATA, "readOnly": True})
    if options.checkpoints is not None:
        mounts.append({"name": "store-checkpoints", "mountPath": CHECKPOINTS})
    return mounts


def store_volumes(options: ClusterOptions) -> list[dict[str, Any]]:
    """Return the disk of the node that it is copied to."""
    return [{"name": mount["name"], "emptyDir": {}} for mount in store_mounts(options)]


def store_services(plan: Plan) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return services of Compose that copy, what the work waits for, and the volumes that they share.

    Keys are read from ``store.env``, which is not written.
    """
    options = plan.options
    services: dict[str, Any] = {}
    waits: dict[str, Any] = {}
    volumes: dict[str, Any] = {}

    def add(name: str, path: str, words: list[str], **more: Any) -> None:
        services[name] = {
            "image": plan.fact("rclone_image"),
            "environment": _settings(plan),
            "env_file": ["store.env"],
            "entrypoint": [word.replace("$", "$$") for word in words],
            "volumes": [f"store{path.replace('/', '-')}:{path}"],
            **more,
        }

    if options.data is not None:
        add("data", DATA, _words(_FETCH, _address(options.data), DATA))
        waits["data"] = {"condition": "service_completed_successfully"}
        volumes["store-data"] = {}
    if options.checkpoints is not None:
        there = _address(options.checkpoints)
        add("checkpoints", CHECKPOINTS, _words(_RESTORE, there, CHECKPOINTS))
        done = {"condition": "service_completed_successfully"}
        keep = _words(_KEEP, CHECKPOINTS, there, str(_EVERY_SECONDS))
        add("keep", CHECKPOINTS, keep, depends_on={"checkpoints": done}, stop_grace_period=f"{GRACE_SECONDS}s")
        waits |= {"checkpoints": done, "keep": {"condition": "service_started"}}
        volumes["store-checkpoints"] = {}
    return services, waits, volumes


def _address(place: Place) -> str:
    return f"{_REMOTE}:{place.path}"


def _words(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "sh", *arguments]


def _settings(plan: Plan) -> dict[str, str]:
    """Return what rclone knows of the remote beside its keys."""
    options = plan.options
    scheme = next(place.scheme for place in (options.data, options.checkpoints) if place is not None)
    providers = plan.entries("store_providers")
    found = {"TYPE": "s3", "PROVIDER": providers[scheme], "ENV_AUTH": "true", "NO_CHECK_BUCKET": "true"}
    if options.store_endpoint is not None:
        found["ENDPOINT"] = options.store_endpoint
        if scheme == "s3":
            found["PROVIDER"] = "Other"
    return {f"RCLONE_CONFIG_{_REMOTE.upper()}_{name}": value for name, value in sorted(found.items())}


def _container(plan: Plan, name: str, path: str, words: list[str]) -> dict[str, Any]:
    options = plan.options
    resources = {"cpu": "500m", "memory": "2Gi"}
    body: dict[str, Any] = {
        "name": f"store-{name}",
        "image": plan.fact("rclone_image"),
        "command": words,
        "env": [{"name": key, "value": value} for key, value in _settings(plan).items()],
    }
    if options.store_secret is not None:
        body["envFrom"] = [{"secretRef": {"name": options.store_secret}}]
    body["resources"] = {"limits": {"memory": resources["memory"]}, "requests": resources}
    body["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    volume = "store-data" if path == DATA else "store-checkpoints"
    body["volumeMounts"] = [{"name": volume, "mountPath": path}]
    return body
