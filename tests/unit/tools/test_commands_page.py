"""Tests that the Commands page of the documentation site contains the help text of every command."""

import pytest

from odradek.tools.commands.tree import COMMANDS, parser
from tests.support.commands_page import actions, page
from tests.unit.test_prose_width import WIDTH


def test_each_command_and_each_of_its_actions_has_a_section_with_its_usage() -> None:
    written = page()
    sections = dict(part.split("\n", 1) for part in written.replace("\n### ", "\n## ").split("\n## ")[1:])
    named = [*COMMANDS]
    named += [f"{name} {action}" for name, command in actions(parser()).items() for action in actions(command)]
    assert len(named) > len(COMMANDS)
    assert sorted(sections) == sorted(named)
    assert [name for name in named if f"```text\nusage: odradek {name} " not in sections[name]] == []


def test_help_on_the_page_is_as_wide_as_prose_and_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    written = page()
    assert "\x1b" not in written
    assert any(WIDTH - 20 < len(line) <= WIDTH for line in written.splitlines())
