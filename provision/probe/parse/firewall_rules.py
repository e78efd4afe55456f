"""What nft, iptables, ufw and firewalld say of incoming packets, each in its own listing.

Only what a cluster needs to know is taken: whether a packet that no rule names is dropped, and which networks and TCP
ports some rule lets in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from provision.probe.output import Unreadable
from provision.probe.parse.recorded import kept
from provision.records import record

_PORTS = re.compile(r"([0-9]{1,5})(?:[:-]([0-9]{1,5}))?")
_NETWORK = re.compile(r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]{1,45})(?:/[0-9.]{1,15})?")
_IPTABLES_COMMENT = re.compile(r'(?:-m comment )?--comment (?:"[^"]*"|\S+) ?')
_NFT_ASIDE = re.compile(r'counter packets [0-9]+ bytes [0-9]+|counter(?! name)|(?:comment )?"[^"]*"')
_NFT_MATCH = re.compile(r"\b(\w+) (saddr|dport) (!= )?(?:\{([^{}]*)\}|(\S+))")
_NFT_HOOK = re.compile(r"type filter hook input priority [^;]{1,60};(?: policy (\w+);)?")
_UFW_DEFAULT = re.compile(r"Default: (\w+) \(incoming\)")
_FIREWALLD_ZONE = re.compile(r"([A-Za-z0-9_-]{1,40})(?: \(([a-z, ]{1,40})\))?")
_FIREWALLD_SOURCE = re.compile(r'source address="([^"]{1,60})"')
_FIREWALLD_PORT = re.compile(r'port port="([^"]{1,20})" protocol="tcp"')
_REFUSALS = ("drop", "reject")


@record
class FirewallRules:
    """What one tool does with incoming packets.

    Attributes:
        drops: Whether a packet that no rule names is dropped; ``None`` where the listing does not tell.
        sources: Networks that some rule accepts from.
        ports: TCP ports and ranges that some rule accepts.
    """

    drops: bool | None = None
    sources: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()


@record
class _Rule:
    """A rule of a chain.

    ``verdict`` is ``accept``, ``drop``, ``jump``, ``return``, or empty for one that lets packets go on.
    """

    verdict: str = ""
    target: str = ""
    is_conditional: bool = True
    sources: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()


def read_iptables(lines: Sequence[str]) -> FirewallRules | None:
    """Read ``iptables -S``; ``None`` where it filters nothing that comes in.

    Raises:
        Unreadable: A line has another form, or no policy stands in it.
    """
    policy: str | None = None
    chains: dict[str, list[_Rule]] = {}
    for line in lines:
        words = _IPTABLES_COMMENT.sub("", line).split()
        if words[:2] == ["-P", "INPUT"] and len(words) >= 3:
            policy = words[2].lower()
        elif words and words[0] == "-A" and len(words) >= 2:
            chains.setdefault(words[1], []).append(_iptables_rule(words[2:]))
        elif words and words[0] == "-N" and len(words) == 2:
            chains.setdefault(words[1], [])
        elif not words or words[0] not in ("-P", "#"):
            raise Unreadable(f"iptables has a line of another form: `{kept(line, 80)}`")
    if policy is None:
        raise Unreadable("iptables tells no policy for incoming packets")
    if policy == "accept" and not chains.get("INPUT"):
        return None
    return _judge(chains, "INPUT", policy)


def read_nft(lines: Sequence[str]) -> FirewallRules | None:
    """Read ``nft list ruleset``; ``None`` where it filters nothing that comes in.

    Raises:
        Unreadable: It is not a rule set, or ends in the middle of one.
    """
    tables = _nft_tables(lines)
    found = []
    for family, sets, chains in tables:
        rules = {name: [_nft_rule(line, sets) for line in body] for name, body in chains.items()}
        for name, body in chains.items():
            hook = next((hook for line in body if (hook := _NFT_HOOK.match(line))), None)
            if hook is not None and family in ("ip", "inet", "ip6"):
                judged = _judge(rules, name, hook[1] or "accept")
                # Most talk goes over IPv4; rules for IPv6 alone do not decide.
                found.append(FirewallRules(sources=judged.sources, ports=judged.ports) if family == "ip6" else judged)
    if not found:
        return None
    answers = [judged.drops for judged in found if judged.drops is not None]
    return FirewallRules(
        drops=any(answers) if answers else None,
        sources=_unique(source for judged in found for source in judged.sources),
        ports=_unique(port for judged in found for port in judged.ports),
    )


def read_ufw(lines: Sequence[str]) -> FirewallRules | None:
    """Read ``ufw status verbose``; ``None`` where it is switched off.

    Raises:
        Unreadable: It tells no status.
    """
    status = next((line.partition(":")[2].strip() for line in lines if line.startswith("Status:")), "")
    if status == "inactive":
        return None
    if status != "active":
        raise Unreadable("ufw does not report whether it is active")
    drops: bool | None = None
    sources: list[str] = []
    ports: list[str] = []
    for line in lines:
        if default := _UFW_DEFAULT.match(line):
            drops = {"deny": True, "reject": True, "allow": False}.get(default[1])
        elif (row := _ufw_row(line)) is not None:
            to, origin = row
            sources += _networks(origin[:1])
            ports += [port for word in to[:2] if not word.endswith("/udp") for port in _ports(word.split("/")[0])]
    return FirewallRules(drops=drops, sources=_unique(sources), ports=_unique(ports))


def read_firewalld(lines: Sequence[str]) -> FirewallRules | None:
    """Read ``firewall-cmd --list-all`` or ``--list-all-zones``; ``None`` where firewalld does not run.

    Only active zones count; whether packets are dropped is told by those that hold an interface.

    Raises:
        Unreadable: No zone stands in it.
    """
    if any("not running" in line for line in lines[:2]):
        return None
    zones: list[tuple[str, dict[str, str], list[str]]] = []
    for line in lines:
        zone = _FIREWALLD_ZONE.fullmatch(line)
        if zone:
            zones.append((zone[2] or "", {}, []))
        elif line[0].isspace() and zones:
            key, _, value = line.strip().partition(":")
            zones[-1][1].setdefault(key, value.strip())
            if line.strip().startswith("rule "):
                zones[-1][2].append(line)
        else:
            raise Unreadable(f"firewalld has a line of another form: `{kept(line, 80)}`")
    if not zones:
        raise Unreadable("firewalld lists no zone")
    drops: list[bool] = []
    sources: list[str] = []
    ports: list[str] = []
    for marks, values, rules in zones:
        if "active" not in marks:
            continue
        accepts_all = values.get("target") == "ACCEPT"
        if values.get("interfaces"):
            drops.append(not accepts_all)
        if accepts_all:
            sources += _networks(values.get("sources", "").split())
        for port in values.get("ports", "").split():
            ports += _ports(port.removesuffix("/tcp"))
        for rule in rules:
            if rule.endswith(" accept"):
                sources += _networks(_FIREWALLD_SOURCE.findall(rule))
                ports += [port for word in _FIREWALLD_PORT.findall(rule) for port in _ports(word)]
    return FirewallRules(drops=any(drops) if drops else None, sources=_unique(sources), ports=_unique(ports))


def _judge(chains: Mapping[str, list[_Rule]], start: str, policy: str) -> FirewallRules:
    """Follow the rules from where packets come in, as the kernel would one that no condition fits."""
    verdict = _verdict(chains, start) or ("drop" if policy in _REFUSALS else "accept")
    accepting = [rule for chain in _reached(chains, start) for rule in chains[chain] if rule.verdict == "accept"]
    return FirewallRules(
        drops=verdict == "drop",
        sources=_unique(source for rule in accepting for source in rule.sources),
        ports=_unique(port for rule in accepting for port in rule.ports),
    )


def _verdict(chains: Mapping[str, list[_Rule]], start: str) -> str:
    """Return what the first rule without a condition says, in a chain or in those it always goes through."""
    entered = {start}
    waiting = [iter(chains.get(start, ()))]
    while waiting:
        rule = next(waiting[-1], None)
        if rule is None:
            waiting.pop()
        elif rule.is_conditional:
            continue
        elif rule.verdict in ("accept", "drop"):
            return rule.verdict
        elif rule.verdict == "return":
            waiting.pop()
        elif rule.verdict == "jump" and rule.target in chains and rule.target not in entered:
            entered.add(rule.target)
            waiting.append(iter(chains[rule.target]))
    return ""


def _reached(chains: Mapping[str, list[_Rule]], start: str) -> list[str]:
    """Return a chain and all that its rules may send packets to, in the order they are met."""
    reached, waiting = {start: None}, [start]
    while waiting:
        for rule in chains.get(waiting.pop(), ()):
            if rule.verdict == "jump" and rule.target in chains and rule.target not in reached:
                reached[rule.target] = None
                waiting.append(rule.target)
    return [chain for chain in reached if chain in chains]


def _iptables_rule(words: list[str]) -> _Rule:
    options = dict(pairwise(words))
    target = options.get("-j") or options.get("-g") or ""
    verdict = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "drop", "RETURN": "return", "LOG": ""}.get(target, "jump")
    is_tcp = options.get("-p", "tcp") in ("tcp", "all")
    if "!" in words:
        return _Rule(verdict=verdict, target=target)
    named = (options.get(name, "") for name in ("--dport", "--dports"))
    return _Rule(
        verdict=verdict,
        target=target,
        is_conditional=words[:1] not in (["-j"], ["-g"]),
        sources=_networks(options.get(name, "") for name in ("-s", "--source")),
        ports=_unique(port for word in named for port in _ports(word)) if is_tcp else (),
    )


def _nft_tables(lines: Sequence[str]) -> list[tuple[str, dict[str, list[str]], dict[str, list[str]]]]:
    """Return family, elements of named sets and lines of chains of each table."""
    tables: list[tuple[str, dict[str, list[str]], dict[str, list[str]]]] = []
    blocks: list[tuple[str, str]] = []
    elements: list[str] | None = None
    for line in (line.strip() for line in lines):
        if elements is not None:
            elements += line.strip("} ").split(",")
            elements = None if line.endswith("}") else elements
        elif line == "}":
            if not blocks:
                raise Unreadable("nft closes a block that was not opened")
            blocks.pop()
        elif line.endswith("{") and not line.startswith("elements"):
            blocks.append(_nft_block(line, tables, is_outermost=not blocks))
        elif not blocks and not line.startswith("#"):
            raise Unreadable(f"nft has a line of another form: `{kept(line, 80)}`")
        elif blocks and blocks[-1][0] == "set" and line.startswith("elements = {"):
            elements = tables[-1][1].setdefault(blocks[-1][1], [])
            elements += line[len("elements = {") :].strip("} ").split(",")
            elements = None if line.endswith("}") else elements
        elif blocks and blocks[-1][0] == "chain":
            tables[-1][2].setdefault(blocks[-1][1], []).append(line)
    if blocks or elements is not None:
        raise Unreadable("nft's rule set ends in the middle of a block")
    return tables


def _nft_block(
    line: str, tables: list[tuple[str, dict[str, list[str]], dict[str, list[str]]]], *, is_outermost: bool
) -> tuple[str, str]:
    words = line[:-1].split()
    if is_outermost != (words[:1] == ["table"]) or (is_outermost and len(words) not in (2, 3)):
        raise Unreadable(f"nft has a line of another form: `{kept(line, 80)}`")
    if is_outermost:
        tables.append((words[1] if len(words) == 3 else "ip", {}, {}))
        return "table", words[-1]
    kind, name = (words[0], words[-1]) if words else ("", "")
    if kind == "chain":
        tables[-1][2].setdefault(name, [])
    return kind, name


def _nft_rule(line: str, sets: Mapping[str, list[str]]) -> _Rule:
    said = _NFT_ASIDE.sub("", line).strip()
    if not said or said.startswith("type "):
        return _Rule()
    words = said.split()
    refusal = next((place for place, word in enumerate(words) if word in _REFUSALS), None)
    verdict = target = ""
    place = len(words)
    if words[-1] in ("accept", "return"):
        verdict, place = words[-1], len(words) - 1
    elif len(words) >= 2 and words[-2] in ("jump", "goto"):
        verdict, target, place = "jump", words[-1], len(words) - 2
    elif refusal is not None and "vmap" not in words:
        verdict, place = "drop", refusal
    sources: list[str] = []
    ports: list[str] = []
    for protocol, what, is_negated, listed, word in _NFT_MATCH.findall(said):
        if is_negated:
            continue
        values = listed.split(",") if listed else sets.get(word[1:], []) if word.startswith("@") else [word]
        if what == "saddr" and protocol in ("ip", "ip6"):
            sources += _networks(value.strip() for value in values)
        elif what == "dport" and protocol in ("tcp", "th"):
            ports += [port for value in values for port in _ports(value.strip())]
    return _Rule(
        verdict=verdict,
        target=target,
        is_conditional=place > 0 and words[0] != "log",
        sources=_unique(sources),
        ports=_unique(ports),
    )


def _ufw_row(line: str) -> tuple[list[str], list[str]] | None:
    """Return the words of a row's first and last column where it lets something in."""
    words = line.partition(" # ")[0].split()
    for place, word in enumerate(words):
        if word in ("ALLOW", "LIMIT") and place:
            way = words[place + 1] if place + 1 < len(words) else ""
            if way in ("OUT", "FWD"):
                return None
            return words[:place], words[place + 1 + (way == "IN") :]
    return None


def _networks(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word in words if _NETWORK.fullmatch(word))


def _ports(words: str) -> tuple[str, ...]:
    """Return ports and ranges that stand between commas, ranges with a dash."""
    found = (_PORTS.fullmatch(word.strip()) for word in words.split(","))
    return tuple(f"{port[1]}-{port[2]}" if port[2] else port[1] for port in found if port)


def _unique(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
