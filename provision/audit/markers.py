"""Environment markers of requirements (PEP 508), for Linux and a Python that is known."""

from __future__ import annotations

_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


def holds(marker: str, python: str | None, platforms: tuple[str, ...]) -> bool | None:
    """Tell whether a marker holds.

    Args:
        marker: As written behind the semicolon.
        python: The Python as a minor (``3.10``), ``None`` where it is not known.
        platforms: Platforms that it is built for, none for any.

    Returns:
        ``None`` where that cannot be told, or where the platforms differ.
    """
    if python is None and "python_" in marker:
        return None
    # Few requirements have markers, and this import costs more than the rest of the program.
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

    wanted = {_MACHINES[name] for name in platforms if name in _MACHINES} or set(_MACHINES.values())
    answers: set[bool] = set()
    try:
        parsed = Marker(marker)
        for machine in sorted(wanted):
            values = {
                "os_name": "posix",
                "sys_platform": "linux",
                "platform_system": "Linux",
                "platform_machine": machine,
                "platform_python_implementation": "CPython",
                "implementation_name": "cpython",
                "platform_release": "",
                "platform_version": "",
                "extra": "",
            }
            if python is not None:
                plain = python.removesuffix("t")
                values |= {
                    "python_version": plain,
                    "python_full_version": f"{plain}.0",
                    "implementation_version": f"{plain}.0",
                }
            answers.add(parsed.evaluate(values))
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return None
    return answers.pop() if len(answers) == 1 else None
