"""Tests the commands' options, output and errors."""

import io
import json
import os
import subprocess
import sys

import pytest

from odradek.client.administration.configs import AlterOperation, ConfigChange
from odradek.client.common.errors import ClientError, RetriableError, refusal
from odradek.protocol.errors import ErrorCode
from odradek.tools.commands.configs import changes
from odradek.tools.commands.errors import (
    MISUNDERSTOOD,
    NOT_FOUND,
    NOT_PERMITTED,
    REFUSED,
    UNREACHABLE,
    CommandError,
    explained,
)
from odradek.tools.commands.options import time_ms
from odradek.tools.commands.output import JsonArray, duration, size, table
from odradek.tools.commands.parsing import command_first
from odradek.tools.commands.produce import split
from odradek.tools.commands.tree import COMMANDS, parser, run

SET, DELETE = AlterOperation.SET, AlterOperation.DELETE


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cluster"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional id"),
    ],
)
def test_the_error_for_a_missing_permission_names_the_acl(code: ErrorCode, kind: str) -> None:
    status, text = explained(refusal(code, "x"))
    assert status == NOT_PERMITTED
    assert f"needs an ACL for the {kind}" in text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RetriableError("no broker can be reached"), UNREACHABLE),
        (refusal(ErrorCode.REQUEST_TIMED_OUT, "x"), UNREACHABLE),
        (refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x"), NOT_FOUND),
        (refusal(ErrorCode.GROUP_ID_NOT_FOUND, "x"), NOT_FOUND),
        (refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x"), NOT_PERMITTED),
        (refusal(ErrorCode.TOPIC_ALREADY_EXISTS, "x"), REFUSED),
        (ClientError("x"), REFUSED),
        (CommandError("x", NOT_FOUND), NOT_FOUND),
        (ValueError("x"), MISUNDERSTOOD),
    ],
)
def test_an_error_has_its_exit_status(error: Exception, status: int) -> None:
    found, text = explained(error)
    assert found == status
    assert "x" in text or "no broker" in text


@pytest.mark.parametrize(
    ("add", "delete", "expected"),
    [
        ("a=1", "", [ConfigChange(SET, "a", "1")]),
        ("a=1,b=2", "", [ConfigChange(SET, "a", "1"), ConfigChange(SET, "b", "2")]),
        ("a=[x,y],b=", "", [ConfigChange(SET, "a", "x,y"), ConfigChange(SET, "b", "")]),
        ("", "a, b", [ConfigChange(DELETE, "a"), ConfigChange(DELETE, "b")]),
        ("a=k=v", "b", [ConfigChange(SET, "a", "k=v"), ConfigChange(DELETE, "b")]),
    ],
)
def test_settings_are_given_as_to_kafka_configs(add: str, delete: str, expected: list[ConfigChange]) -> None:
    assert changes(add, delete) == expected


@pytest.mark.parametrize(("add", "delete"), [("", ""), ("a", ""), ("=1", ""), ("a=1,b", "")])
def test_an_invalid_setting_is_refused(add: str, delete: str) -> None:
    with pytest.raises(ValueError, match="config"):
        changes(add, delete)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1970-01-01T00:00:01", 1_000), ("1970-01-01T01:00:00+01:00", 0), ("1970-01-02", 86_400_000)],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, expected: int) -> None:
    assert time_ms(text) == expected


def test_numbers_stand_to_the_right_and_what_is_missing_is_a_dash() -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "count": 7, "list": [1, 2]},
        {"name": "bbbbb", "count": None, "list": []},
    ]
    assert list(table(rows, {"name": "NAME", "count": "COUNT", "list": "LIST"})) == [
        "NAME   COUNT  LIST",
        "a          7  1, 2",
        "bbbbb      -",
    ]


