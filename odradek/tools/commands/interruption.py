"""Handles SIGINT and SIGTERM in a command that runs another command. The signals stop the other command, but the report
is still written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Timer
from types import FrameType, TracebackType
from typing import IO, Final, Self

# GitHub Actions kills a step 10 s after its first signal. The report must be written before then.
GRACE_S: Final = 3.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
if sys.platform == "win32":
    KILL: Final = signal.SIGTERM  # on Windows, SIGTERM ends a process immediately
else:
    KILL: Final = signal.SIGKILL


class Interruption:
    """A context in which signals stop the running command instead of this process, so that files are written
    completely. `received` is the first signal.

    The first SIGINT or SIGTERM stops the command, or raises KeyboardInterrupt if no command is running. Later signals
    kill the command. The context must be used in the main thread.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        """Creates the context. A command that has not exited `grace_s` after the first signal is killed."""
        self.received: signal.Signals | None = None
        self._grace_s = grace_s
        self._command: subprocess.Popen[bytes] | None = None
        self._has_group = False
        self._is_starting = False
        self._timer: Timer | None = None
        self._before: list[object] = []

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._handle) for number in SIGNALS]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, before in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, before)  # type: ignore[arg-type]  # what signal.signal returned

    def run(self, words: Sequence[str], environment: Mapping[str, str], output: IO[str] | None = None) -> int:
        """Runs a command and waits for it to exit. Returns its exit status, which is negative if a signal ended it.
        Raises FileNotFoundError.

        The command gets its own process group, so that a signal reaches all its processes. If standard input is a
        terminal, the command remains in this process's group instead, so that it can read from the terminal; Ctrl-C
        reaches it anyway.

        output  replaces the standard output of the command
        """
        self._has_group = sys.platform != "win32" and not (sys.stdin is not None and sys.stdin.isatty())
        self._is_starting = True
        try:
            self._command = subprocess.Popen(
                words, env=environment, stdout=output, process_group=0 if self._has_group else None
            )
        finally:
            self._is_starting = False
        if self.received is not None:
            self._end(self.received)
        try:
            status = self._command.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if self.received is not None:
            self._signal_all(KILL)  # kills processes that the command left running
        self._command = None
        return status

    def _handle(self, number: int, _: FrameType | None) -> None:
        is_first = self.received is None
        if self.received is None:
            self.received = signal.Signals(number)
        if self._command is not None:
            if is_first:
                self._end(self.received)
            else:
                self._signal_all(KILL)
        elif is_first and not self._is_starting:
            raise KeyboardInterrupt

    def _end(self, number: signal.Signals) -> None:
        if self._has_group or number is not signal.SIGINT:  # otherwise the terminal has also sent SIGINT to the command
            self._signal_all(number)
        self._timer = Timer(self._grace_s, self._signal_all, (KILL,))
        self._timer.daemon = True
        self._timer.start()

    def _signal_all(self, number: signal.Signals) -> None:
        command = self._command
        if command is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform != "win32" and self._has_group:
                os.killpg(command.pid, number)
            elif command.returncode is None:
                command.send_signal(number)  # on Windows this ends the process, but not its children
