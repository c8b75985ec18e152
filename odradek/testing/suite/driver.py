"""Runs a driver. A driver is a program that controls one client according to the commands on its standard input; see
examples/judge_drivers."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

PATIENCE_S: Final = 45.0  # limit for one command; longer than the timeouts of all clients that have an included driver
START_TIMEOUT_S: Final = 120.0  # limit for the first command, during which some drivers are compiled
EXIT_TIMEOUT_S: Final = 15.0
MAX_READ_BYTES: Final = 1 << 16


class Unimplemented(Exception):
    """The driver does not implement a command that the scenario needs, so the scenario decides nothing."""


class ApplicationFailed(Exception):
    """The application received an error, or the driver hangs or has exited. The message is used as evidence.

    records  the records that the same `poll` returned along with the error
    """

    def __init__(self, words: str, records: Sequence[str] = ()) -> None:
        super().__init__(words)
        self.records = records


class DriverGone(ApplicationFailed):
    """The driver hangs or has exited."""


class DrivenClient:
    """A client under test, controlled through its driver."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        self._unread = b""
        self._time_limit_s = START_TIMEOUT_S

    def run_command(self, *words: str) -> list[str]:
        """Sends a command and waits for its reply. Returns the values of the records that the application received, or
        an empty list for commands other than `poll`. Raises ApplicationFailed or Unimplemented."""
        self.send_command(*words)
        return self.read_reply(" ".join(words))

    def send_command(self, *words: str) -> None:
        """Sends a command without waiting for its reply. Raises DriverGone if the driver has exited."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((" ".join(words) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            raise DriverGone(f"the driver exited before the command `{words[0]}`") from None

    def read_reply(self, what: str) -> list[str]:
        """Waits for the reply to the last command, which error messages call `what`. Returns the values of the records
        that the application received. Raises ApplicationFailed or Unimplemented."""
        line = self._read_line(time.monotonic() + self._time_limit_s, what)
        self._time_limit_s = PATIENCE_S
        try:
            reply = json.loads(line)
            records = [str(each) for each in reply.get("records", [])]
        except (ValueError, AttributeError, TypeError):
            raise ApplicationFailed(
                f"the driver answered `{what}` with a line that is not JSON: {line[:200]!r}"
            ) from None
        if reply.get("unimplemented"):
            raise Unimplemented(what)
        if "error" in reply:
            raise ApplicationFailed(f"`{what}` raised {reply['error']}", records)
        return records

    def _read_line(self, until_s: float, what: str) -> bytes:
        out = self._process.stdout
        assert out is not None
        while b"\n" not in self._unread:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([out], [], [], left_s)[0]:
                raise DriverGone(f"`{what}` hangs")
            data = os.read(out.fileno(), MAX_READ_BYTES)
            if not data:
                raise DriverGone(f"the driver exited during `{what}`, with status {self._process.wait()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def end(self) -> None:
        """Closes the driver's input, which makes the driver close its client and exit. Kills the driver if it does not
        exit within EXIT_TIMEOUT_S."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
