"""A compiled extension was built for another PyTorch than the one that loads it."""

from __future__ import annotations

import re

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.stack import torch_of

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"undefined symbol: (_Z[A-Z]{0,4}(?:3c10|2at|5torch|6caffe2)[A-Za-z0-9_]{1,400})",
    r"\bflash_attn_[a-z0-9_]{1,20}[A-Za-z0-9_.-]{0,80}\.so: undefined symbol: (\w{1,400})",
)

_FILE = re.compile(r"([^/\s:]{1,120}\.so)(?:\.[0-9.]{1,12})?: undefined symbol")
# The Itanium C++ ABI writes `std::string` as `Ss`, and the one of the C++11 ABI with its inline namespace.
_NEW_STRING = "__cxx11"
_OLD_STRING = re.compile(r"(?:E|RK)Ss(?![a-z])")


def examine(case: Case) -> Sign | None:
    """Name the extension, the PyTorch that loads it, and the C++ strings it was built with."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    symbol = quote.match[1]
    file = _FILE.search(quote.line)
    name = file[1] if file else None
    torch = torch_of(case)
    seen = []
    if name:
        seen.append(f"{name} asks PyTorch for a symbol that it does not have")
    if torch.version:
        seen.append(f"torch {torch.version}{f' for CUDA {torch.cuda}' if torch.cuda else ''} is installed")
    if _NEW_STRING in symbol:
        seen.append("the extension was compiled with the C++11 ABI")
    elif _OLD_STRING.search(symbol):
        seen.append("the extension was compiled with the C++ ABI from before C++11")
    return hint(
        quote,
        confidence="high" if torch.version else "medium",
        seen=seen,
        expected="an extension that was built for the PyTorch, CUDA, Python and C++ ABI that load it",
        unseen=() if torch.version else ("which PyTorch loads it",),
    )
