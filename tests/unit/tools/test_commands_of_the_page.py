"""Tests that `odradek` accepts the commands that the page shows for changes."""

import re
import shlex
from collections.abc import Callable

import pytest

from odradek.tools.commands.tree import parser
from tests.support.oracle import REPOSITORY

ASSETS = REPOSITORY / "odradek" / "broker" / "http" / "page" / "assets"
COMMAND = re.compile(r"[`\"](odradek [a-z][^`\"]*)[`\"]")
PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
STARTS_A_BROKER = "odradek serve "


def with_values(value: Callable[[str], str]) -> list[str]:
    """Returns the commands in the page's scripts. `value` returns a replacement for each placeholder such as ${name},
    which the scripts fill in."""
    texts = [path.read_text() for path in sorted(ASSETS.rglob("*.js"))]
    found = {
        PLACEHOLDER.sub(lambda each: value(each[0]), command) for text in texts for command in COMMAND.findall(text)
    }
    return sorted(command for command in found if not command.startswith(STARTS_A_BROKER))


OPTIONS = {"${whom}": "--allow-principal User:1", "${what}": "--topic 1", "${entities}": "--user 1"}
VALUES = {"${operation}": "READ", "${mechanism}": "SCRAM-SHA-512", **OPTIONS}


def commands() -> list[str]:
    return with_values(lambda part: VALUES.get(part, "1"))


def test_the_page_shows_commands() -> None:
    assert len(commands()) >= 10


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_can_be_parsed(command: str) -> None:
    _, *words = shlex.split(command)
    assert parser(words[0]).parse_args(words) is not None
