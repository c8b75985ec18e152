"""docs/commands.md is the help of the commands."""

import sys

import pytest

from tests.support.commands_page import page
from tests.support.oracle import REPOSITORY


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse lays out help differently there")
def test_the_page_says_what_help_says() -> None:
    written = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
    assert written == page(), "python -m tests.support.commands_page > docs/commands.md"
