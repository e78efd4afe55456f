"""What can be said about a cluster beyond the lock, checked against a grammar before anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.errors import UsageError, shown
from provision.generate.image import check_value
from provision.generate.monitors import MONITORS
from provision.records import NOTHING, record

OWNERS = ("operator", "node")
MIG_STRATEGIES = ("none", "single", "mixed")
SHARINGS = ("none", "time-slicing", "mps")
RUNNERS = ("jobset", "trainjob", "job", "rayjob", "raycluster", "deployment", "rayservice")
RAY = frozenset(("rayjob", "raycluster", "rayservice"))
SERVING = frozenset(("deployment", "rayservice"))
DATA, CHECKPOINTS = "/data", "/checkpoints"
"""Where the work finds what is copied from object storage."""

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_RESERVED = ("default", "kube-")
_MIG_PROFILE = r"[1-7]g\.[0-9]{1,3}gb(?:\.(?:me|gfx))?"
_VARIABLE = r"[A-Z][A-Z0-9_]{0,127}"
_NAME = r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"
_OBJECT = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_CLUSTER = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_RESOURCE = r"[a-z0-9](?:[a-z0-9.-]{0,200}[a-z0-9])?/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PATH = r"/[A-Za-z0-9._/-]{0,200}"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
_URL = rf"https?://{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?:/[A-Za-z0-9._/-]{{0,500}})?"
_GPUS_MAX = 16
_NODES_MAX = 10_000
_REPLICAS_MAX = 48
_GIB_MAX = 65_536
_CPUS_MAX = 4096
_QUOTA_MAX = 1_000_000
_WORD_MAX = 4096
_PORT_MAX = 65_535


@record
class Tenant:
    """A namespace with a share of the GPUs."""

    name: str
    gpus: int


@record
class Place:
    """Where in object storage something lies: ``s3``, ``oss`` or ``cos``, and bucket with path."""

    scheme: str
    path: str


@record
class WarmUp:
    """The request that a service must have answered before it is ready; posted where it has a ``body``."""

    path: str
    body: str = ""


@record
class ClusterOptions:
    """How the lock is written down for a cluster.

    Attributes:
        owner: Who installs the driver; absent, decided by the lock.
        system: Of the nodes, an id of ``os.toml``; needed nowhere, checked where given.
        mig_strategy: How MIG devices are offered.
        mig_profile: The profile that GPUs are cut into, and whose devices Jobs ask for.
        sharing: How whole GPUs are shared.
        replicas: Clients a shared GPU is offered to.
        is_claimed: Whether Pods get their GPUs by claims (DRA) rather than by the device plugin.
        rdma: Resource of a network device and how many of it a Pod takes.
        node_class: Kind, group and name of what Karpenter makes nodes by.
        tenants: Namespaces with quota, limits and isolation.
        is_queued: Whether shares of tenants are queues of Kueue as well.
        cluster: Name that its metrics and alerts carry; without, nothing is monitored.
        runbooks: Address of the published page of runbooks.
        monitors: How many Prometheus and Alertmanagers there are of each; absent, these are left as they are.
        has_health: Whether nodes are watched, and what takes bad ones out may be told of.
        existing: What the cluster has already, ``Kind/name`` each.
        image: Of the work.
        name: Of the work; absent, derived from it.
        namespace: Where the work goes; absent, that of the only tenant, or ``default``.
        runner: What starts it.
        script: What torchrun or Ray starts, or the command of a service, with its arguments.
        nodes: Pods of it.
        gpus: GPUs of each.
        cpus: Processors of each; ``memory_gib`` likewise, with its /dev/shm of ``shm_gib`` inside.
        nccl_tests_image: An image with nccl-tests on its path.
        variables: More variables of it.
        volumes: Claim → where it is mounted.
        secrets: Secrets whose keys are variables of it.
        priority: Its priority class.
        data: What is copied to /data before it starts.
        checkpoints: What is copied to /checkpoints before it starts, and from there while it runs and when it ends.
        store_secret: Secret with the keys of both; absent, the Pod's own identity must do.
        store_endpoint: Address of the storage; absent, that of AWS.
        port: Of a service.
        warm_up: Its first request.
        scale: Fewest and most Pods of a service, or workers of a Ray cluster.
        idle_seconds: After how long without work a worker of a Ray cluster is taken away; absent, Ray decides.
        machine: Provider, type and region of the machines that `ray up` makes nodes of.
        prometheus: Address of the server that says how busy a service is.

    Raises:
        UsageError: A value does not fit its grammar, or two do not go together.
    """

    owner: str | None = None
    system: str | None = None
    mig_strategy: str = "none"
    mig_profile: str | None = None
    sharing: str = "none"
    replicas: int | None = None
    is_claimed: bool = False
    rdma: tuple[str, int] | None = None
    node_class: tuple[str, str, str] | None = None
    tenants: tuple[Tenant, ...] = ()
    is_queued: bool = False
    cluster: str | None = None
    runbooks: str | None = None
    monitors: int | None = None
    has_health: bool = False
    existing: tuple[str, ...] = ()
    image: str | None = None
    name: str | None = None
    namespace: str | None = None
    runner: str = "jobset"
    script: tuple[str, ...] = ()
    nodes: int = 1
    gpus: int = 1
    cpus: int | None = None
    memory_gib: int | None = None
    shm_gib: int | None = None
    nccl_tests_image: str | None = None
    variables: Mapping[str, str] = NOTHING
    volumes: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    priority: str | None = None
    data: Place | None = None
    checkpoints: Place | None = None
    store_secret: str | None = None
    store_endpoint: str | None = None
    port: int = 8000
    warm_up: WarmUp | None = None
    scale: tuple[int, int] | None = None
    idle_seconds: int | None = None
    machine: tuple[str, str, str] | None = None
    prometheus: str | None = None

    @property
    def place(self) -> str:
        """The namespace of the work."""
        if self.namespace is not None:
            return self.namespace
        return self.tenants[0].name if len(self.tenants) == 1 else "default"

    @property
    def has_work(self) -> bool:
        """Whether there is anything but checks to run."""
        return bool(self.script) or self.runner == "raycluster"

    @property
    def pods(self) -> int:
        """How many Pods with GPUs the work has at most."""
        return self.nodes if self.scale is None else self.scale[1]

    def __post_init__(self) -> None:
        """Check every value, then what goes with what."""
        _choice("--driver-owner", self.owner, (None, *OWNERS))
        _choice("--mig-strategy", self.mig_strategy, MIG_STRATEGIES)
        _choice("--sharing", self.sharing, SHARINGS)
        _choice("--runner", self.runner, RUNNERS)
        for flag, text, grammar, kind in (
            ("--namespace", self.namespace, _LABEL, "name of a namespace"),
            ("--name", self.name, _NAME, "name of at most 40 characters"),
            ("--monitoring", self.cluster, _CLUSTER, "name of a cluster"),
            ("--priority", self.priority, _OBJECT, "name of a priority class"),
            ("--prometheus", self.prometheus, _URL, "address of a server"),
            ("--store-endpoint", self.store_endpoint, _URL, "address of a server"),
            ("--store-secret", self.store_secret, _OBJECT, "name of a Secret"),
            *(("--env-from", secret, _OBJECT, "name of a Secret") for secret in self.secrets),
        ):
            if text is not None:
                _check(flag, text, grammar, kind)
        if self.mig_profile is not None:
            _check("--mig-profile", self.mig_profile, _MIG_PROFILE, "MIG profile such as `1g.10gb`")
        for flag, image in (("--image", self.image), ("--nccl-tests-image", self.nccl_tests_image)):
            if image is not None:
                check_value("image reference", image, flag)
        for flag, number, most in (
            ("--nodes", self.nodes, _NODES_MAX),
            ("--gpus", self.gpus, _GPUS_MAX),
            ("--cpus", self.cpus, _CPUS_MAX),
            ("--memory-gib", self.memory_gib, _GIB_MAX),
            ("--shm-gib", self.shm_gib, _GIB_MAX),
            ("--replicas", self.replicas, _REPLICAS_MAX),
            ("--port", self.port, _PORT_MAX),
        ):
            if number is not None and not 1 <= number <= most:
                raise UsageError(
                    f"{flag} `{number}` is not from 1 to {most}",
                    hints=(f"write a whole number from 1 to {most}",),
                )
        for word in (*self.script, *self.variables.values(), *self._request_words()):
            if not word.isprintable() or not word.isascii() or len(word) > _WORD_MAX:
                raise UsageError(
                    f"{word[:80]!a} is not a word of a command",
                    because=("only printable ASCII goes into a Job, and no line end",),
                )
            # Kubernetes replaces $(NAME) in commands and variables.
            if "$(" in word:
                raise UsageError(f"{word[:80]!a} holds `$(`", because=("Kubernetes would put a variable in its place",))
        for name in self.variables:
            _check("--env", name, _VARIABLE, "name of a variable")
        names = [tenant.name for tenant in self.tenants]
        if len(set(names)) < len(names):
            raise UsageError("--tenant names one namespace twice", hints=("keep one of the two",))
        self._check_together()

    def _check_together(self) -> None:
        if (self.sharing == "none") != (self.replicas is None):
            raise UsageError(
                "--sharing and --replicas go together",
                because=("a GPU is shared by so many clients, or by none",),
                hints=("write it as in `--sharing time-slicing --replicas 4`",),
            )
        if self.replicas == 1:
            raise UsageError(
                "--replicas 1 shares a GPU with no other Pod",
                because=("the device plugin refuses fewer than two replicas, and the node then offers no GPU at all",),
                hints=("leave out --sharing and --replicas",),
            )
        if (self.mig_strategy != "none") != (self.mig_profile is not None):
            raise UsageError(
                "--mig-strategy and --mig-profile go together",
                because=("a GPU is partitioned into devices of one profile, and no strategy partitions it alone",),
                hints=("write it as in `--mig-strategy mixed --mig-profile 1g.10gb`",),
            )
        if self.has_work and self.image is None:
            what = "a script" if self.script else f"--runner {self.runner}"
            raise UsageError(f"{what} needs --image to run in", hints=("build one with `provision image`",))
        if self.is_queued and not self.tenants:
            raise UsageError(
                "--kueue makes queues of the shares of tenants, and there is none",
                hints=("name one, as in `--tenant vision=8`",),
            )
        if self.runbooks is not None and self.cluster is None:
            raise UsageError(
                "--runbooks has no effect without --monitoring",
                because=("alerts lead to runbooks, and none are written",),
                hints=("name the cluster, as in `--monitoring prod`, or leave it out",),
            )
        if self.monitors is not None and self.cluster is None:
            raise UsageError(
                "--monitoring-replicas has no effect without --monitoring",
                hints=("name the cluster, as in `--monitoring prod`, or leave it out",),
            )
        if self.monitors is not None and not MONITORS[0] <= self.monitors <= MONITORS[1]:
            raise UsageError(
                f"--monitoring-replicas `{self.monitors}` is not from {MONITORS[0]} to {MONITORS[1]}",
                hints=("write 2; 3 let one be renewed while another fails",),
            )
        paths = [path for _, path in self.volumes]
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise UsageError(f"--volume mounts two claims at {twice[0]}", hints=("mount one of them elsewhere",))
        self._check_service()
        self._check_store()
        if self.shm_gib is not None and self.memory_gib is not None and self.shm_gib >= self.memory_gib:
            raise UsageError(
                f"--shm-gib {self.shm_gib} leaves nothing of --memory-gib {self.memory_gib}",
                because=("what lies in /dev/shm counts as the container's memory",),
            )

    def _check_store(self) -> None:
        places = [place for place in (self.data, self.checkpoints) if place is not None]
        for flag, given in (("--store-secret", self.store_secret), ("--store-endpoint", self.store_endpoint)):
            if given is not None and not places:
                raise UsageError(
                    f"{flag} has no effect without --data or --checkpoints",
                    hints=("name what is copied, or leave it out",),
                )
        if not places:
            return
        if self.runner in RAY:
            raise UsageError(
                "--data and --checkpoints copy nothing for a Ray cluster",
                because=("Ray reads and writes object storage by itself, on whichever worker a task is",),
                hints=("give the workers the keys with `--env-from SECRET`, and Ray the address, as `storage_path`",),
            )
        if self.checkpoints is not None and self.runner in SERVING:
            raise UsageError("--checkpoints is about a training", hints=("`--data` copies the weights of a service",))
        if len({place.scheme for place in places}) > 1:
            raise UsageError(
                "--data and --checkpoints are in storage of two providers",
                because=("both are reached by one endpoint and one set of keys",),
                hints=("copy one of them by a claim: `--volume CLAIM=PATH`",),
            )
        if places[0].scheme != "s3" and self.store_endpoint is None:
            raise UsageError(
                f"{places[0].scheme}:// needs --store-endpoint",
                because=("each region of it has an address of its own",),
                hints=(_SPELLINGS["--store-endpoint"],),
            )
        used = [path for path, place in ((DATA, self.data), (CHECKPOINTS, self.checkpoints)) if place is not None]
        for _, path in self.volumes:
            for folder in used:
                if f"{path}/".startswith(f"{folder}/"):
                    raise UsageError(
                        f"--volume and object storage are both at {folder}", hints=("mount the claim elsewhere",)
                    )

    def _request_words(self) -> tuple[str, ...]:
        return () if self.warm_up is None else (self.warm_up.path, self.warm_up.body)

    def _check_service(self) -> None:
        if self.script and self.runner == "raycluster":
            raise UsageError(
                "--runner raycluster starts no script",
                because=("it is a cluster that jobs are submitted to",),
                hints=("use `--runner rayjob`, or leave the script out",),
            )
        if self.runner == "deployment" and self.script and self.warm_up is None:
            raise UsageError(
                "a service needs --warm-up",
                because=("a server that listens has not loaded its model yet: it is ready once it answered",),
                hints=(
                    """write it as in `--warm-up '/v1/completions {"model": "m", "prompt": "x", "max_tokens": 1}'`""",
                ),
            )
        if self.warm_up is not None and self.runner != "deployment":
            raise UsageError(
                "--warm-up is about a service of --runner deployment",
                because=("Ray Serve has a health check of its own",) if self.runner == "rayservice" else (),
                hints=("leave it out",),
            )
        if self.runner in RAY:
            self._check_ray()
            return
        if self.machine is not None:
            raise UsageError(
                "--ray-up is about `--runner raycluster`",
                because=("it writes what `ray up` starts a cluster of machines by",),
                hints=("leave it out",),
            )
        if self.idle_seconds is not None:
            raise UsageError(
                "--policy is about a Ray cluster",
                because=("a service is scaled by its own load, as `--autoscale` says",),
                hints=("use `provision fleet policy --render k8s` for its other values", "or leave it out"),
            )
        if self.scale is not None and self.scale[0] == 0:
            raise UsageError(
                f"--autoscale 0:{self.scale[1]} may leave no Pod",
                because=("without a Pod there is nothing whose load could be seen",),
                hints=(f"write `--autoscale 1:{self.scale[1]}`",),
            )
        if (self.scale is None) != (self.prometheus is None):
            raise UsageError(
                "--autoscale and --prometheus go together",
                because=("KEDA scales by what a Prometheus says, and must be told which",),
                hints=("write it as in `--autoscale 1:8 --prometheus http://prometheus.monitoring:9090`",),
            )
        if self.scale is not None and self.runner != "deployment":
            raise UsageError(
                "--autoscale is about a service of --runner deployment, or a Ray cluster",
                because=("a training has as many Pods as it starts with",),
                hints=("leave it out",),
            )
        if self.scale is not None and self.cluster is None:
            raise UsageError(
                "--autoscale needs --monitoring",
                because=("it depends on GPU utilisation, and nothing would measure that",),
                hints=("name the cluster, as in `--monitoring prod`",),
            )

    def _check_ray(self) -> None:
        if self.prometheus is not None:
            raise UsageError(
                "--prometheus has no effect on a Ray cluster",
                because=("Ray's autoscaler goes by the tasks that wait and the workers that are idle",),
                hints=("leave it out",),
            )
        if self.scale is not None and self.is_queued:
            raise UsageError(
                "--autoscale and --kueue exclude each other for a Ray cluster",
                because=(
                    "Kueue admits a cluster of a fixed size, and refuses Ray's autoscaler unless that is turned on",
                ),
                hints=("leave one of the two out",),
            )
        if self.scale is not None and self.nodes != 1:
            raise UsageError(
                f"--nodes {self.nodes} has no effect with --autoscale {self.scale[0]}:{self.scale[1]}",
                because=("the cluster begins with the fewest",),
                hints=("leave one of the two out",),
            )
        if self.machine is not None:
            named = "it names what a cluster of Kubernetes has, and machines do not"
            whole = "a worker of `ray up` is a machine, and has all of it"
            for flag, is_there, because in (
                ("--env-from", self.secrets, named),
                ("--volume", self.volumes, named),
                ("--rdma", self.rdma, named),
                ("--priority", self.priority, named),
                ("--cpus", self.cpus, whole),
                ("--memory-gib", self.memory_gib, whole),
                ("--sharing", self.sharing != "none", whole),
                ("--mig-profile", self.mig_profile, whole),
            ):
                if is_there:
                    raise UsageError(
                        f"--ray-up and {flag} exclude each other",
                        because=(because,),
                        hints=("write the two with one command each",),
                    )
        if self.machine is not None and self.runner != "raycluster":
            raise UsageError(
                "--ray-up is about `--runner raycluster`",
                because=("`ray up` starts a cluster that jobs are submitted to",),
                hints=("leave it out",),
            )


def parse_tenant(text: str) -> Tenant:
    """Read ``NAME=GPUS``.

    Raises:
        UsageError: It is none, or names a namespace of Kubernetes itself.
    """
    name, equals, number = text.partition("=")
    if not equals or not re.fullmatch(r"[0-9]{1,7}", number, re.ASCII):
        raise UsageError(f"--tenant {text[:80]!a} is not NAME=GPUS", hints=("write it as in `--tenant vision=8`",))
    _check("--tenant", name, _LABEL, "name of a namespace")
    if name.startswith(_RESERVED):
        raise UsageError(f"--tenant `{name}` is a namespace of Kubernetes itself", hints=("choose another name",))
    if int(number) > _QUOTA_MAX:
        raise UsageError(f"--tenant {name}: {number} GPUs are more than {_QUOTA_MAX}")
    return Tenant(name=name, gpus=int(number))


def parse_rdma(text: str) -> tuple[str, int]:
    """Read ``RESOURCE`` or ``RESOURCE=N``.

    Raises:
        UsageError: It is neither.
    """
    name, equals, number = text.partition("=")
    _check("--rdma", name, _RESOURCE, "resource")
    if equals and not re.fullmatch(r"[1-9][0-9]?", number, re.ASCII):
        raise UsageError(f"--rdma {text[:80]!a} is not RESOURCE=N", hints=(_SPELLINGS["--rdma"],))
    return name, int(number) if equals else 1


def parse_node_class(text: str) -> tuple[str, str, str]:
    """Read ``KIND.GROUP/NAME`` into kind, group and name.

    Raises:
        UsageError: It is none.
    """
    found = re.fullmatch(rf"([A-Z][A-Za-z0-9]{{0,62}})\.([a-z0-9][a-z0-9.-]{{0,200}})/({_OBJECT})", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"--nodepool {text[:80]!a} is not KIND.GROUP/NAME",
            hints=("write it as in `--nodepool EC2NodeClass.karpenter.k8s.aws/gpu`",),
        )
    return found[1], found[2], found[3]


def parse_volume(text: str) -> tuple[str, str]:
    """Read ``CLAIM=PATH``.

    Raises:
        UsageError: It is none.
    """
    claim, equals, said = text.partition("=")
    parts = [part for part in said.split("/") if part not in ("", ".")]
    path = f"/{'/'.join(parts)}"
    if not equals or not re.fullmatch(_PATH, said, re.ASCII) or ".." in parts or path in ("/", "/dev/shm"):  # noqa: S108
        raise UsageError(f"--volume {text[:80]!a} is not CLAIM=PATH", hints=(_SPELLINGS["--volume"],))
    _check("--volume", claim, _OBJECT, "name of a claim")
    return claim, path


def parse_existing(text: str) -> str:
    """Read ``KIND/NAME``.

    Raises:
        UsageError: It is none.
    """
    if not re.fullmatch(rf"[A-Z][A-Za-z0-9]{{0,62}}/{_OBJECT}", text, re.ASCII):
        raise UsageError(
            f"--existing {text[:80]!a} is not KIND/NAME", hints=("write it as in `--existing Namespace/vision`",)
        )
    return text


def parse_warm_up(text: str) -> WarmUp:
    """Read a path, or a path and what is posted there.

    Raises:
        UsageError: It begins with no path.
    """
    path, _, body = text.partition(" ")
    if not re.fullmatch(_PATH, path, re.ASCII):
        raise UsageError(
            f"--warm-up {text[:80]!a} begins with no path",
            hints=("write it as in `--warm-up /health`, or with what is posted behind the path",),
        )
    return WarmUp(path=path, body=body.strip())


def parse_scale(text: str) -> tuple[int, int]:
    """Read ``FEWEST:MOST``.

    Raises:
        UsageError: It is none.
    """
    found = re.fullmatch(r"([0-9]{1,4}):([0-9]{1,4})", text, re.ASCII)
    if found is None or not int(found[1]) <= int(found[2]) or not int(found[2]):
        raise UsageError(
            f"--autoscale {text[:80]!a} is not FEWEST:MOST",
            hints=("write it as in `--autoscale 1:8`",),
        )
    return int(found[1]), int(found[2])


def parse_place(flag: str, text: str) -> Place:
    """Read ``s3://BUCKET/PATH``, ``oss://…`` or ``cos://…``.

    Raises:
        UsageError: It is none of them.
    """
    found = re.fullmatch(r"(s3|oss|cos)://([a-z0-9][a-z0-9.-]{1,62}(?:/[A-Za-z0-9._=/+-]{0,900})?)", text, re.ASCII)
    if found is None or {"", ".", ".."} & set(found[2].rstrip("/").split("/")):
        raise UsageError(
            f"{flag} {shown(text)!a} is not in object storage",
            because=("keys have no place in an address",) if "@" in text else (),
            hints=(f"write it as in `{flag} s3://bucket/path`; oss:// and cos:// are known too",),
        )
    return Place(scheme=found[1], path=found[2].rstrip("/"))


def parse_machine(text: str) -> tuple[str, str, str]:
    """Read ``PROVIDER/TYPE`` or ``PROVIDER/TYPE/REGION``; the region is empty where none is named.

    Raises:
        UsageError: It is neither.
    """
    found = re.fullmatch(r"([a-z]{2,16})/([A-Za-z0-9][A-Za-z0-9._-]{0,63})(?:/([a-z0-9-]{2,40}))?", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"--ray-up {text[:80]!a} is not PROVIDER/TYPE/REGION",
            hints=("write it as in `--ray-up aws/p5.48xlarge/us-east-1`",),
        )
    return found[1], found[2], found[3] or ""


def _choice(flag: str, value: str | None, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{flag} {value!a} is none of {', '.join(filter(None, choices))}")


_SPELLINGS = {
    "--namespace": "write small letters, digits and hyphens, as in `--namespace team-vision`",
    "--tenant": "write small letters, digits and hyphens, as in `--tenant team-vision=8`",
    "--mig-profile": "write it as in `--mig-profile 1g.10gb`",
    "--env": "write it as in `--env NCCL_DEBUG=INFO`",
    "--env-from": "write it as in `--env-from hub-token`",
    "--monitoring": "write letters, digits, dots and hyphens, as in `--monitoring prod`",
    "--name": "write small letters, digits and hyphens, as in `--name llama-70b`",
    "--priority": "write it as in `--priority batch`",
    "--prometheus": "write it as in `--prometheus http://prometheus.monitoring:9090`",
    "--rdma": "write it as in `--rdma rdma/rdma_shared_device_a=1`",
    "--store-endpoint": "write it as in `--store-endpoint https://oss-eu-central-1.storage.example`",
    "--store-secret": "write it as in `--store-secret store-keys`",
    "--volume": "write it as in `--volume datasets=/data`",
}


def _check(flag: str, value: str, grammar: str, kind: str) -> None:
    found = re.fullmatch(grammar, value, re.ASCII)
    port = None if found is None else found.groupdict().get("port")
    if found is None or (port is not None and not 1 <= int(port) <= _PORT_MAX):
        raise UsageError(f"{flag} {value[:80]!a} is not a valid {kind}", hints=(_SPELLINGS[flag],))
