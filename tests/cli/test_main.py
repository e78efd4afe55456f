"""What holds for every command: help, exit codes, JSON, streams, colour."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provision import __version__
from provision.cli.parser import COMMANDS, Parser, add_choice, build_parser, build_top_parser, load_command
from provision.errors import ProvisionError

STACK = ("--torch", "2.1", "--cuda", "12.1")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_flag_has_help(provision, name):
    answer = provision(name, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"usage: provision {name}")
    parser = build_parser(name)
    assert parser.description
    for action in parser._actions:
        assert action.help, action
        for flag in action.option_strings:
            assert re.search(rf"(?<!\S){re.escape(flag)}\b", answer.out)


def test_help_names_every_command_and_loads_none(program):
    answer = program("--help")
    assert answer.code == 0
    assert all(re.search(rf"^  {name} ", answer.out, re.MULTILINE) for name in COMMANDS)
    code = "import sys\nfrom provision.cli.main import main\nmain(['--help'])\n"
    code += "print([name for name in sys.modules if name.startswith(('provision.cli.commands.', 'provision.resolve'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_flag_of_a_few_words_takes_one_once_and_names_the_one_that_was_meant():
    parser = Parser()
    add_choice(parser, "--colour", ("red", "green"), help="of the door")
    add_choice(parser, "--side", ("left", "right"), action="append", help="of the door")
    assert parser.parse_args(["--colour", "red", "--side", "left", "--side", "right"]).side == ["left", "right"]
    with pytest.raises(ProvisionError, match="--colour `gren` is not known") as caught:
        parser.parse_args(["--colour", "gren"])
    assert "green" in caught.value.hints[0]
    with pytest.raises(ProvisionError, match="--colour"):
        parser.parse_args(["--colour", "red", "--colour", "green"])


def test_flags_of_a_few_words_are_made_in_one_place():
    folder = Path(__file__).resolve().parents[2] / "provision" / "cli"
    made = [path.name for path in folder.rglob("*.py") if "choices=" in path.read_text(encoding="utf-8")]
    assert made == ["parser.py"]


@pytest.mark.parametrize("words", [(), ("node",), ("fleet",), ("data",)], ids=" ".join)
def test_a_call_without_its_command_or_action_shows_the_help(provision, words):
    answer = provision(*words)
    assert answer == provision(*words, "--help")
    assert answer.code == 0


def test_version(provision):
    assert provision("--version").out == f"provision {__version__}\n"
    assert provision("resolve", "--version").out == f"provision {__version__}\n"


def test_top_parser_reads_no_command():
    assert build_top_parser().read(["--json", "-vv"]).verbose == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--quiet"], "no command was given", id="no-command"),
        pytest.param(["resolves"], "did you mean `resolve`?", id="command"),
        pytest.param(["resolve", "--trch", "2.1"], "did you mean `--torch`?", id="flag"),
        pytest.param(["resolve", "--trch=2.1"], "unknown flag `--trch`", id="flag-with-value"),
        pytest.param(["resolve", "--tor", "2.1"], "unknown flag `--tor`", id="abbreviation"),
        pytest.param(["resolve", "2.1"], "unexpected argument `2.1`", id="stray-word"),
        pytest.param(["resolve", "--torch"], "--torch: expected one argument", id="no-value"),
        pytest.param(["resolve", "--flavor", "devl"], "did you mean `devel`?", id="value"),
        pytest.param(["resolve", "--torch", "2.1", "--torch", "2.2"], "--torch was given two values", id="twice"),
        pytest.param(["--color", "pink", "resolve"], "choose auto, always, never", id="color"),
        pytest.param(["--torch", "2.1"], "unknown flag `--torch` for `provision`", id="flag-before-command"),
        pytest.param(["data", "refrsh"], "action `refrsh` is not known", id="action"),
        pytest.param(["data", "--only", "torch", "diff"], "`--only` must come after the action", id="early"),
        pytest.param(["data", "--trch", "diff"], "unknown flag `--trch` for `provision data diff`", id="early-unknown"),
        pytest.param(["data", "-q"], "the following arguments are required: ACTION", id="missing-action"),
        pytest.param(["completion", "tcsh"], "shell `tcsh` is not known", id="shell"),
    ],
)
def test_usage_errors(provision, words, said):
    answer = provision(*words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert said in answer.err

    document = provision("--json", *words).document
    assert document["ok"] is False
    assert document["error"]["code"] == "usage"
    assert said in "\n".join([document["error"]["message"], *document["error"].get("hints", ())])


@pytest.mark.parametrize("words", [["--json", "resolve", *STACK], ["resolve", *STACK, "--json"]])
def test_shared_flags_stand_on_either_side_of_the_command(provision, words):
    answer = provision(*words)
    assert answer.code == 0
    assert answer.document["command"] == "resolve"
    assert set(answer.document) == {"schema_version", "command", "ok", "result"}


def test_the_same_value_twice_is_no_contradiction(provision):
    assert provision("resolve", *STACK, *STACK).code == 0


def test_facts_are_dated_on_the_standard_error(provision):
    answer = provision("resolve", *STACK)
    assert re.search(r"^facts of \d{4}-\d\d-\d\d$", answer.err, re.MULTILINE)
    assert "facts of" not in answer.out
    assert provision("resolve", *STACK, "-q").err == ""


@pytest.fixture
def broken_command(monkeypatch):
    """Let the command `data` end with whatever a test wants."""

    def break_with(error: BaseException) -> None:
        def run(*_: object) -> int:
            raise error

        monkeypatch.setattr(load_command("data"), "run", run)

    return break_with


def test_bug_is_one_line_and_exit_code_1(provision, broken_command, monkeypatch):
    broken_command(RuntimeError("first\nsecond"))
    answer = provision("data", "check")
    assert answer.code == 1
    assert answer.err.splitlines()[0] == "error: internal error: RuntimeError: first"
    assert "PROVISION_DEBUG=1" in answer.err
    assert provision("data", "check", "--json").document["error"]["code"] == "internal"
    monkeypatch.setenv("PROVISION_DEBUG", "1")
    with pytest.raises(RuntimeError):
        provision("data", "check")


def test_interrupt_is_130(provision, broken_command):
    broken_command(KeyboardInterrupt())
    assert provision("data", "check").code == 130
    document = provision("data", "check", "--json").document
    assert document["error"] == {"code": "interrupted", "message": "interrupted"}


@pytest.mark.parametrize(
    "module",
    ["argparse", "provision.cli.output", "provision.cli.parser", "provision.errors", "provision.resolve.solve"],
)
def test_interrupt_while_the_program_is_still_starting(environment, module):
    code = f"""
