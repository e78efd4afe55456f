"""What is scaled: its name, and what an engine needs to know beside the policy."""

from __future__ import annotations

import re

from provision.errors import UsageError
from provision.records import record

ENGINES = ("k8s", "aws", "tencent")

_NAMES = {
    "k8s": (r"[a-z0-9](?:[a-z0-9-]{0,51}[a-z0-9])?", "name of a Deployment such as `chat`"),
    # AWS forbids colons; the rest that is left out here would need quoting in commands.
    "aws": (r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}", "name of an Auto Scaling group such as `gpu-workers`"),
    "tencent": (r"asg-[a-z0-9]{1,32}", "id of a scaling group such as `asg-1a2b3c4d`"),
}
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_TEMPLATE = r"[A-Za-z0-9][A-Za-z0-9()._/-]{2,127}"
_INSTANCE = r"[a-z][a-z0-9-]{0,31}\.[a-z0-9-]{1,32}"


@record
class ScalingOptions:
    """What the policy is written down for.

    Attributes:
        engine: One of :data:`ENGINES`.
        name: Of the Deployment, of the Auto Scaling group, or the id of the scaling group.
        namespace: Of the Deployment.
        launch_template: Of the Auto Scaling group, needed where spot nodes are mixed in.
        instance_types: Machines that the group may choose among, best first; those of the template unless given.

    Raises:
        UsageError: A value does not fit its grammar, or the engine has no use for it.
    """

    engine: str
    name: str
    namespace: str = "default"
    launch_template: str | None = None
    instance_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every value, then what the engine has a use for."""
        if self.engine not in ENGINES:
            raise UsageError(f"`{self.engine[:60]}` is not an engine", hints=(f"choose {', '.join(ENGINES)}",))
        pattern, what = _NAMES[self.engine]
        _check("--name", self.name, pattern, what)
        _check("--namespace", self.namespace, _LABEL, "name of a namespace")
        if self.engine != "k8s" and self.namespace != "default":
            raise UsageError(f"--namespace has no effect for {self.engine}", hints=("leave it out",))
        if self.engine != "aws" and (self.launch_template is not None or self.instance_types):
            raise UsageError(
                f"--launch-template and --instance-type have no effect for {self.engine}", hints=("leave them out",)
            )
        if self.launch_template is not None:
            _check("--launch-template", self.launch_template, _TEMPLATE, "name of a launch template")
        for word in self.instance_types:
            _check("--instance-type", word, _INSTANCE, "type of an instance such as `p4d.24xlarge`")
        if len(set(self.instance_types)) < len(self.instance_types):
            raise UsageError("--instance-type names a type twice", hints=("name each once",))


def _check(flag: str, value: str, pattern: str, what: str) -> None:
    if not re.fullmatch(pattern, value):
        shown = value if value.isprintable() else value.encode("unicode_escape").decode("ascii")
        raise UsageError(f"{flag} `{shown[:80]}` is not a valid {what}")
