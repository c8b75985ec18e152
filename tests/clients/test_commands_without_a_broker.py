"""Tests that the examples in each command's help print one line with the address, and no traceback, if no broker
answers."""

import shlex

import pytest

from odradek.tools.commands.tree import COMMANDS
from tests.support.commands import command
from tests.support.ports import free_port

UNREACHABLE = 3
ASKING = (
    *("topics", "produce", "consume", "records", "groups", "share-groups", "configs", "acls", "users", "quotas"),
    *("cluster", "features", "transactions"),
)
NEEDS_MORE = ("<", "set-password", ".json")  # These examples need a file, or a terminal for a password.


def examples() -> list[str]:
    found = [example for name in ASKING for example in COMMANDS[name].examples]
    return [example for example in found if not any(word in example for word in NEEDS_MORE)]


@pytest.mark.parametrize("example", examples())
def test_without_a_broker_a_command_says_in_one_line_where_it_looked(example: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = command(*shlex.split(example), "-b", address, "--timeout", "1", stdin="one\n")
    assert done.returncode == UNREACHABLE, done.stderr
    assert f"no broker can be reached at {address}" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
