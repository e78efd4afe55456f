"""`provision data update`: flags in, a bundle; what is in force then, in words."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from provision.assets import facts_dir, is_installed, read_date
from provision.cli.output import Output
from provision.errors import UsageError, without_secrets

if TYPE_CHECKING:
    from provision.refresh.client import Client


def update(options: argparse.Namespace, output: Output) -> int:
    """Put the facts of a bundle in force, or go back to the shipped ones.

    Raises:
        UsageError: A flag makes no sense, or this is a checkout.
        MissingDependencyError: There is no ssh-keygen, or the server does not answer.
        DataError: The signature is wrong, or the facts are damaged or older.
        ActionFailedError: They cannot be written.
    """
    from provision.refresh.bundle import read_bundle, remove_update
    from provision.refresh.bundle import update as take

    if options.data_dir is not None:
        raise UsageError("--data-dir has no effect on an update", hints=("leave it out",))
    if not is_installed():
        raise UsageError(
            "a checkout has its own facts, and no update takes their place",
            because=(f"they are in {facts_dir()}",),
            hints=("`git pull` brings those of the project", "`provision data refresh` reads upstream"),
        )
    if options.shipped:
        if options.place is not None:
            raise UsageError("--shipped and --from exclude each other", hints=("leave one of the two out",))
        is_gone = not output.is_dry_run and remove_update()
        dated = read_date(facts_dir())
        output.give({"facts_date": dated, "is_changed": is_gone}, f"facts of {dated}, as this release ships them")
        return 0
    if options.place is None:
        raise UsageError(
            "update needs to know which bundle", hints=("name its address or file, as in `--from facts.tar.gz`",)
        )
    if options.signers is None:
        raise UsageError(
            "update needs to know whose signature counts",
            because=("this release ships no key",),
            hints=("name a file with the publisher's public key, a line `facts ssh-ed25519 …`, with `--signers FILE`",),
        )
    if not options.signers.is_file():
        raise UsageError(f"--signers: {options.signers} is not a file", hints=("name a file with public keys",))
    bundle, signature = read_bundle(options.place, _connect)
    shown = without_secrets(options.place)
    done = take(bundle, signature, options.signers, shown, facts_dir(), is_dry_run=output.is_dry_run)
    is_newer = done.after > done.before
    said = (
        f"facts of {done.after} {'would be' if output.is_dry_run else 'are'} in force; before: {done.before}"
        if is_newer
        else f"facts of {done.before} are in force, and {shown} is of that day"
    )
    output.give(
        {
            "facts_date": done.after,
            "before": done.before,
            "is_changed": done.folder is not None,
            "folder": str(done.folder) if done.folder is not None else None,
        },
        said,
    )
    return 0


def _connect() -> Client:
    from provision.refresh.client import Client

    return Client(concurrency=1)
