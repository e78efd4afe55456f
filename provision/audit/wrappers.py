"""Programs that run another program: which of their words are that program's."""

from __future__ import annotations

from collections.abc import Sequence

SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh"))

_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset(("-u", "--user", "-g", "--group")),
    "doas": frozenset(("-u", "-C")),
    "env": frozenset(("-u", "--unset", "-C", "--chdir")),
    "exec": frozenset(("-a",)),
    "command": frozenset(),
    "builtin": frozenset(),
    "nice": frozenset(("-n", "--adjustment")),
    "ionice": frozenset(("-c", "-n")),
    "nohup": frozenset(),
    "stdbuf": frozenset(("-i", "-o", "-e")),
    "timeout": frozenset(("-k", "-s", "--signal", "--kill-after")),
    "xargs": frozenset(("-a", "-n", "-L", "-P", "-I", "-d", "--arg-file", "--max-args", "--delimiter")),
    "gosu": frozenset(),
    "su-exec": frozenset(),
    "catchsegv": frozenset(),
    "tini": frozenset(("-p", "-e")),
    "dumb-init": frozenset(("-r", "--rewrite")),
}
"""Program that runs another → its own flags that take a value."""
_TAKES_A_WORD = frozenset(("timeout", "gosu", "su-exec"))
_RUNNERS = frozenset(("conda", "mamba", "micromamba", "poetry", "pdm", "pipenv", "uv", "hatch"))
"""Programs whose ``run`` runs another."""
_VALUED_BY_RUNNERS = frozenset(
    ("-n", "--name", "-p", "--prefix", "--python", "--with", "--project", "--directory", "--extra", "--group")
)
_VALUED_BY_SHELLS = frozenset(("--rcfile", "--init-file"))
_SWITCHES_OF_USER = frozenset(("su", "runuser"))
_DEPTH_MAX = 6


def unwrap(words: Sequence[str | None]) -> tuple[int, bool]:
    """Return where the innermost program stands that a command runs, and whether words are added that nobody can see.

    Args:
        words: The program and its words, ``None`` for one that is not known.
    """
    start, is_open = 0, False
    for _ in range(_DEPTH_MAX):
        if start >= len(words) or (head := words[start]) is None:
            break
        program = head.rpartition("/")[2]
        second = words[start + 1] if start + 1 < len(words) else None
        if program in _WRAPPERS:
            is_open = is_open or program == "xargs"
            start = _behind_flags(words, start + 1, _WRAPPERS[program])
            while program in ("env", "sudo") and start < len(words) and "=" in (words[start] or ""):
                start += 1
            start += program in _TAKES_A_WORD
        elif program in _RUNNERS and second == "run":
            start = _behind_flags(words, start + 2, _VALUED_BY_RUNNERS)
        elif program == "runuser" and second in ("-u", "--user"):
            start = _behind_flags(words, start + 1, frozenset(("-u", "--user", "-g", "--group")))
        else:
            break
    return start, is_open


def is_script(program: str) -> bool:
    """Tell whether a program, as it is called, is a file of the project's own, by its name."""
    return program.startswith(("./", "../")) or program.endswith(".sh")


def find_script(words: Sequence[str | None]) -> int | None:
    """Return which word is the script that a shell, or ``su``, is given with ``-c``; ``None`` where there is none.

    Args:
        words: The program and its words, ``None`` for one that is not known.
    """
    program = (words[0] or "").rpartition("/")[2] if words else ""
    if program in _SWITCHES_OF_USER:
        found = next((at for at, text in enumerate(words) if text in ("-c", "--command")), len(words))
        return found + 1 if found + 1 < len(words) else None
    return _read_options(words)[1] if program in SHELLS else None


def reads_input(words: Sequence[str | None]) -> bool:
    """Tell whether a shell is given neither a script nor a file, so that it runs what comes on its standard input."""
    end, script = _read_options(words)
    return script is None and end == len(words)


def _read_options(words: Sequence[str | None]) -> tuple[int, int | None]:
    """Return where the options of a shell end, and which word is the script of ``-c``."""
    position = 1
    while position < len(words):
        text = words[position] or ""
        if not text.startswith(("-", "+")):
            break
        is_short = not text.startswith("--")
        # A letter o, alone or among others, is followed by the name of an option: `-euo pipefail`.
        size = 2 if text in _VALUED_BY_SHELLS or (is_short and ("o" in text or "O" in text)) else 1
        if is_short and text.startswith("-") and "c" in text:
            return position, position + size if position + size < len(words) else None
        position += size
    return min(position, len(words)), None


def _behind_flags(words: Sequence[str | None], position: int, valued: frozenset[str]) -> int:
    while position < len(words):
        text = words[position]
        if text == "--":
            return position + 1
        if text is None or not text.startswith("-"):
            break
        position += 2 if text in valued else 1
    return position
