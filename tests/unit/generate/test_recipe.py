"""provision.generate.recipe: one description of an image, and what its writers make of it."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import pytest
from golden_cases import CASES

from provision.errors import UsageError
from provision.generate.apptainer import write_definition
from provision.generate.dockerfile import write_dockerfile
from provision.generate.image import make_recipe
from provision.generate.recipe import (
    Arg,
    Cmd,
    Copy,
    Entrypoint,
    Env,
    Expose,
    Install,
    Label,
    Listed,
    Mount,
    Own,
    Recipe,
    Run,
    Setup,
    Stage,
    Step,
    User,
    Verify,
    When,
    Workdir,
    lines_of,
)

FRONTENDS = ("modern", "builtin", "classic")
SETUP = Setup(uid=1000, python="python3.11", removed=(("/a/pip*", "/b/pip"), ("/c/pip*",)))
INSTALL = Install(layer="rest", file="requirements.rest.txt", title="", lines=("a==1",), options="--no-deps")
OWN = Install(
    layer="user", file="requirements.user.txt", title="", lines=("b",), options="-c x", is_locked=False, is_own=True
)


def recipe(*steps: Step, below: tuple[Stage, ...] = ()) -> Recipe:
    base = Stage(name="base", base="python:3")
    tools = Stage(name="tools", base="base", steps=(Run(commands=("fetch",), files=("tools.txt", "a.crt")),))
    image = Stage(name="runtime", base="base", steps=steps)
    return Recipe(
        name="demo",
        lock_digest="sha256:0",
        facts_date="2026-01-01",
        platform="linux/amd64",
        source_date_epoch=None,
        stages=(base, tools, *below, image),
        files={"tools.txt": "", "a.crt": ""},
        own_files=(),
    )


def stages_of(dockerfile: str) -> dict[str, str]:
    """Stage → its instructions, each on one line."""
    whole = re.sub(r" *\\\n *", " ", dockerfile)
    return {text.split("\n", 1)[0].split()[-1]: text.split("\n", 1)[1] for text in whole.split("\nFROM ")[1:]}


def image_of(*steps: Step, frontend: str = "modern") -> list[str]:
    return stages_of(write_dockerfile(recipe(SETUP, *steps), frontend=frontend))["runtime"].splitlines()[1:]


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (Run(commands=("a", "b")), "RUN a && b"),
        (Run(commands=(When(test="! x", then=("a", "b")), "c")), "RUN if ! x; then a && b; fi && c"),
        (Run(commands=(Listed(command="get", words=("a", "'b c'")), "c")), "RUN get a 'b c' && c"),
        (Run(commands=("a",), mounts=(Mount(target="/cache"),)), "RUN --mount=type=cache,id=provision-uv,target="),
        (
            Run(commands=("a",), mounts=(Mount(target="/x", stage="s", is_writable=True),), files=("f",)),
            "RUN --mount=type=bind,from=s,source=/x,target=/x,rw --mount=type=bind,source=f,target=/build/f a",
        ),
        (Env(values={"A": "1", "B": "x:${A}"}), 'ENV A=1 B="x:${A}"'),
        (Label(name="n", value='a "$b"'), r'LABEL n="a \"\$b\""'),
        (Copy(sources=("a", "b"), target="/c/"), "COPY --link a b /c/"),
        (Copy(sources=("a",), target="/c/", stage="s"), "COPY --link --from=s a /c/"),
        (Copy(sources=("code/a/",), target="/c/", uid=7), "COPY --chown=7:7 code/a/ /c/"),
        (Arg(name="JOBS"), "ARG JOBS"),
        (Expose(port=80), "EXPOSE 80"),
        (Workdir(path="/w"), "WORKDIR /w"),
        (User(uid=7), "USER 7:7"),
        (Entrypoint(words=("sh", "-c")), 'ENTRYPOINT ["sh", "-c"]'),
        (Cmd(words=("a b", '"')), r'CMD ["a b", "\""]'),
        (Verify(imports=("a", "b")), "--static --lock /build/expect.json --import a b"),
        (Verify(toolkit="/usr/local/cuda-1"), "RUN test -d /usr/local/cuda-1"),
        (Own(folder="/v", uid=7), "# Who works inside"),
    ],
    # Kinds that have more than one form are told apart by a number.
    ids=map(str, itertools.count()),
)
def test_each_step_is_its_instruction(step: Step, line: str) -> None:
    assert line in image_of(step)[0]


def test_only_the_newest_builder_links_and_only_the_oldest_has_no_mounts() -> None:
    copy = Copy(sources=("a",), target="/c/")
    assert image_of(copy, frontend="builtin") == image_of(copy, frontend="classic") == ["COPY a /c/"]
    made = recipe(SETUP, INSTALL, Verify(), OWN, Verify(part="packages"))
    for frontend in FRONTENDS:
        assert ("--mount" in write_dockerfile(made, frontend=frontend)) == (frontend != "classic")


def test_the_classic_builder_copies_what_others_mount() -> None:
    hook = Run(commands=("sh /build/hooks/a.sh",), files=("hooks/a.sh",))
    steps = (SETUP, hook, INSTALL, Verify(), OWN, Verify(part="packages"))
    stages = stages_of(write_dockerfile(recipe(*steps), frontend="classic"))
    assert "COPY a.crt tools.txt /build/\nRUN fetch" in stages["tools"]
    assert "-r /build/requirements.rest.txt" in stages["locked"]
    assert "-r /build/requirements.user.txt" in stages["user"]
    assert "-r /build" not in stages["runtime"]
    assert [line for line in stages["runtime"].splitlines() if line.startswith("COPY")] == [
        "COPY hooks/a.sh /build/hooks/",
        "COPY --from=locked /layers/venv/ /",
        "COPY --from=locked /layers/rest/ /",
        "COPY verify.py expect.json /opt/provision/",
        "COPY --from=user /layers/user/ /",
    ]


def test_only_what_is_resolved_while_building_has_a_cache() -> None:
    assert "--no-cache" in image_of(INSTALL)[0]
    assert "type=cache" not in image_of(INSTALL)[0]
    assert "--no-cache" not in image_of(OWN)[0]
    assert "type=cache" in image_of(OWN)[0]
    assert "--no-cache" in write_definition(recipe(SETUP, OWN, Verify(), Cmd(words=("a",))))


def test_certificates_are_named_and_mounted_where_an_index_is_asked() -> None:
    run = Install(
        layer="", file="r.txt", title="", lines=(), options="-q", is_constrained=True, has_certificates=True
    ).to_run()
    assert run.files == ("provision-ca.crt", "r.txt", "constraints.txt", "compile_bytecode.py")
    assert run.commands[0].startswith("SSL_CERT_FILE=/build/provision-ca.crt /opt/tools/bin/uv pip install ")


@pytest.mark.parametrize("name", sorted(name for name in CASES if not CASES[name].stack.image.compiled))
def test_every_way_to_build_has_the_same_commands(name: str) -> None:
    made = make_recipe(CASES[name].stack, CASES[name].options)
    definition = write_definition(made)
    for step in made.steps:
        if isinstance(step, (Install, Verify)):
            for command in step.to_run().commands:
                assert all(line in definition for line in lines_of(command))
        if isinstance(step, Label) and step.value:
            assert f"\n    {step.name} {step.value}\n" in definition


def test_a_definition_runs_its_steps_in_the_order_of_the_dockerfile() -> None:
    env = Env(values={"PATH": "/opt/venv/bin:${PATH}"})
    hook = Run(commands=("sh hook",))
    last = (Env(values={"LATE": "1"}), Copy(sources=("a",), target="/c/"), Cmd(words=("a",)))
    lines = write_definition(recipe(env, SETUP, hook, INSTALL, Verify(), hook, *last)).splitlines()
    post = lines[lines.index("%post") : lines.index("%environment")]
    wanted = ["fetch", "export PATH", "-m venv", "sh hook", "-r /build/requirements.rest", "--static", "sh hook", "cp "]
    found = iter(post)
    for words in wanted:
        assert any(words in line for line in found), words
    assert not any("LATE" in line for line in post), "nothing runs after it"
    assert "    export LATE=1" in lines


def test_a_definition_builds_wheels_with_the_pip_that_the_tools_brought() -> None:
    made = make_recipe(CASES["torch-user-locked"].stack, CASES["torch-user-locked"].options)
    post = write_definition(made)
    copied = post.index("/opt/tools/pip\n")
    # Once PATH names the environment, which has no pip, its own Python is found first.
    assert (
        copied < post.index('export PATH="/opt/venv/bin') < post.index("PYTHONPATH=/opt/tools python3.11 -m pip wheel")
    )
    assert "rm -rf /build /opt/tools /opt/seed /wheels\n" in post


@pytest.mark.parametrize("text", ["a\nRUN evil", "a\r", "a \\\n b\nRUN evil"])
@pytest.mark.parametrize("write", [lambda made: write_dockerfile(made, frontend="modern"), write_definition])
def test_no_command_starts_a_line_of_its_own(write, text: str) -> None:
    for step in (
        Run(commands=(text,)),
        Run(commands=(Listed(command="get", words=(text,)), "c")),
        Copy(sources=("a",), target=f"/{text}"),
        Label(name="a", value=text),
        Env(values={"A": text}),
        Verify(toolkit=text),
    ):
        with pytest.raises(UsageError, match="control character"):
            write(recipe(SETUP, step, Verify(), Cmd(words=("a",))))


def test_a_command_goes_on_over_lines() -> None:
    assert lines_of("a \\\n  b \\\n  c") == ["a \\", "  b \\", "  c"]


def test_writing_an_image_imports_no_text_engine() -> None:
    code = "import sys, provision.generate.dockerfile, provision.generate.apptainer; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