import runpy, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder)
sys.argv = ["provision", "resolve", "--torch", "2.1"]
runpy.run_module("provision", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in done.stderr


def test_every_kind_of_error_ends_with_its_code(provision, broken_command):
    for kind in ProvisionError.__subclasses__():
        broken_command(kind("it broke", because=["of this", "of that"], hints=["do so"]))
        answer = provision("data", "check")
        assert answer.code == kind.exit_code
        assert answer.err == "error: it broke\n  because of this\n      and of that\n\nhint: do so\n"


@pytest.mark.parametrize(
    ("variables", "flag", "is_colored"),
    [
        ({}, [], False),
        ({"FORCE_COLOR": "1"}, [], True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, [], False),
        ({"NO_COLOR": "1"}, ["--color", "always"], True),
        ({"FORCE_COLOR": "1"}, ["--color", "never"], False),
        ({"FORCE_COLOR": "", "NO_COLOR": ""}, [], False),
    ],
)
def test_color_is_decided_by_flag_then_no_color_then_force_color(provision, monkeypatch, variables, flag, is_colored):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\033[" in provision("resolve", *STACK, *flag).out) == is_colored
    assert ("\033[" in provision("resolve", "--torch", "99", *flag).err) == is_colored


def test_color_never_reaches_a_file_or_json(provision, tmp_path):
    file = tmp_path / "stack.txt"
    assert provision("resolve", *STACK, "--color", "always", "-o", file).out == ""
    assert "\033" not in file.read_text()
    assert "\033" not in provision("resolve", *STACK, "--color", "always", "--json").out


def test_reader_that_goes_away_is_no_error(command, environment):
    with subprocess.Popen(
        [*command, "matrix", "--framework", "image", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait()
    assert process.returncode == 141
    assert re.fullmatch(r"facts of \S+\n", err)


def test_full_disk_behind_the_standard_output(command, environment):
    for words in (["resolve", *STACK], ["resolve", *STACK, "--json"], ["matrix"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*command, *words], env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert done.returncode == 5
        assert "error: the result cannot be written to the standard output" in done.stderr
        assert "Exception ignored" not in done.stderr


def test_closed_standard_output(command, environment):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command, "resolve", *STACK],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert done.stderr.splitlines()[-2:] == [
        "error: the result cannot be written to the standard output",
        "  because it is closed",
    ]


@pytest.mark.parametrize("words", [["--help"], ["image", "--help"], ["resolve", "--trch"], ["resolve", "--batch", "-"]])
def test_no_standard_streams_at_all(command, environment, words):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&- <&-', "sh", *command, *words],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


def test_terminal_that_knows_only_ascii(program):
    answer = program("resolve", *STACK, PYTHONIOENCODING="ascii")
    assert answer.code == 0
    assert "\\u2265" in answer.out


def test_words_that_are_no_text(command, environment):
    done = subprocess.run(
        [*command, "resolve", "--torch", b"2.1\xff", "--json"], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_flag(provision, shell):
    script = provision("completion", shell).out
    for name in COMMANDS:
        assert name in script
        for action in build_parser(name)._actions:
            for flag in action.option_strings:
                word = flag.lstrip("-") if shell == "fish" else flag
                assert re.search(rf"(?<![\w-]){re.escape(word)}\b", script), flag


def _complete(script: str, *words: str) -> list[str]:
    line = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; ${{function:=$(complete -p provision | "
            f"sed 's/.*-F \\([^ ]*\\).*/\\1/')}}; echo \"${{COMPREPLY[@]}}\"",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_flags_and_their_words(provision):
    script = provision("completion", "bash").out
    assert _complete(script, "provision", "im") == ["image"]
    assert _complete(script, "provision", "resolve", "--fl") == ["--flavor"]
    assert _complete(script, "provision", "image", "--frontend", "c") == ["classic"]
    assert _complete(script, "provision", "data", "c") == ["check"]
    assert _complete(script, "provision", "data", "diff", "--index") == ["--index-url"]


def test_bash_completes_what_the_facts_know(provision):
    script = provision("completion", "bash").out
    assert "2.8" in _complete(script, "provision", "resolve", "--torch", "2.")
    assert "12.8" in _complete(script, "provision", "resolve", "--cuda", "12.")
    assert "3.12" in _complete(script, "provision", "image", "--python", "3.")
    assert "rtx-4090" in _complete(script, "provision", "plan", "--gpu", "rtx-40")
    assert "580" in _complete(script, "provision", "node", "lock", "--driver", "5")
    assert "3.12" not in _complete(script, "provision", "bench", "--python", "")


@pytest.mark.parametrize(("shell", "words"), [("zsh", ("-n",)), ("fish", ("--no-execute",))])
def test_the_shell_itself_can_read_its_script(provision, tmp_path, shell, words):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(provision("completion", shell).out)
    done = subprocess.run([shell, *words, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
