"""A driver: a program that does with one client what lines on its standard input ask (examples/judge_drivers)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

PATIENCE_S: Final = 45.0  # for one verb: longer than the time-outs of the clients that ship with drivers
STARTS_S: Final = 120.0  # for the first one: some drivers are compiled then
ENDS_S: Final = 15.0
MOST_READ_BYTES: Final = 1 << 16


class Unimplemented(Exception):
    """A verb that the driver does not know, or answers so: the scenario decides nothing."""


class ApplicationFailed(Exception):
    """An error that the application saw, or a driver that hangs or ended. Its words are the proof.

    records: those that the same `poll` brought besides.
    """

    def __init__(self, words: str, records: Sequence[str] = ()) -> None:
        super().__init__(words)
        self.records = records


class DriverGone(ApplicationFailed):
    """It hangs, or has ended."""


class DrivenClient:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        self._unread = b""
        self._patience_s = STARTS_S

    def say(self, *words: str) -> list[str]:
        """Returns the values of the records that the application got; none but for `poll`. Raises both errors."""
        self.begin(*words)
        return self.heard(" ".join(words))

    def begin(self, *words: str) -> None:
        """Says a line, and does not wait for the answer. Raises ApplicationFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((" ".join(words) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            raise DriverGone(f"the driver has ended before `{words[0]}`") from None

    def heard(self, what: str) -> list[str]:
        """Returns the answer to the last line. Raises ApplicationFailed, Unimplemented."""
        line = self._line(time.monotonic() + self._patience_s, what)
        self._patience_s = PATIENCE_S
        try:
            told = json.loads(line)
            records = [str(each) for each in told.get("records", [])]
        except (ValueError, AttributeError, TypeError):
            raise ApplicationFailed(f"`{what}` was answered by what is no line of JSON: {line[:200]!r}") from None
        if told.get("unimplemented"):
            raise Unimplemented(what)
        if "error" in told:
            raise ApplicationFailed(f"`{what}` raised {told['error']}", records)
        return records

    def _line(self, until_s: float, what: str) -> bytes:
        out = self._process.stdout
        assert out is not None
        while b"\n" not in self._unread:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([out], [], [], left_s)[0]:
                raise DriverGone(f"`{what}` hangs")
            data = os.read(out.fileno(), MOST_READ_BYTES)
            if not data:
                raise DriverGone(f"the driver ended in `{what}`, with status {self._process.wait()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def end(self) -> None:
        """Closes the client, which the end of the input asks for; kills a driver that hangs in it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
