"""Users and passwords of package indexes and repositories: where pip, uv and git find them, by host.

They are held apart from every address, so that neither a lock nor a message nor a record can show one. Whoever needs
them gets a netrc file, which pip, uv and git read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from provision.errors import USERINFO, UsageError
from provision.records import NOTHING

_SIGNED = r"(?<![A-Za-z])((?:git\+)?https?://)([^/?#\s]*)@"
_BARE = r"[!$-\[\]-~]+"


def host_of(address: str) -> str:
    """Return the host of an address, as a netrc file names it: without its port."""
    try:
        return urlsplit(address.removeprefix("git+")).hostname or ""
    except ValueError:
        return ""


class Accounts:
    """Who is asked for by a server, by its host.

    Args:
        variables: The environment; the process's own when absent.
        home: The user's home folder; the process's own when absent.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, home: Path | None = None) -> None:
        self._variables = os.environ if variables is None else variables
        self._home = home
        self._told: dict[str, tuple[str, str]] = {}
        self._places: dict[str, str] = {}
        self._kept: dict[str, tuple[str, str]] | None = None

    def take(self, text: str, where: str) -> str:
        """Return a text without the users and passwords in its addresses, which are remembered.

        Args:
            text: An address, or a requirement with one.
            where: What to call its place in a message.

        Raises:
            UsageError: There are two accounts for one host, or one that no netrc file can hold, or one that ends before
                its ``@``.
        """
        for match in re.finditer(_SIGNED, text):
            user, _, password = match[2].partition(":")
            place = re.split(r"[/?#\s]", text[match.end() :], maxsplit=1)[0]
            self._tell(place.partition(":")[0], unquote(user), unquote(password), where)
            self._places[f"{match[1].removeprefix('git+')}{place}"] = place.partition(":")[0].lower()
        text = re.sub(_SIGNED, r"\1", text)
        if (left := re.search(USERINFO, text)) and text[: left.start()].endswith(("http://", "https://")):
            raise UsageError(
                f"{where}: the address has a user and a password that end before their `@`",
                because=("`/`, `?`, `#` and a space end them, so that the rest would count as the place",),
                hints=("percent-encode them: `%2F` for `/`, `%3F` for `?`, `%23` for `#`, `%20` for a space",),
            )
        return text

    def take_named(self, name: str, address: str) -> None:
        """Remember what uv's variables say of an index by its name: ``UV_INDEX_NAME_USERNAME`` and ``…_PASSWORD``.

        Raises:
            UsageError: As for :meth:`take`.
        """
        start = f"UV_INDEX_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
        user, password = (self._variables.get(f"{start}_{part}", "") for part in ("USERNAME", "PASSWORD"))
        if user or password:
            self._tell(host_of(address), user, password, start)

    def _tell(self, host: str, user: str, password: str, where: str) -> None:
        host = host.lower()
        if any(not text.isprintable() or not text.isascii() for text in (user, password)):
            raise UsageError(
                f"{where}: the user or password for {host} has a character other than printable ASCII",
                hints=("percent-encode it in an address",),
            )
        if self._told.setdefault(host, (user, password)) != (user, password):
            raise UsageError(
                f"{where}: {host} has two users or passwords",
                because=("a netrc file, which tells them to pip, uv and git, has one for a host",),
                hints=("keep one of the two",),
            )

    def find(self, host: str) -> tuple[str, str] | None:
        """Return user and password for a host: those an address or a variable told, else those of the netrc file."""
        return self._told.get(host.lower()) or self._from_file().get(host)

    def known(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Return those of some hosts that there are a user and a password for, by name."""
        return tuple(sorted({host for host in hosts if host and self.find(host) is not None}))

    @property
    def is_told(self) -> bool:
        """Whether any came from elsewhere than the netrc file, which pip, uv and git find by themselves."""
        return bool(self._told)

    def netrc(self, hosts: Iterable[str] | None = None) -> str:
        """Return a netrc file about some hosts, or about all."""
        every = {**self._from_file(), **self._told}
        rows = every if hosts is None else {host: account for host in hosts if (account := self.find(host))}
        return "".join(
            f"machine {host} login {_word(user)} password {_word(password)}\n"
            for host, (user, password) in sorted(rows.items())
        )

    def git_credentials(self) -> str:
        """Return what git's helper ``store`` reads: git looks for no netrc file but the one in the home folder."""
        from urllib.parse import quote

        lines = []
        for place, host in sorted(self._places.items()):
            scheme, _, rest = place.partition("://")
            user, password = (quote(part, safe="") for part in self._told[host])
            lines.append(f"{scheme}://{user}:{password}@{rest}\n")
        return "".join(lines)

    def _from_file(self) -> dict[str, tuple[str, str]]:
        if self._kept is None:
            rows: Mapping[str, tuple[str, str | None, str | None]] = NOTHING
            with suppress(OSError, RuntimeError):  # there is no folder of the user's
                place = Path(self._variables.get("NETRC") or (self._home or Path.home()) / ".netrc")
                rows = _rows_of(place) if place.is_file() else NOTHING
            self._kept = {host: (row[0], row[2] or "") for host, row in rows.items() if host != "default"}
        return self._kept


def _rows_of(place: Path) -> Mapping[str, tuple[str, str | None, str | None]]:
    # This import takes longer than it takes to see that there is no such file.
    import netrc

    try:
        return netrc.netrc(str(place)).hosts
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return NOTHING  # pip cannot read it either


def _word(text: str) -> str:
    if re.fullmatch(_BARE, text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
