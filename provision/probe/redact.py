"""Secrets never leave a target's output, and on request names of machines do not either.

:func:`redact` is always applied: what looks like a secret becomes ``<redacted>`` and every other byte stays.
:func:`mask` is for texts that are passed on to strangers: identifiers become pseudonyms, the same one for the same
identifier, so that relations between lines and files stay visible.

Every pattern here runs in time linear in the text: a quantifier is either bounded, or starts only behind a mark that
what it consumes cannot contain again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

REDACTED = "<redacted>"

_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
_NAME = (
    r"(?:pass(?:word|wd|phrase|code)|(?<=[_-])pwd|(?<=[_-])pass|token|secret|credentials?"
    r"|api[_-]?key|(?:access|secret|account|private|encryption|license)[_-]?key(?:[_-]?id)?)"
)
# These are part of many a word that is not a secret's name, so they count in front of an equals sign only.
_SHORT_NAME = (
    r"(?:(?<!by)(?<!com)pass|(?<![a-z])pw|(?<![a-z])psk|(?<!public)(?<=[a-z0-9])_key"
    r"|(?<![a-z])pwd(?=[ \t]?=[ \t]{0,8}[^\s/~.]))"
)
_NAME_NEEDLES = ("pass", "pwd", "token", "secret", "credential", "key")
_KEPT = r"(?!(?:null|none|true|false|yes|no|\d{1,3})(?![^\s\"',;}\]]))"
_TOKENS = {
    ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"): r"gh[pousr]_[A-Za-z0-9]{20,}",
    ("github_pat_",): r"github_pat_[A-Za-z0-9_]{20,}",
    ("glpat-", "gldt-", "glrt-", "glcbt-"): r"gl[a-z]{2,5}-[A-Za-z0-9_-]{20,}",
    ("hf_",): r"hf_[A-Za-z0-9]{20,}",
    ("xox", "xapp-"): r"x(?:ox[a-z]|app)-[A-Za-z0-9-]{10,}",
    ("akia", "asia", "abia", "acca", "aroa", "aida"): r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}",
    ("aiza",): r"AIza[0-9A-Za-z_-]{30,}",
    ("ya29.",): r"ya29\.[0-9A-Za-z_-]{20,}",
    ("gocspx-",): r"GOCSPX-[0-9A-Za-z_-]{20,}",
    ("nvapi-",): r"nvapi-[A-Za-z0-9_-]{20,}",
    ("sk-",): r"sk-[A-Za-z0-9_-]{20,}",
    ("k_live_", "k_test_"): r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
    ("dckr_",): r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}",
    ("npm_",): r"npm_[A-Za-z0-9]{30,}",
    ("pypi-",): r"pypi-[A-Za-z0-9_-]{40,}",
    ("hvs.",): r"hvs\.[A-Za-z0-9_-]{20,}",
    ("swmtkn-",): r"SWMTKN-1-[a-z0-9-]{20,}",
    ("age-secret-key-",): r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
}
"""What a token begins with, in small letters → the token."""

_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    # A key that was cut off in the middle hides all that follows it.
    (
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        REDACTED,
    ),
    # Variables on a line or in quotes of their own: the value goes on to the end, blanks and all.
    (
        _NAME_NEEDLES,
        re.compile(
            r"(?m)((?:^(?:export |declare -x )?|(?<=\"))(?=[A-Z])[A-Z0-9_]{0,96}"
            r"(?:PASS(?:WORD|WD|PHRASE)?|_PWD|TOKEN|SECRET|CREDENTIALS?|(?:API|ACCESS|SECRET|PRIVATE|ACCOUNT)_?KEY"
            r"(?:_ID)?)=)(?:\"(?:[^\"\\\n]|\\.)*\"|" + _KEPT + r"[^\"\n]+)"
        ),
        r"\1" + REDACTED,
    ),
    (
        ("://",),
        re.compile(r"(://[^\s/@:\"'`]{0,256}:)[^\s/\"'`]{1,1024}@"),
        r"\1" + REDACTED + "@",
    ),
    # Short and without figures it is the name of a user.
    (
        ("http",),
        re.compile(
            r"([Hh][Tt][Tt][Pp][Ss]?://)(?:[^\s/@:\"'`<>]{20,1024}|(?=[^\s/@:]{0,20}[0-9A-Z])[^\s/@:\"'`<>]{6,20})@"
        ),
        r"\1" + REDACTED + "@",
    ),
    (
        ("authorization",),
        re.compile(
            r"(?i)(authorization\\?[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\?[\"']?"
            r"(?:(?:basic|bearer|token|digest|negotiate|apikey)[ \t]{1,8})?)" + _KEPT + r"[^\s\"'\\,}\]]+"
        ),
        r"\1" + REDACTED,
    ),
    (("bearer",), re.compile(r"(?i)(\bbearer[ \t]{1,8})[A-Za-z0-9._~+/=-]{8,}"), r"\1" + REDACTED),
    (("cookie:",), re.compile(r"(?i)(\bcookie:[ \t]{0,8})[^\n\"']+"), r"\1" + REDACTED),
    (
        ("auth",),
        re.compile(r"(?i)((?<![A-Za-z0-9])_?auth\\?\"?[ \t]{0,8}[:=]\s{0,8}\\?\")[A-Za-z0-9+/=_-]{8,}"),
        r"\1" + REDACTED,
    ),
    (
        _NAME_NEEDLES,
        re.compile(
            r"(?i)(" + _NAME + r"(?:\\{0,2}[\"'])?[ \t]{0,8}(?:=>|:=|[=:])[ \t]{0,8})"
            r"(?:\\\"[^\"\\\n]*\\\"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"
            # A bare value ends before what separates values of JSON, or the next setting of a list.
            r"|" + _KEPT + r"(?:[^\s\"'`&;,\\}\]]|,(?![A-Za-z0-9_.-]{1,64}=|[\s\"'}\]]|$)|[}\]](?![\s,}\]]|$))+)"
        ),
        "",
    ),
    (
        ("pass=", "pwd=", "pwd =", "pw=", "psk=", "_key=", "pass =", "pw =", "psk =", "_key ="),
        re.compile(
            r"(?i)(" + _SHORT_NAME + r"[ \t]?=[ \t]{0,8})"
            r"(?:\\\"[^\"\\\n]*\\\"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|" + _KEPT + r"[^\s\"'`&;,\\}\]]+)"
        ),
        "",
    ),
    # What follows the word and a colon is a password to the end of the line, blanks and all.
    (
        ("pass",),
        re.compile(r"(?i)(pass(?:word|wd|phrase|code)[ \t]{0,8}:[ \t]{1,8})" + _KEPT + r"[^\s\"'\\`,{\[][^\n\"'\\`]*"),
        r"\1" + REDACTED,
    ),
    (
        _NAME_NEEDLES,
        re.compile(r"(?i)(<[a-z0-9_.:-]{0,40}?" + _NAME + r"(?:[ \t][^<>\n]{0,200})?>)[^<]{1,1024}(?=</)"),
        r"\1" + REDACTED,
    ),
    # Flags whose value is the next word.
    (
        ("--",),
        re.compile(
            r"(?i)((?<![A-Za-z0-9-])--[a-z0-9-]{0,40}?(?:password|passwd|passphrase|token|secret|api-?key|access-key)"
            r"[ \t]{1,8})(?!-)(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s\"'`;|]+)"
        ),
        r"\1" + REDACTED,
    ),
    (("sshpass",), re.compile(r"(\bsshpass[ \t]{1,8}-p[ \t]{0,8})[^\s\"'`]+"), r"\1" + REDACTED),
    (("ipmitool",), re.compile(r"(\bipmitool\b[^\n]{0,200}?[ \t]-P[ \t]{0,8})[^\s\"'`]+"), r"\1" + REDACTED),
    (
        ("mysql", "mariadb"),
        re.compile(r"(\b(?:mysql|mariadb)[a-z-]{0,12}\b[^\n]{0,200}?[ \t]-p)[^\s\"'`]+"),
        r"\1" + REDACTED,
    ),
    (("login",), re.compile(r"(\blogin[ \t][^\n]{0,200}?[ \t]-p[ \t]{1,8})[^\s\"'`]+"), r"\1" + REDACTED),
    (
        ("login",),
        re.compile(r"(\blogin[ \t]{1,8}[^\s]{1,128}\s{1,8}password[ \t]{1,8})[^\s\"'`]+"),
        r"\1" + REDACTED,
    ),
    (
        ("curl",),
        re.compile(r"(\bcurl\b[^\n]{0,200}?[ \t](?:-u|--user|--proxy-user)[ =]{0,2}[\"']?[^\s:\"']{1,128}:)[^\s\"'`]+"),
        r"\1" + REDACTED,
    ),
    (
        ("sig=", "signature=", "x-amz-"),
        re.compile(r"(?i)([?&](?:sig|signature|x-amz-(?:signature|credential))=)[^\s&\"'`;]+"),
        r"\1" + REDACTED,
    ),
    (("/services/",), re.compile(r"(\bhooks\.[a-z0-9.-]{1,64}/services/)[A-Za-z0-9/]{10,}"), r"\1" + REDACTED),
    (
        ("$",),
        re.compile(r"\$(?:[1256]|2[abxy]|y|gy|argon2id?)\$[A-Za-z0-9./$=,+-]{20,}"),
        REDACTED,
    ),
    (
        ("eyj",),
        re.compile(_START + r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,3}"),
        REDACTED,
    ),
    *((needles, re.compile(_START + token), REDACTED) for needles, token in _TOKENS.items()),
)


def redact(text: str) -> str:
    """Return a text with its secrets replaced by ``<redacted>``; the rest stays byte for byte.

    Names of variables, users in addresses and the words around a secret are kept, so that a reader sees what was there.
    Applying it twice changes nothing more.
    """
    # What a replacement leaves behind can, rarely, complete another pattern; two more looks settle that.
    for _ in range(4):
        changed = _redact_once(text)
        if changed == text:
            break
        text = changed
    return text


def _redact_once(text: str) -> str:
    lowered = text.lower()
    for needles, pattern, replacement in _RULES:
        if any(needle in lowered for needle in needles):
            text = pattern.sub(replacement or _keep_quotes, text)
    return text


def _keep_quotes(match: re.Match[str]) -> str:
    """Replace a value and leave its quotes, so that JSON stays JSON."""
    value = match.group()[len(match.group(1)) :]
    for quote in ('\\"', '"', "'"):
        if value.startswith(quote):
            return f"{match.group(1)}{quote}{REDACTED}{quote}" if len(value) > 2 * len(quote) else match.group()
    return f"{match.group(1)}{REDACTED}"


_UUID = re.compile(
    r"(?i)(?<![0-9A-Za-z])(GPU-|MIG-)?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?![0-9A-Za-z])"
)
_SERIAL = re.compile(
    r"(?i)(serial(?:[ _]?(?:number|no))?\\?[\"']?[ \t]{0,40}[>:= \t][ \t]{0,8}\\?[\"']?)"
    r"(?!serial-[0-9])(?=[A-Z0-9-]{0,40}[0-9])([A-Z0-9][A-Z0-9-]{5,40})(?![A-Za-z0-9-])"
)
_PAIR = r"[0-9a-fA-F]{2}"
_MAC = re.compile(
    rf"(?<![0-9A-Za-z:])(?:(?:{_PAIR}:){{19}}|(?:{_PAIR}:){{7}}|(?:{_PAIR}:){{5}}){_PAIR}(?![0-9A-Za-z:])"
)
_GUID = re.compile(r"(?<![0-9A-Za-z:])[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}(?![0-9A-Za-z:])")
_PDI = re.compile(r"(?i)((?:pdi|guid)\s{0,40}[>:=]\s{0,8})0x([0-9a-f]{16})(?![0-9a-f])")
_HOME = re.compile(r"(/home/)(?!user-[0-9])([^/\s:;,'\"`]{1,64})")
_IPV4 = re.compile(r"(?<![0-9A-Za-z._~+-])(?<!==)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9A-Za-z_~+-]|\.[0-9])")
_IPV6 = re.compile(r"(?<![0-9A-Za-z:.])[0-9a-fA-F:]{3,39}(?![0-9A-Za-z:])")

_VERSIONS_ONLY = frozenset(
    {
        "packages",
        "holds",
        "python",
        "libraries",
        "dkms",
        "driver-firmware",
        "nvcc",
        "toolkit",
        "torch",
        "tensorflow",
        "jax",
        "module-nvidia",
        "driver-version",
        "driver-gpus",
        "nvidia-smi-xml",
        "initramfs",
        "kernels",
    }
)
"""Probes whose dotted numbers are versions; four of their parts look like an address and are none."""

_ORDINARY = frozenset(
    {
        "local",
        "localhost",
        "gpu",
        "gpus",
        "node",
        "nodes",
        "host",
        "nvidia",
        "cuda",
        "docker",
        "linux",
        "kernel",
        "ubuntu",
        "debian",
        "server",
        "test",
        "root",
        "user",
        "nccl",
        "driver",
        "pci",
        "cpu",
        "mem",
        "net",
        "login",
    }
)
"""Names that are words of every log; to replace them would hide the log and no machine."""


class Mask:
    """Identifiers → pseudonyms, one table for all the texts that belong together.

    Args:
        hosts: Names of machines as the person gave them; a name's first label counts too.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._hosts: dict[str, str] = {}
        for host in hosts:
            self._add_host(host)
        names = sorted(self._hosts, key=lambda name: (-len(name), name))
        self._pattern = (
            re.compile(r"(?i)(?<![A-Za-z0-9-])(?:" + "|".join(map(re.escape, names)) + r")(?![A-Za-z0-9-])")
            if names
            else None
        )

    def __call__(self, text: str, probe: str = "") -> str:
        """Return a text with its identifiers replaced.

        Args:
            text: Any text.
            probe: The probe it came from: where dotted numbers are versions, they are left alone.
        """
        text = _UUID.sub(self._uuid, text)
        text = _SERIAL.sub(lambda match: match.group(1) + self._name("serial", match.group(2)), text)
        text = _MAC.sub(lambda match: self._name("mac", match.group()), text)
        text = _GUID.sub(lambda match: self._name("guid", match.group()), text)
        text = _PDI.sub(lambda match: match.group(1) + self._name("device", match.group(2)), text)
        text = _HOME.sub(lambda match: match.group(1) + self._name("user", match.group(2)), text)
        text = _IPV6.sub(self._address(6), text)
        if probe not in _VERSIONS_ONLY:
            text = _IPV4.sub(self._address(4), text)
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._hosts[match.group().lower()], text)
        return text

    def host(self, name: str) -> str:
        """Return the pseudonym of a machine, also of one that was not named before."""
        return self._hosts.get(name.lower()) or self._name("host", name)

    def _add_host(self, host: str) -> None:
        name = host.strip().lower()
        if len(name) < 3 or name in _ORDINARY or name in self._hosts:
            return
        known = self._name("host", name)
        self._hosts[name] = known
        label = name.partition(".")[0]
        if len(label) > 2 and label not in _ORDINARY and not label.isdigit():
            self._hosts.setdefault(label, known)

    def _name(self, kind: str, value: str) -> str:
        key = (kind, value.lower())
        if key not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[key] = f"{kind}-{self._counts[kind]}"
        return self._names[key]

    def _uuid(self, match: re.Match[str]) -> str:
        kind = f"{match.group(1).upper()}uuid" if match.group(1) else "uuid"
        return self._name(kind, match.group(2))

    def _address(self, version: int) -> Callable[[re.Match[str]], str]:
        from ipaddress import ip_address

        def replace(match: re.Match[str]) -> str:
            text = match.group()
            if version == 6 and text.count(":") < 2:
                return text
            try:
                address = ip_address(text)
            except ValueError:
                return text
            # These name no machine.
            if address.is_loopback or address.is_unspecified or text.startswith("255."):
                return text
            return self._name("ip", address.compressed)

        return replace


def mask(text: str, hosts: Iterable[str] = ()) -> str:
    """Return a text with the identifiers of machines replaced by pseudonyms.

    Args:
        text: Any text; UUIDs, serial numbers, hardware and network addresses in it are found by their form.
        hosts: Names of machines to hide besides.
    """
    return Mask(hosts)(text)