@pytest.mark.parametrize("values", [[], [{"a": 1}], [{"a": [1, 2]}, {"b": "two\nlines"}, {}]])
def test_an_array_that_is_printed_piece_by_piece_is_that_which_is_printed_at_once(
    values: list[dict[str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    with JsonArray() as array:
        for value in values:
            array.add(value)
    assert capsys.readouterr().out == f"{json.dumps(values, indent=2)}\n"


@pytest.mark.parametrize(("ms", "text"), [(5, "5 ms"), (1_500, "1 s 500 ms"), (90_000_000, "1 d 1 h")])
def test_a_duration_is_shown_in_its_two_largest_units(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(("size_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**41, "2.0 TiB")])
def test_a_size_is_shown_in_the_largest_fitting_unit(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


@pytest.mark.parametrize(
    ("content", "end", "expected"),
    [
        (b"a\nb\n", b"\n", [b"a", b"b"]),
        (b"a\n\nb", b"\n", [b"a", b"", b"b"]),
        (b"a;;b;;", b";;", [b"a", b"b"]),
        (b"", b";", []),
    ],
)
def test_input_is_split_at_the_delimiter(content: bytes, end: bytes, expected: list[bytes]) -> None:
    assert [record for block in split(io.BytesIO(content).read, end) for record in block] == expected


def test_a_line_is_there_as_soon_as_it_is_typed() -> None:
    typed = [b"one\n", b"tw", b"o\nthree\nfo", b"ur"]
    blocks = split(lambda size: typed.pop(0) if typed else b"", b"\n")
    assert (next(blocks), len(typed)) == ([b"one"], 3)
    assert (next(blocks), len(typed)) == ([b"two", b"three"], 1)
    assert list(blocks) == [[b"four"]]


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "create"],
        ["topics", "alter", "t"],
        ["groups", "reset-offsets", "g", "--to-earliest"],
        ["groups", "reset-offsets", "g", "--all-topics"],
        ["configs", "alter", "--topic", "t"],
        ["configs", "describe", "--broker", "one"],
        ["features", "upgrade"],
        ["features", "upgrade", "--feature", "share.version"],
        ["features", "downgrade", "--feature", "share.version=-1"],
        ["consume", "-t", "t", "-f", "%x"],
        ["consume", "-t", "t", "-o", "middle"],
        ["consume", "-t", "t", "-G", "g", "-p", "0"],
        ["consume", "-t", "t", "-o", "stored"],
        ["consume", "-t", "t", "-o", "1", "-o", "2"],
        ["produce"],
    ],
)
def test_a_wrong_command_line_ends_with_status_2_before_anything_is_asked(words: list[str]) -> None:
    assert run([*words, "-b", "127.0.0.1:1"]) == MISUNDERSTOOD


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("topcs list", "odradek: there is no command 'topcs'. Did you mean 'topics'? See `odradek --help`"),
        ("topics lst", "odradek topics: there is no action 'lst'. Did you mean 'list'? See `odradek topics --help`"),
        (
            "topics list --jsn",
            "odradek topics list: there is no option --jsn. Did you mean '--json'? See `odradek topics list --help`",
        ),
        (
            "wait --topc=t",
            "odradek wait: there is no option --topc. Did you mean '--topic'? See `odradek wait --help`",
        ),
        (
            "cluster describe all",
            "odradek cluster describe: 'all' is one argument too many. See `odradek cluster describe --help`",
        ),
        ("share list", "odradek: there is no command 'share'. Did you mean 'share-groups'? See `odradek --help`"),
        (
            "records show",
            "odradek records: there is no action 'show'. The actions are offsets, delete. See `odradek records --help`",
        ),
        (
            "topics create t -p 3",
            (
                "odradek topics create: there is no option -p. Did you mean '--partitions'?"
                " See `odradek topics create --help`"
            ),
        ),
        (
            "records offsets orders",
            (
                "odradek records offsets: 'orders' is one argument too many. Did you mean '--topic orders'?"
                " See `odradek records offsets --help`"
            ),
        ),
        (
            "records offsets -t orders payments",
            "odradek records offsets: 'payments' is one argument too many. See `odradek records offsets --help`",
        ),
        (
            "configs alter -t orders retention.ms=5",
            (
                "odradek configs alter: 'retention.ms=5' is one argument too many."
                " Did you mean '--add-config retention.ms=5'? See `odradek configs alter --help`"
            ),
        ),
    ],
)
def test_a_mistyped_word_is_answered_in_one_line_with_what_was_meant(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == MISUNDERSTOOD
    assert capsys.readouterr().err == f"{complaint}\n"


def test_without_a_command_or_an_action_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "usage: odradek" in capsys.readouterr().out
    assert run(["topics"]) == MISUNDERSTOOD
    assert "usage: odradek topics" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("-b a:1 topics list --json", "topics list -b a:1 --json"),
        ("-ba:1 --timeout=3 topics describe t", "topics describe t -ba:1 --timeout=3"),
        ("-X a=b --profile p judge -- pytest -q", "judge -X a=b --profile p -- pytest -q"),
        ("topics list -b a:1", "topics list -b a:1"),
        ("--version", "--version"),
        ("-b a:1", "-b a:1"),
    ],
)
def test_options_of_the_connection_may_precede_the_command(typed: str, meant: str) -> None:
    assert command_first(typed.split()) == meant.split()


@pytest.mark.parametrize(
    ("typed", "meant"), [("topic", "topics"), ("share-group", "share-groups"), ("clusters", "cluster")]
)
def test_a_command_may_be_named_in_the_other_number(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([typed, "--help"]) == 0
    assert f"usage: odradek {meant} " in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert COMMANDS[name].summary[1:] in capsys.readouterr().out.replace("\n", " ")
    if name in ("serve", "inspect", "inspect check", "wait", "produce"):
        return
    import shlex

    for example in COMMANDS[name].examples:
        parser(name).parse_args(shlex.split(example.partition(" > ")[0]))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "odradek" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "completed"),
    [("odradek top", "topics"), ("odradek topics del", "delete"), ("odradek consume --iso", "--isolation-level")],
)
def test_commands_actions_and_options_are_completed(line: str, completed: str) -> None:
    environment = {**os.environ, "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m odradek 8>&1 9>/dev/null"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [completed], done.stderr
