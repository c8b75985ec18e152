"""Writes the documentation site's Commands page (`make docs`) from the commands' help text."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from unittest.mock import patch

from odradek.tools.commands import errors, target
from odradek.tools.commands.tree import COMMANDS, DESCRIPTION, parser

# The help is as wide as the prose of other pages and has no colours, which Python 3.14 uses for help on a terminal.
LAYOUT = {"COLUMNS": "120", "NO_COLOR": "1"}


def page() -> str:
    """Returns the page, which has a section for each command with the help texts of the command and its actions."""
    lines = ["# Commands", "", DESCRIPTION, "`make docs` writes this page from the help of the commands.", ""]
    for module in (target, errors):
        lines += [*(module.__doc__ or "").splitlines(), ""]
    top = parser()
    assert list(COMMANDS) == list(actions(top))
    with patch.dict(os.environ, LAYOUT):
        for name, command in actions(top).items():
            lines += [f"## {name}", "", "```text", *command.format_help().splitlines(), "```", ""]
            for action, one in actions(command).items():
                lines += [f"### {name} {action}", "", "```text", *one.format_help().splitlines(), "```", ""]
    return "\n".join(lines)


def actions(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the program's commands, or a command's actions, by name."""
    return {name: child for action in _subparsers(of) for name, child in action.choices.items()}


def _subparsers(of: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]:
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield action
