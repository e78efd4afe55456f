from __future__ import annotations

import pytest

from provision.audit.model import Source, Span, Variable
from provision.audit.shell import ShellCommand, Text, parse_shell

SOMEWHERE = Span(file="f", start=0, end=0)


def scope(**values: str | None) -> dict[str, Variable]:
    return {
        name: Variable(name=name, value=value, kind="env", span=SOMEWHERE, name_span=SOMEWHERE)
        for name, value in values.items()
    }


def read(script: str, **values: str | None) -> list[ShellCommand]:
    text = Text.of(script, 0, len(script))
    return parse_shell(text, "f", scope(**values), instruction="RUN", instruction_span=SOMEWHERE)


def words(script: str, **values: str | None) -> list[list[str | None]]:
    return [[word.text for word in item.command.words] for item in read(script, **values)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a && b || c ; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a b'c'\"d\"", [["a", "bcd"]]),
        ("a ''", [["a", ""]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a 2>&1 >/dev/null <in b", [["a", "b"]]),
        ("(cd /x && a); { b; }", [["cd", "/x"], ["a"], ["b"]]),
        ("if a; then b; else c; fi; d", [["a"], ["b"], ["c"], ["d"]]),
        ("for x in 1 2; do a $x; done", [["a", None]]),
        ("while true; do a; done", [["true"], ["a"]]),
        ("case x in a|b) c;; *) d;; esac; e", [["c"], ["d"], ["e"]]),
        ("f() { a; }; b", [["a"], ["b"]]),
        ("[[ -f x && y < z ]] && a", [["a"]]),
        ("! a", [["a"]]),
        ("cat <<EOF\na b\nEOF\nc", [["cat"], ["c"]]),
        ("cat <<'E' | d\nx\nE\n", [["cat"], ["d"]]),
        ("a <<< word", [["a"]]),
        ("a $(b c) d", [["a", None, "d"]]),
        ("a `b` $((1+2))", [["a", None, None]]),
        ("a > $(x)", [["a"]]),
        ("arr=(a b); c ${arr[@]}", [["c", None]]),
    ],
)
def test_a_script_is_split_into_commands_and_words(script: str, expected: list[list[str | None]]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a $V", ["a", "1"]),
        ("a ${V}x", ["a", "1x"]),
        ('a "$V $W"', ["a", "1 p q"]),
        ("a $W", ["a", "p", "q"]),
        ("a '$V'", ["a", "$V"]),
        ("a \\$V", ["a", "$V"]),
        ("a $U", ["a", None]),
        ("a $nobody", ["a", None]),
        ("a ${nobody:-d}", ["a", None]),
        ("a ${E:-d}", ["a", "d"]),
        ("a ${V:+yes}", ["a", "yes"]),
        ("a ${V#x}", ["a", None]),
        ("a $E b", ["a", "b"]),
        ('a "$E" b', ["a", "", "b"]),
        ("V=2 && a $V", ["a", "2"]),
        ("export V=3; a $V", ["a", "3"]),
        ("V=$(x); a $V", ["a", None]),
        ("if x; then V=2; fi; a $V", ["a", None]),
        ("(V=2); a $V", ["a", "1"]),
        ("V=2 b; a $V", ["a", "1"]),
        ("read V; a $V", ["a", None]),
        ("a $1 $?", ["a", None, None]),
    ],
)
def test_a_variable_is_its_value_or_unknown(script: str, expected: list[str | None]) -> None:
    assert words(script, V="1", W="p q", U=None, E="")[-1] == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a", True),
        ("b && a", True),
        ("b || a", False),
        ("b || c; a", True),
        ("if b; then a; fi", False),
        ("for i in 1; do a; done", False),
        ("f() { a; }", False),
        ("{ a; }", True),
        ("(a)", True),
    ],
)
def test_what_may_not_run_is_not_certain(script: str, expected: bool) -> None:
    found = next(item for item in read(script) if item.command.program == "a")
    assert found.command.is_certain is expected


def test_commands_of_a_pipe_share_its_number() -> None:
    one, two, three = (item.command for item in read("a | b; c"))
    assert one.pipeline == two.pipeline != three.pipeline
    assert two.before == "|"


@pytest.mark.parametrize(
    "script", ["sh -c 'x a'", 'bash -lc "x a"', "eval 'x a'", "bash <<E\nx a\nE\n", "sh -c \"sh -c 'x a'\""]
)
def test_a_script_inside_a_command_is_read_too_and_keeps_its_places(script: str) -> None:
    found = [item.command for item in read(script) if item.command.program == "x"]
    assert len(found) == 1
    span = found[0].words[1].span
    assert Source("f", script).cut(span) == "a"


def test_a_document_for_another_program_is_no_script() -> None:
    assert words("python3 <<E\nimport x\nE\n") == [["python3"]]


def test_substitutions_are_kept_beside_the_command_they_are_in() -> None:
    (found,) = read("bash <(curl -s x)")
    assert [item.program for item in found.command.substitutes] == ["curl"]


@pytest.mark.parametrize(
    ("script", "folder"), [("cd /a; x", "/a"), ("cd a && cd b && x", "a/b"), ("x", ""), ("cd $Q; x", None)]
)
def test_the_folder_is_followed(script: str, folder: str | None) -> None:
    assert read(script)[-1].folder == folder
