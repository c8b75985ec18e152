"""Finds tracebacks in broker logs. A traceback is a bug and fails the current test, unless the test has announced it.

Tracebacks of brokers in the test's process arrive as log records. The stderr of a broker in another process is read
from beginning to end.
"""

import logging
import re
from pathlib import Path

BEGIN = "Traceback (most recent call last)"
MARK = "traceback"  # @pytest.mark.traceback("text of the error") announces a traceback, by a regular expression.
OURS = ("odradek", "asyncio", "aiohttp")  # asyncio logs exceptions that reach the loop's exception handler.
_LINES_BEFORE = 3
_watched: dict[Path, int] = {}  # position up to which each log has been read
_unread: list[str] = []


class TracebackHandler(logging.Handler):
    """Keeps every broker log record that contains an exception."""

    def __init__(self) -> None:
        super().__init__()
        self._formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None and record.name.partition(".")[0] in OURS:
            _unread.append(self._formatter.format(record))


def watch(log: Path) -> None:
    """Starts watching a process's log."""
    _watched.setdefault(log, log.stat().st_size if log.exists() else 0)


def read(log: Path) -> None:
    """Reads the text that the process has written since the last call."""
    if not log.exists():  # the test has deleted the log
        return
    with log.open("rb") as file:
        file.seek(_watched[log])
        new = file.read()
    _watched[log] += len(new)
    _unread.extend(tracebacks_in(new.decode(errors="replace")))


def leave(log: Path) -> None:
    """Reads the log one last time after its process has exited."""
    if log in _watched:
        read(log)
        del _watched[log]


def taken() -> list[str]:
    """Returns the tracebacks found since the last call."""
    for log in _watched:
        read(log)
    found = _unread.copy()
    _unread.clear()
    return found


def tracebacks_in(text: str) -> list[str]:
    """Returns each traceback up to its error line, with the preceding log lines as context."""
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
    """Returns the reasons to fail a test: tracebacks without an announcement, and announced tracebacks that are
    missing."""
    missing = [words for words in expected if not any(re.search(words, each) for each in found)]
    bugs = [each for each in found if not any(re.search(words, each) for words in expected)]
    return bugs + [f"no traceback with {words!r}" for words in missing]
