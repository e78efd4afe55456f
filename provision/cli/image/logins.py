"""Users and passwords of an image's build: which hosts want them, and how an engine gets them as a secret."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from provision.errors import MissingDependencyError, UsageError
from provision.generate.image import ImageOptions, asked_hosts
from provision.generate.recipe import NETRC
from provision.index.account import Accounts, host_of
from provision.records import replace
from provision.resolve.stack import Stack

_NAMED_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX")
_WITHOUT_SECRETS = {
    "apptainer": "build the image from the Dockerfile and convert it: `apptainer build x.sif docker-daemon:NAME:TAG`",
    "devcontainer": "build the image with `--build --tag NAME`, and name that image in devcontainer.json",
    "bake": "leave `--format` out, and build with `--build`",
    "matrix": "write that image alone, without `--matrix`",
}


def take_accounts(options: argparse.Namespace) -> Accounts:
    """Take user and password out of the flags, before any of them is shown, and return where they are kept."""
    accounts = Accounts()
    if options.index_url is not None:
        options.index_url = accounts.take(options.index_url, "--index-url")
    for word in " ".join(os.environ.get(name, "") for name in _NAMED_INDEXES).split():
        name, equals, url = word.partition("=")
        if equals and "://" not in name:
            accounts.take_named(name, url)
    return accounts


def with_logins(
    stack: Stack,
    options: ImageOptions,
    accounts: Accounts,
    *,
    form: str,
    kept: Sequence[str] = (),
    is_locked: bool = False,
) -> ImageOptions:
    """Return how a context is written, with the hosts that its build asks with a user and a password.

    Args:
        stack: What is installed.
        options: How it is written so far.
        accounts: What is known; what the machine's own indexes hold is added.
        form: The form of the context.
        kept: Such hosts of the context as it is.
        is_locked: No other counts.

    Raises:
        UsageError: The form has no secrets.
    """
    asked = asked_hosts(stack, options)
    if asked:
        from provision.index.address import told_accounts

        for url, told_by in told_accounts():
            if host_of(url) in asked:
                accounts.take(url, told_by)
    found = {*kept} if is_locked else {*accounts.known(asked), *asked.intersection(kept)}
    logins = tuple(sorted(found))
    refuse_logins(form, logins)
    return replace(options, logins=logins)


def refuse_ssh(form: str, stack: Stack) -> None:
    """Refuse a form whose builder sees no ssh agent, where a repository is read with a key of one.

    Raises:
        UsageError: It is such a form.
    """
    names = [item.name for item in stack.image.packages if item.is_behind_ssh] if stack.image is not None else []
    if names and form in _WITHOUT_SECRETS:
        raise UsageError(
            f"{' and '.join(names)} is read with a key of the ssh agent, which {_flag(form)} does not hand over",
            hints=(_WITHOUT_SECRETS[form],),
        )


def has_ssh(stack: Stack) -> bool:
    """Tell whether a build needs the ssh agent, after a look whether there is one.

    Raises:
        MissingDependencyError: There is none.
    """
    names = [item.name for item in stack.image.packages if item.is_behind_ssh] if stack.image is not None else []
    if names and not os.environ.get("SSH_AUTH_SOCK"):
        raise MissingDependencyError(
            f"the build reads {' and '.join(names)} with a key of the ssh agent, and no agent runs here",
            hints=("start one with `eval $(ssh-agent)`, and add the key with `ssh-add`",),
        )
    return bool(names)


def refuse_logins(form: str, logins: Sequence[str]) -> None:
    """Refuse a form whose builder would leave users and passwords in the image.

    Raises:
        UsageError: It is such a form.
    """
    if logins and form in _WITHOUT_SECRETS:
        raise UsageError(
            f"{' and '.join(logins)} requires credentials, and {_flag(form)} has no build secret for them",
            hints=(_WITHOUT_SECRETS[form],),
        )


def _flag(form: str) -> str:
    return "`--matrix`" if form == "matrix" else f"`--format {form}`"


@contextmanager
def build_secrets(logins: Sequence[str], accounts: Accounts) -> Iterator[Mapping[str, Path]]:
    """Yield the secrets of a build, each in a file that is gone afterwards.

    Raises:
        UsageError: Of a host neither user nor password are known here.
    """
    import tempfile

    from provision.resolve.requirements import SECRETS_HINT

    if lacking := [host for host in logins if accounts.find(host) is None]:
        raise UsageError(
            f"the build needs credentials for {' and '.join(lacking)}, and none were found here",
            hints=(SECRETS_HINT,),
        )
    if not logins:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="provision-secrets-") as folder:
        path = Path(folder, NETRC)
        path.touch(mode=0o600)
        path.write_text(accounts.netrc(logins), encoding="utf-8")
        yield {NETRC: path}
