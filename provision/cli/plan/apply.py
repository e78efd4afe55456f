"""``provision plan --apply``: the first choice as files that the next commands and other tools begin with."""

from __future__ import annotations

import json
from pathlib import Path

from provision.cli.output import Output
from provision.cli.text.plan import row_document
from provision.errors import ActionFailedError, UsageError
from provision.generate.write import Artifact, write_artifacts
from provision.planner.handoff import dstack_text, inventory_text, skypilot_text, terraform_text
from provision.planner.plan import Plan
from provision.resolve.stack import Stack

_PLAN = "plan.json"


def apply_row(plan: Plan, stack: Stack, folder: Path, output: Output) -> None:
    """Write the lock, the choice, an inventory and the files of other tools; whole or not at all.

    Args:
        plan: A plan that has a winner.
        stack: The software of its GPU.
        folder: Where to; made where it is missing.
        output: Tells what was written.

    Raises:
        UsageError: The folder holds somebody else's files under these names.
        ActionFailedError: The disk is full or read-only, or permission is missing.
    """
    winner = plan.winner
    assert winner is not None  # noqa: S101 - a plan without rows is refused before
    texts: dict[str, str | None] = {
        "dstack.yml": dstack_text(winner),
        "inventory.yml": inventory_text(winner),
        "provision.lock": stack.to_lock(),
        "skypilot.yaml": skypilot_text(winner, plan.fallbacks),
        "terraform.tfvars.json": terraform_text(winner),
    }
    artifacts = [Artifact(path=name, text=text) for name, text in texts.items() if text is not None]
    document = {
        "schema_version": 1,
        "lock_digest": stack.lock_digest,
        "facts_date": stack.facts_date,
        "winner": row_document(winner),
        "fallbacks": [row_document(row) for row in plan.fallbacks],
        "files": {artifact.path: _digest(artifact.text.encode()) for artifact in artifacts},
    }
    artifacts.append(Artifact(path=_PLAN, text=json.dumps(document, indent=1, ensure_ascii=False) + "\n"))
    _refuse_edited(folder, artifacts)
    changes = write_artifacts(folder, tuple(artifacts), dry_run=output.is_dry_run)
    did = "would write" if output.is_dry_run else "wrote"
    if changes.written:
        output.note(f"{did} {', '.join(changes.written)} in {folder}")
    else:
        output.note(f"{folder} is up to date")
    for name, text in texts.items():
        if text is None:
            old = ", and the one there is of an earlier choice" if (folder / name).exists() else ""
            output.note(f"no {name}: the tool does not know {winner.offer.provider.name}{old}")
    flags = " ".join(f"--{name} {version}" for name, version in sorted(stack.frameworks.items()))
    gpu = winner.offer.gpu.id
    output.note(f"next: `provision image {flags} --gpu {gpu}`, or `provision node lock {flags} --gpu {gpu}`")


def _digest(content: bytes) -> str:
    import hashlib

    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _refuse_edited(folder: Path, artifacts: list[Artifact]) -> None:
    """Refuse to write over what somebody else wrote, or edited: an inventory has its addresses by then.

    The plan of an earlier call knows the digests of what it wrote.
    """
    known = _known_digests(folder)
    edited = []
    for artifact in artifacts:
        try:
            content = (folder / artifact.path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError as error:
            raise ActionFailedError(f"cannot read {folder / artifact.path}", because=(str(error),)) from error
        if content == artifact.text.encode() or (artifact.path == _PLAN and known):
            continue
        if known.get(artifact.path) != _digest(content):
            edited.append(artifact.path)
    if edited:
        raise UsageError(
            f"{folder} holds files that this command did not write, or that were edited: {', '.join(edited)}",
            because=("they would be written over",),
            hints=("name another folder with `--apply DIR`, or move them away",),
        )


def _known_digests(folder: Path) -> dict[str, str]:
    try:
        document = json.loads((folder / _PLAN).read_bytes())
        files = document["files"]
        return {str(name): str(digest) for name, digest in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
