"""What the operating system knows about processes: this one's age, memory, limits, user and signals."""

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
    import asyncio  # not loaded here, because programs without a loop use this module, too

log = logging.getLogger("odradek")

_IMPORTED_S: Final = time.monotonic()
MACOS_OPEN_FILES: Final = 10_240  # OPEN_MAX, which macOS does not exceed even if its hard limit is infinite
WINDOWS_OPEN_FILES: Final = 8_192  # of the C library

# A terminal sends SIGINT for Ctrl-C. Windows sends SIGBREAK for Ctrl-Break, also from another process; it ends a
# process that gets SIGTERM at once, without a signal.
STOPS: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
if sys.platform == "win32":
    STOPS = (*STOPS, signal.SIGBREAK)


def new_asyncio_loop() -> asyncio.AbstractEventLoop:
    """Returns a loop of asyncio that can watch sockets. The default loop of Windows cannot."""
    import asyncio

    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns a loop of uvloop, or of asyncio if that is not installed. There is no uvloop for Windows."""
    try:
        import uvloop
    except ImportError:
        if sys.platform != "win32":
            log.warning("uvloop is not installed: serving with asyncio's own loop, which needs up to 1.6 times the CPU")
        return new_asyncio_loop()
    return uvloop.new_event_loop()


def on_stop(loop: asyncio.AbstractEventLoop, action: Callable[[signal.Signals], None]) -> None:
    """Calls `action` on the loop for each signal that asks this process to stop. Call it in the main thread."""
    try:
        for number in STOPS:
            loop.add_signal_handler(number, action, number)
    except NotImplementedError:  # Windows
        _on_stop_by_a_socket(loop, action)


def _on_stop_by_a_socket(loop: asyncio.AbstractEventLoop, action: Callable[[signal.Signals], None]) -> None:
    """Lets Python write the number of each signal into a socket, which wakes the loop."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)

    def arrived() -> None:
        for number in reader.recv(64):
            if number in STOPS:
                action(signal.Signals(number))

    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)  # never closed: signals write to it
    loop.add_reader(reader, arrived)
    for number in STOPS:
        signal.signal(number, lambda *_: None)


def milliseconds_since_start() -> int:
    """Returns the age of this process in milliseconds, as precise as the kernel's clock tick (usually 10 ms). Without
    /proc, the time since this module was imported."""
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
    """Returns the memory of this process, or None if the system does not say it in a file. `getrusage` only knows the
    largest value so far."""
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

    # `process_group` and `creationflags` of a child process that does not get Ctrl-C of this process's terminal.
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
        """Returns the soft and the hard limit of open files for this process."""
        return WINDOWS_OPEN_FILES, WINDOWS_OPEN_FILES

    def allow_many_open_files() -> None:
        """Does nothing: on Windows the limit cannot be raised for descriptors."""

    def user_id() -> str:
        """Returns a text that no other user of this machine has."""
        return os.environ.get("USERNAME", "unknown")

    def this_user() -> str:
        """Names the user of this process in a message."""
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
        except PermissionError:  # it belongs to another user
            return True
        return True

    def open_file_limits() -> tuple[int, int]:
        """Returns the soft and the hard limit of open files for this process."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft, 1 << 30 if hard == resource.RLIM_INFINITY else hard

    def allow_many_open_files() -> None:
        """Raises the soft limit of open files to the hard limit: every log that is being written keeps a file open."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS calls it infinite, and refuses to set that
            if soft < MACOS_OPEN_FILES:
                resource.setrlimit(resource.RLIMIT_NOFILE, (MACOS_OPEN_FILES, hard))

    def user_id() -> str:
        """Returns a text that no other user of this machine has."""
        return str(os.getuid())

    def this_user() -> str:
        """Names the user of this process in a message."""
        return f"uid {os.geteuid()}"
