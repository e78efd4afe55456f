"""New facts to disk: checked as a whole on a copy first, then all files or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from provision.errors import ActionFailedError, DataError
from provision.files import try_lock
from provision.generate.write import Artifact, write_artifacts
from provision.matrix.check import Finding, check
from provision.refresh.book import forget, is_as_read

_UNRELEASED = "## [Unreleased]"
_FACTS = "### Facts"


def check_result(folder: Path, texts: Mapping[str, str]) -> None:
    """Hold what the folder would become against every rule of the facts.

    Faults that are in the folder already are not laid on the refresh.

    Args:
        folder: A folder laid out like ``compat/``.
        texts: Path below it → new text.

    Raises:
        DataError: The result would break a rule that the folder keeps.
        ActionFailedError: There is no room for the copy.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="provision-refresh-") as place:
            copy = Path(place) / "compat"
            # Links cost nothing; a file that changes is removed first, so that the original stays as it is.
            shutil.copytree(folder, copy, copy_function=_link)
            for name, text in texts.items():
                target = copy / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                target.write_text(text, encoding="utf-8")
            after = check(copy)
            before = {_plain(finding) for finding in check(folder)} if after else set()
    except OSError as error:
        raise ActionFailedError(
            "the new facts cannot be checked", because=(f"{error.strerror or error}: {error.filename or ''}",)
        ) from error
    faults = [finding for finding in after if _plain(finding) not in before]
    if faults:
        raise DataError(
            f"the new facts would break {len(faults)} {'rule' if len(faults) == 1 else 'rules'}; nothing was written",
            because=[f"{item.file}: {item.where}: {item.rule} {item.message}" for item in faults[:20]],
            hints=("leave out what is at fault with `--only`", "compat/README.md says what each rule means"),
            details={"findings": [_plain(item) for item in faults]},
        )


def _plain(finding: Finding) -> tuple[str, str, str]:
    # Places move when rows come; what is said of them stays.
    return finding.file, finding.rule, finding.message


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


class Claim:
    """The right to write a folder of facts: while one refresh has it, every other is refused, before it reads a page.

    It is a context, and ends with the process at the latest. A folder that is not there yet is claimed when it is made.

    Args:
        folder: The facts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_new = not folder.exists()
        self._descriptor: int | None = None

    def __enter__(self) -> Claim:
        """Take it.

        Raises:
            ActionFailedError: Another refresh has it.
        """
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def take(self) -> None:
        """Take it, unless it is taken or there is no folder yet.

        Raises:
            ActionFailedError: Another refresh has it.
        """
        if self._descriptor is not None:
            return
        try:
            # The folder itself is locked: a file for it would be no fact.
            self._descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            # Whoever writes there next says why it cannot be done.
            return
        try:
            is_free = try_lock(self._descriptor)
        except OSError:
            # Some network file systems have no locks; what was changed in between is still seen.
            return
        if not is_free:
            self.__exit__()
            raise ActionFailedError(
                f"another refresh of the facts in {self.folder} is at work; nothing was written",
                because=("two at once would undo each other's rows",),
                hints=("let it end, then run the same command again", "`provision data diff` writes nothing"),
            )


def land(claim: Claim, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Write the files, so that a reader sees all of the old ones or each new one whole.

    Args:
        claim: The right to write the folder, open.
        texts: Path below the folder → new text.

    Returns:
        The files written, by name.

    Raises:
        ActionFailedError: The disk is full or read-only, permission is missing, or somebody else has written these
            facts; nothing was changed.
    """
    folder = claim.folder
    artifacts = tuple(Artifact(path=name, text=text) for name, text in sorted(texts.items()))
    claim.take()
    others = [name for name in sorted(texts) if not is_as_read(folder / name)]
    if claim.is_new:
        others = [name for name in sorted(texts) if (folder / name).exists()]
    if others:
        raise ActionFailedError(
            f"the facts in {folder} were changed while upstream was read; nothing was written",
            because=(f"{', '.join(others[:5])}: another refresh, or a person, wrote there in the meantime",),
            hints=("run the same command again: what was read is kept, so it takes less time",),
        )
    written = write_artifacts(folder, artifacts, force=True).written
    claim.is_new = False
    for name in written:
        forget(folder / name)
    return written


def write_entry(text: str, lines: list[str]) -> str:
    """Return a changelog with lines added under **Facts** of what is not released yet.

    Args:
        text: The changelog.
        lines: The lines of one entry; an entry that is there already is not added again.
    """
    if not lines or "\n".join(lines) in text:
        return text
    rows = text.splitlines()
    start = next((number for number, row in enumerate(rows) if row.startswith(_UNRELEASED)), None)
    if start is None:
        head = next((number for number, row in enumerate(rows) if row.startswith("## ")), len(rows))
        rows[head:head] = [_UNRELEASED, "", _FACTS, "", *lines, ""]
        return "\n".join(rows) + "\n"
    end = next((n for n in range(start + 1, len(rows)) if rows[n].startswith("## ")), len(rows))
    facts = next((n for n in range(start, end) if rows[n].strip() == _FACTS), None)
    if facts is None:
        while end > start + 1 and not rows[end - 1].strip():
            end -= 1
        rows[end:end] = ["", _FACTS, "", *lines]
        return "\n".join(rows) + "\n"
    stop = next((n for n in range(facts + 1, end) if rows[n].startswith("#")), end)
    while stop > facts + 1 and not rows[stop - 1].strip():
        stop -= 1
    rows[stop:stop] = [*lines] if stop > facts + 1 else ["", *lines]
    return "\n".join(rows) + "\n"
