"""Parses the command line. Reports each mistake on one line, with the name that the user probably meant."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from odradek.tools.commands.similar_names import did_you_mean

COLUMNS = 80  # used if the output is not a terminal
OPTION = r"(?<![\w-])--[a-z][\w-]*"
MAX_LISTED_ELEMENTS = 8  # maximum number of actions listed in a message
CONNECTION = ("-b", "--bootstrap-server", "--profile", "--command-config", "-X", "--timeout")


class Help(argparse.HelpFormatter):
    """A help formatter that wraps prose but leaves the lines of examples unchanged."""

    def __init__(self, prog: str) -> None:
        # argparse creates a formatter each time an option is added. The default formatter would import shutil, which
        # imports all compression modules.
        super().__init__(prog, width=_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return text
        return super()._fill_text(text, width, indent)


class CommandParser(argparse.ArgumentParser):
    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        super().__init__(prog, **{"formatter_class": Help} | settings)

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else "."
        self.exit(2, f"{self.prog}: {message}{end} See `{self.prog} --help`\n")

    def refuse(self, words: Sequence[str], given: argparse.Namespace) -> NoReturn:
        """Ends the program with a message about arguments that the command does not accept.

        given  the other options on the command line
        """
        known = re.findall(OPTION, self.format_help())
        word = next((each for each in words if each.startswith("-")), words[0])
        if not word.startswith("-"):
            self.error(f"{word!r} is one argument too many.{_option_for(word, known, given)}".rstrip("."))
        word = word.partition("=")[0]
        if len(word) == len("-p"):
            own = {each for each in known if each.startswith(f"-{word}") and each not in CONNECTION}
            self.error(
                f"there is no option {word}.{f' Did you mean {own.pop()!r}?' if len(own) == 1 else ''}".rstrip(".")
            )
        self.error(f"there is no option {word}.{did_you_mean(word, known)}".rstrip("."))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.metavar in ("COMMAND", "ACTION") and action.choices is not None and value not in action.choices:
            hint = did_you_mean(value, action.choices)
            if not hint and len(names := list(action.choices)) <= MAX_LISTED_ELEMENTS:
                hint = f" The actions are {', '.join(names)}"
            self.error(f"there is no {str(action.metavar).lower()} {value!r}.{hint}".rstrip("."))
        super()._check_value(action, value)


def _option_for(word: str, known: Sequence[str], given: argparse.Namespace) -> str:
    """Returns a hint that names an option whose value this word may be, or an empty string if there is no likely
    option."""
    if "=" in word and "--add-config" in known:
        return f" Did you mean '--add-config {word}'?"
    if "--topic" in known and not getattr(given, "topic", None):
        return f" Did you mean '--topic {word}'?"
    return ""


def _columns() -> int:
    """Returns the width of the terminal, like `shutil.get_terminal_size`."""
    try:
        return int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(1).columns or COLUMNS
    except (ValueError, OSError):
        return COLUMNS


def command_first(words: Sequence[str]) -> list[str]:
    """Moves connection options from the start of the command line to after the names of the command and its action, so
    that `odradek -b HOST:PORT topics list` means `odradek topics list -b HOST:PORT`."""
    end = 0
    while end < len(words) and words[end].startswith(("-b", "-X", "--")):
        name, separator, _ = words[end].partition("=")
        is_short = words[end].startswith(("-b", "-X"))
        if name not in CONNECTION and not is_short:
            break
        has_value = len(words[end]) > len("-b") if is_short else bool(separator)
        end += 1 if has_value else 2
    before, rest = words[:end], words[end:]
    if not before or not rest:
        return list(words)
    names = next((index for index, word in enumerate(rest) if word.startswith("-")), len(rest))
    return [*rest[:names], *before, *rest[names:]]
