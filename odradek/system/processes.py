"""Functions for this process's age, memory, limits, user, signals and event loop, and for checking whether another
process exists."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio  # not imported at runtime, because programs without a loop also use this module

log = logging.getLogger("odradek")

_IMPORTED_S: Final = time.monotonic()
MACOS_OPEN_FILES: Final = 10_240  # OPEN_MAX, which applies on macOS even if the hard limit is infinite
WINDOWS_OPEN_FILES: Final = 8_192  # limit of the C library

# A terminal sends SIGINT for Ctrl-C. Windows sends SIGBREAK for Ctrl-Break, which another process can also trigger. On
# Windows, SIGTERM ends a process immediately, without calling a signal handler.
STOP_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
if sys.platform == "win32":
    STOP_SIGNALS = (*STOP_SIGNALS, signal.SIGBREAK)


def new_asyncio_loop() -> asyncio.AbstractEventLoop:
    """Returns an asyncio loop that can watch sockets, which the default loop on Windows cannot do."""
    import asyncio

    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns a uvloop loop, or an asyncio loop if uvloop is not installed. uvloop does not support Windows."""
    try:
        import uvloop
    except ImportError:
        if sys.platform != "win32":
            log.warning("uvloop is not installed: serving with asyncio's own loop, which needs up to 1.6 times the CPU")
        return new_asyncio_loop()
    return uvloop.new_event_loop()


def on_stop(loop: asyncio.AbstractEventLoop, action: Callable[[signal.Signals], None]) -> None:
    """Calls `action` on the loop for each stop signal that this process receives. Must be called in the main thread."""
    try:
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, action, number)
    except NotImplementedError:  # raised on Windows
        _on_stop_by_a_socket(loop, action)


def _on_stop_by_a_socket(loop: asyncio.AbstractEventLoop, action: Callable[[signal.Signals], None]) -> None:
    """Makes Python write the number of each signal to a socket, which wakes up the loop. The loop then calls
    `action`."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)

    def arrived() -> None:
        for number in reader.recv(64):
            if number in STOP_SIGNALS:
                action(signal.Signals(number))

    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)  # never closed, because signals write to it
    loop.add_reader(reader, arrived)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)


def milliseconds_since_start() -> int:
    """Returns this process's age in milliseconds, with the precision of the kernel's clock tick (usually 10 ms).
    Without /proc, returns the time since this module was imported."""
    if sys.platform == "linux":
        try:
            with open("/proc/self/stat", "rb") as stat:
                started_ticks = int(stat.read().rpartition(b")")[2].split()[19])
        except OSError:
            pass
        else:
            return int((time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")) * 1000)
    return int((time.monotonic() - _IMPORTED_S) * 1000)


def resident_bytes() -> int | None:
    """Returns the memory used by this process, or None if the system has no file that reports it. `getrusage` only
    reports the peak value."""
    if sys.platform == "linux":
        try:
            with open("/proc/self/statm", "rb") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            pass
    return None


if sys.platform == "win32":
    import _winapi
    import subprocess

    # `process_group` and `creationflags` for a child process that does not receive Ctrl-C from this process's terminal.
    GROUP_OF_ITS_OWN: Final[int | None] = None
    GROUP_FLAGS: Final[int] = subprocess.CREATE_NEW_PROCESS_GROUP

    def is_alive(pid: int) -> bool:
        """Returns whether a process with this id exists."""
        try:
            handle = _winapi.OpenProcess(_winapi.SYNCHRONIZE, False, pid)
        except PermissionError:
            return True
        except OSError:
            return False
        try:
            return _winapi.WaitForSingleObject(handle, 0) == _winapi.WAIT_TIMEOUT
        finally:
            _winapi.CloseHandle(handle)

    def open_file_limits() -> tuple[int, int]:
        """Returns the soft and the hard limit on open files for this process."""
        return WINDOWS_OPEN_FILES, WINDOWS_OPEN_FILES

    def allow_many_open_files() -> None:
        """Does nothing, because Windows cannot raise the limit for descriptors."""

    def user_id() -> str:
        """Returns a string that identifies the user on this machine."""
        return os.environ.get("USERNAME", "unknown")

    def this_user() -> str:
        """Returns the name of this process's user, for use in a message."""
        return user_id()

else:
    import resource

    GROUP_OF_ITS_OWN: Final[int | None] = 0
    GROUP_FLAGS: Final[int] = 0

    def is_alive(pid: int) -> bool:
        """Returns whether a process with this id exists."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # the process belongs to another user
            return True
        return True

    def open_file_limits() -> tuple[int, int]:
        """Returns the soft and the hard limit on open files for this process."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft, 1 << 30 if hard == resource.RLIM_INFINITY else hard

    def allow_many_open_files() -> None:
        """Raises the soft limit on open files to the hard limit, because every log that is being written keeps a file
        open."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS reports an infinite hard limit, but refuses to set it
            if soft < MACOS_OPEN_FILES:
                resource.setrlimit(resource.RLIMIT_NOFILE, (MACOS_OPEN_FILES, hard))

    def user_id() -> str:
        """Returns a string that identifies the user on this machine."""
        return str(os.getuid())

    def this_user() -> str:
        """Returns a description of this process's user for use in a message, such as `uid 1000`."""
        return f"uid {os.geteuid()}"
