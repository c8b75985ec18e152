"""The text of docs/commands.md: `python -m tests.support.commands_page > docs/commands.md`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from odradek.tools.commands import errors
from odradek.tools.commands.tree import COMMANDS, DESCRIPTION, parser

COLUMNS = 120


def page() -> str:
    """The help of all commands, as wide as the prose of the other pages."""
    os.environ["COLUMNS"] = str(COLUMNS)
    written = "Written by `python -m tests.support.commands_page`; a test compares it with the help of the commands."
    lines = ["# Commands", "", DESCRIPTION, written, ""]
    lines += [*(errors.__doc__ or "").splitlines(), ""]
    top = parser()
    for name, command in _children(top).items():
        lines += [f"## {name}", "", "```text", *command.format_help().splitlines(), "```", ""]
        for action, one in _children(command).items():
            lines += [f"### {name} {action}", "", "```text", *one.format_help().splitlines(), "```", ""]
    assert list(COMMANDS) == list(_children(top))
    return "\n".join(lines)


def _children(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {name: child for action in _subparsers(of) for name, child in action.choices.items()}


def _subparsers(of: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]:
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield action


if __name__ == "__main__":
    print(page(), end="")
