"""A rank lost its connection to another one: that one ended, or the network between them failed."""

from __future__ import annotations

from provision.doctor.case import Case, Quote
from provision.doctor.hint import hint
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"\bncclRemoteError\b",
    r"NCCL.{0,200}remote process exited or there was a network error",
    r"NCCL WARN.{0,40}Connection closed by remote peer",
    r"NCCL WARN.{0,60}Call to (?:recv|send) (?:from|to).{0,120}failed : (?:Connection reset by peer|Broken pipe)",
    r"NCCL WARN.{0,20}Call to (?:read|write|recv|send) failed : (?:Connection reset by peer|Broken pipe)",
    r"retrieving ncclUniqueId.{0,160}got error: (?:Connection reset|Broken pipe)",
    r"gloo/transport/tcp/pair\.cc.{0,40}Connection (?:closed|reset) by peer",
    r"Connection was likely closed\. Did the remote server shutdown or crash|failed to recv, got 0 bytes",
)

_CLOSED = (
    r"Connection closed by remote peer (\S{1,200}?)(?:<[0-9]{1,5}>|\s|$)",
    r"Call to (?:recv|send) (?:from|to) (\S{1,80}?)<[0-9]{1,5}> failed : (?:Connection reset by peer|Broken pipe)",
)
_FAILED_TRANSFER = (
    r"NET/IBP?\s?: ?Got (?:completion|async)",
    r"NET/OFI.{0,80}completed with error",
)
_PEERS_MAX = 4
# What torchrun and faulthandler say of a rank that a signal ended; 15 is what a launcher sends to the others.
_KILLED = (
    r"exitcode\s{1,4}: -(?:6|7|9|11) \(pid: [0-9]{1,10}\)",
    r"Signal (?:6|7|9|11) \(SIG[A-Z]{3,5}\) received by PID",
)
_LOG = "the logs of all ranks before this message, and the kernel logs of their hosts"


def examine(case: Case) -> Sign | None:
    """Tell a connection that a peer closed, as its end does, from a transfer that the network failed."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    killed = case.find(*_KILLED)
    failed = case.find(*_FAILED_TRANSFER)
    peers = tuple(dict.fromkeys(found.match[1] for found in case.find_all(*_CLOSED)))[:_PEERS_MAX]
    seen: list[str] = []
    if killed is not None:
        seen.append(f'a rank was ended by a signal: "{killed.line}"')
    if failed is not None and failed.line != quote.line:
        seen.append(f'the network failed a transfer: "{failed.line}"')
    if peers and failed is None:
        seen.append(f"{_name(peers)} closed the connection, as a rank does that ends")
    first = next(iter(case.events("xid", "fallen-off", "nccl-segfault")), None)
    if first is not None:
        seen.append(f"the kernel log has: {first.text}")
    return hint(
        quote,
        seen=seen,
        expected="every rank runs on, and its connections hold",
        unseen=_unseen(killed, bool(first)),
    )


def _name(peers: tuple[str, ...]) -> str:
    return f"{'peer' if len(peers) == 1 else 'peers'} {', '.join(peers)}"


def _unseen(killed: Quote | None, has_event: bool) -> tuple[str, ...]:
    return () if killed is not None or has_event else (_LOG,)
