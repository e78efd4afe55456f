"""Batch files of Slurm: what proves an image, trains, serves and measures, each a file that `sbatch` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provision.errors import UsageError
from provision.generate.quote import join_shell, quote_shell
from provision.generate.slurm.options import JobOptions
from provision.generate.subject import Subject
from provision.generate.tuning import Situation, container_variables
from provision.generate.write import Artifact
from provision.matrix.load import Matrix

_VERIFY = ("python", "/opt/provision/verify.py", "--gpu")
_PORT = 29500
_REQUEUE_SECONDS = 15
"""What is left of the time between the signal and the limit when a job that does not end by itself is put back."""

_SUPERVISED = """\
# On each node: what ignores a signal when it begins goes on ignoring it until it says otherwise, so that a program that
# handles SIGUSR1 saves and another one goes on. torchrun does not hand it to its workers, which are told here.
task=$(cat <<'END'
trap "" USR1
"$@" &
agent=$!
tell() { kill -USR1 $(cat /proc/$agent/task/*/children 2>/dev/null) $agent 2>/dev/null; }
trap tell USR1
while :; do
    wait $agent
    code=$?
    kill -0 $agent 2>/dev/null || exit $code
done
END
)

# Told {seconds} s before the limit, and before a preemption where PreemptParameters has send_user_signal: the program
# saves, and the job is put back to begin again from there.
asked=
trap '
    asked=yes
    kill -USR1 "$step" 2>/dev/null || :
    (sleep {rest}; scontrol requeue "$SLURM_JOB_ID") &
' USR1

{start}sh -c "$task" task \\
    {command} &
step=$!
while :; do
    code=0
    wait "$step" || code=$?
    kill -0 "$step" 2>/dev/null || break
done
if [ -n "$asked" ]; then
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
exit "$code"
"""


def job_situation(subject: Subject, options: JobOptions) -> Situation:
    """Return what is known of the machines of a job."""
    facts = ({"container"} if options.runtime != "host" else set()) | ({"multi-node"} if options.nodes > 1 else set())
    return Situation(libraries=dict(subject.libraries), facts=frozenset(facts))


def render_jobs(subject: Subject, options: JobOptions, matrix: Matrix) -> tuple[Artifact, ...]:
    """Return the batch files, by name.

    ``verify.sbatch`` where there is an image, ``train.sbatch`` for a script, ``serve.sbatch`` for a service,
    ``bench.sbatch`` where nccl-tests are at hand.

    Raises:
        UsageError: There is nothing to write.
    """
    variables = {**container_variables(job_situation(subject, options), matrix), **options.variables}
    found: dict[str, str] = {}
    if options.image is not None:
        body = f"srun --ntasks-per-node=1 {_container(options, options.image)}{join_shell(*_VERIFY)}\n"
        found["verify"] = _file("verify", subject, options, {}, (), body)
    if options.script:
        found["train"] = _file("train", subject, options, variables, _requeue(options), _train(options))
    if options.service:
        found["serve"] = _file("serve", subject, options, variables, _requeue(options), _serve(options), nodes=1)
    if options.nccl_tests_image is not None or options.runtime == "host":
        words = (*matrix.setting("cluster.toml", "nccl_tests_command").values, str(options.gpus))
        body = f"srun --ntasks-per-node=1 {_container(options, options.nccl_tests_image)}{join_shell(*words)}\n"
        found["bench"] = _file("bench", subject, options, variables, (), body)
    if not found:
        raise UsageError(
            "there is nothing to write",
            because=("no image, no script and no service were named",),
            hints=("name an image with `--image IMAGE`", "or a script behind `--`, as in `-- train.py`"),
        )
    return tuple(Artifact(path=f"{name}.sbatch", text=text, mode=0o755) for name, text in sorted(found.items()))


def _requeue(options: JobOptions) -> tuple[str, ...]:
    return ("--requeue", "--open-mode=append", f"--signal=B:USR1@{options.save_seconds}")


def _file(
    name: str,
    subject: Subject,
    options: JobOptions,
    variables: Mapping[str, str],
    more: Iterable[str],
    body: str,
    *,
    nodes: int | None = None,
) -> str:
    gpus = f"{options.gpu_type}:{options.gpus}" if options.gpu_type else str(options.gpus)
    flags = [f"--job-name={name}", f"--nodes={nodes or options.nodes}", "--ntasks-per-node=1"]
    flags += [f"--gpus-per-node={gpus}", "--output=%x-%j.out"]
    flags += [] if options.cpus is None else [f"--cpus-per-task={options.cpus}"]
    flags += [] if options.memory_gib is None else [f"--mem={f'{options.memory_gib}G' if options.memory_gib else 0}"]
    for flag, value in (("time", options.time), ("partition", options.partition), ("account", options.account)):
        flags += [f"--{flag}={value}"] if value else []
    flags += [f"--qos={options.qos}"] if options.qos else []
    lines = [
        "#!/bin/bash",
        "# Written by `provision slurm`; change the request, not this file.",
        f"# {subject.name}, {subject.digest}; facts of {subject.facts_date}",
        *(f"#SBATCH {flag}" for flag in (*flags, *more)),
        "set -euo pipefail",
        "",
    ]
    if options.runtime == "host" and options.environment is not None:
        lines += [f". {quote_shell(options.environment.rstrip('/') + '/bin/activate')}", ""]
    if variables:
        lines += [f"export {name}={quote_shell(value)}" for name, value in sorted(variables.items())] + [""]
    # srun takes the processors of the job for its steps only where it is told.
    lines += ["export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}", ""] if options.cpus is not None else []
    return "\n".join(lines) + body


def _train(options: JobOptions) -> str:
    words = ["torchrun", f"--nnodes={options.nodes}", f"--nproc-per-node={options.gpus}"]
    # What only the running job knows is not quoted.
    rendezvous = '--rdzv-backend=c10d --rdzv-endpoint="$head:$port" --rdzv-id="$SLURM_JOB_ID"'
    lines = [
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "# Jobs that share a node do not meet at one port.",
        f"port=$(({_PORT} + SLURM_JOB_ID % 1000))",
        "",
    ]
    command = f"{join_shell(*words)} {rendezvous} {join_shell(*options.script)}"
    return "\n".join(lines) + "\n" + _supervised(options, command)


def _serve(options: JobOptions) -> str:
    return _supervised(options, join_shell(*options.service))


def _supervised(options: JobOptions, command: str) -> str:
    start = f"srun --ntasks-per-node=1 --kill-on-bad-exit=1 {_container(options, options.image)}"
    text = _SUPERVISED
    for name, value in (
        ("seconds", str(options.save_seconds)),
        ("rest", str(options.save_seconds - _REQUEUE_SECONDS)),
        ("start", start),
        ("command", command),
    ):
        # Once, and a user's own braces are left alone.
        text = text.replace(f"{{{name}}}", value, 1)
    return text


def _container(options: JobOptions, image: str | None) -> str:
    """Return the words between ``srun`` and what it runs."""
    if options.runtime == "host" or image is None:
        return ""
    if options.runtime == "pyxis":
        words = [f"--container-image={_enroot(image)}", "--no-container-mount-home"]
        if options.mounts:
            mounts = ",".join(mount if ":" in mount else f"{mount}:{mount}" for mount in options.mounts)
            words.append(f"--container-mounts={mounts}")
        return f"{join_shell(*words)} \\\n    "
    words = ["apptainer", "exec", "--nv"]
    for mount in options.mounts:
        words += ["--bind", mount]
    words.append(image if image.startswith("/") else f"docker://{image}")
    return f"\\\n    {join_shell(*words)} \\\n    "


def _enroot(image: str) -> str:
    """Return an image as enroot writes it, with ``#`` behind the registry."""
    first, slash, rest = image.partition("/")
    is_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return f"{first}#{rest}" if is_registry else image
