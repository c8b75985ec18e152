"""Tracebacks in the log of a broker: a bug, which fails the test under way, unless that says which one it provokes.

In the test's own process they are seen as log records; those of a broker in a process of its own are read from its
stderr, from its start until it has ended.
"""

import logging
import re
from pathlib import Path

BEGIN = "Traceback (most recent call last)"
MARK = "traceback"  # @pytest.mark.traceback("the words of the error"), a regular expression
OURS = ("odradek", "asyncio", "aiohttp")  # asyncio: what the loop's exception handler is told
_LINES_BEFORE = 3
_watched: dict[Path, int] = {}  # how far each was read
_unread: list[str] = []


class TracebackHandler(logging.Handler):
    """Keeps every record of the broker that carries an exception."""

    def __init__(self) -> None:
        super().__init__()
        self._formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None and record.name.partition(".")[0] in OURS:
            _unread.append(self._formatter.format(record))


def watch(log: Path) -> None:
    """Read what a process writes there from now on."""
    _watched.setdefault(log, log.stat().st_size if log.exists() else 0)


def read(log: Path) -> None:
    """Take what is new."""
    if not log.exists():  # the test has deleted it
        return
    with log.open("rb") as file:
        file.seek(_watched[log])
        new = file.read()
    _watched[log] += len(new)
    _unread.extend(tracebacks_in(new.decode(errors="replace")))


def leave(log: Path) -> None:
    """Take what is new for the last time: its process has ended."""
    if log in _watched:
        read(log)
        del _watched[log]


def taken() -> list[str]:
    """The tracebacks since the last time."""
    for log in _watched:
        read(log)
    found = _unread.copy()
    _unread.clear()
    return found


def tracebacks_in(text: str) -> list[str]:
    """Each with the lines before it, which say what was being done, up to the error that ends it."""
    lines = text.splitlines()
    found = []
    end = 0
    for number, line in enumerate(lines):
        if BEGIN not in line or number < end:
            continue
        end = number + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        found.append("\n".join(lines[max(0, number - _LINES_BEFORE) : end + 1]))
    return found


def unexpected(found: list[str], expected: list[str]) -> list[str]:
    """What a test has to fail for: tracebacks that it did not announce, and announced ones that did not come."""
    missing = [words for words in expected if not any(re.search(words, each) for each in found)]
    bugs = [each for each in found if not any(re.search(words, each) for words in expected)]
    return bugs + [f"no traceback with {words!r}" for words in missing]
