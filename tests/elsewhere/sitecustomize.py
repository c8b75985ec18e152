"""Disables Linux features, so that the fallbacks for macOS and Windows run on Linux: `make test-elsewhere`.

Python runs this file at startup if `PYTHONPATH` contains this folder. The file therefore affects the tests and every
broker and command that they start. The environment variable `WITHOUT` lists keys of `ABILITIES`, or contains a key of
`SYSTEMS`. The product reads neither variable.

`odradek.system` chooses its functions when it is imported. To imitate one of the `SYSTEMS`, this file imports the
module while `sys.platform` has that system's name and, for Windows, while stand-ins for the Windows-only modules exist.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

REPOSITORY: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PRODUCT: Final = os.path.join(REPOSITORY, "odradek") + os.sep
FULL_SYNC: Final = 51  # F_FULLFSYNC on macOS
WAIT_TIMEOUT: Final = 258
MAX_FRAMES: Final = 6  # maximum number of frames between a product function and its call to the operating system


def is_called_by_the_product() -> bool:
    frame = sys._getframe(2)
    for _ in range(MAX_FRAMES):
        if frame.f_code.co_filename.startswith(PRODUCT):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def without(*names: str) -> Callable[[], None]:
    def take() -> None:
        for name in names:
            if hasattr(os, name):
                delattr(os, name)

    return take


def take_uvloop() -> None:
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # an import then fails


def take_signals() -> None:
    take_uvloop()
    import asyncio

    def refuse(*_: object) -> None:
        raise NotImplementedError

    asyncio.SelectorEventLoop.add_signal_handler = refuse  # type: ignore[method-assign, assignment]


def take_proc() -> None:
    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith("/proc/") and is_called_by_the_product():
            raise FileNotFoundError(errno.ENOENT, "there is no /proc here", arguments[0])

    sys.addaudithook(refuse)


def take_shared_memory() -> None:
    access = os.access

    def accessible(path: Any, mode: int, **options: Any) -> bool:
        return str(path) != "/dev/shm" and access(path, mode, **options)

    os.access = accessible


def take_the_c_library() -> None:
    import ctypes

    class NamedLibrary(ctypes.CDLL):
        def __init__(self, name: str | None, *arguments: Any, **options: Any) -> None:
            if name is None and is_called_by_the_product():
                raise TypeError("bad argument type for built-in operation")
            super().__init__(name, *arguments, **options)

    ctypes.CDLL = NamedLibrary  # type: ignore[misc]


ABILITIES: Final[dict[str, Callable[[], None]]] = {
    "nowait": without("RWF_NOWAIT"),
    "preadv": without("preadv", "pwritev"),
    "sendfile": without("sendfile"),
    "fdatasync": without("fdatasync"),
    "memfd": without("memfd_create"),
    "uvloop": take_uvloop,
    "signals": take_signals,
    "proc": take_proc,
    "shm": take_shared_memory,
}


def import_system(platform: str) -> None:
    """Imports `odradek.system` as if on another platform."""
    for name in ("asyncio", "select", "shutil", "socket", "subprocess", "tempfile"):
        import_module(name)  # these modules check the platform when they are imported
    real, sys.platform = sys.platform, platform
    try:
        for name in ("files", "key_file", "processes", "sockets"):
            import_module(f"odradek.system.{name}")
    finally:
        sys.platform = real


def be_macos() -> None:
    import fcntl

    real = fcntl.fcntl

    def control(descriptor: int, command: int, *arguments: Any) -> Any:
        return os.fsync(descriptor) if command == FULL_SYNC else real(descriptor, command, *arguments)

    fcntl.fcntl = control  # type: ignore[assignment]
    fcntl.F_FULLFSYNC = FULL_SYNC  # type: ignore[attr-defined]
    import_system("darwin")


def be_windows() -> None:
    import fcntl
    import signal
    import socket
    import struct
    import subprocess

    subprocess.CREATE_NEW_PROCESS_GROUP = 0  # type: ignore[attr-defined]
    for name in ("pread", "pwrite", "geteuid", "getuid", "killpg", "sysconf", "O_DIRECTORY", "O_CLOEXEC"):
        hide(name)
    os.O_BINARY = os.O_NOINHERIT = 0  # type: ignore[attr-defined]
    signal.SIGBREAK = signal.SIGUSR1  # type: ignore[attr-defined]
    socket.SO_EXCLUSIVEADDRUSE = socket.SO_REUSEADDR  # type: ignore[attr-defined]

    def create_file(path: str, access: int, share: int, _security: int, disposition: int, *_: int) -> int:
        assert share == 7, "a file that others cannot rename and remove"
        flags = {0x80000000: os.O_RDONLY, 0x40000000: os.O_WRONLY, 0xC0000000: os.O_RDWR}[access]
        flags |= {2: os.O_CREAT | os.O_TRUNC, 3: 0, 4: os.O_CREAT, 5: os.O_TRUNC}[disposition]
        return os.open(path, flags, 0o600)

    def open_process(_access: int, _inherit: bool, pid: int) -> int:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise OSError(errno.EINVAL, "the parameter is incorrect") from None
        return pid

    def locking(descriptor: int, mode: int, size_bytes: int) -> None:
        assert size_bytes == 1
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if mode == 2 else 0))
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "permission denied") from None

    sys.modules["_winapi"] = stand_in(
        "_winapi",
        CreateFile=create_file,
        OpenProcess=open_process,
        WaitForSingleObject=lambda _handle, _milliseconds: WAIT_TIMEOUT,
        CloseHandle=lambda _handle: None,
        GENERIC_READ=0x80000000,
        GENERIC_WRITE=0x40000000,
        OPEN_EXISTING=3,
        NULL=0,
        SYNCHRONIZE=0x100000,
        WAIT_TIMEOUT=WAIT_TIMEOUT,
    )
    sys.modules["msvcrt"] = stand_in(
        "msvcrt", open_osfhandle=lambda handle, _flags: handle, locking=locking, LK_LOCK=1, LK_NBLCK=2
    )
    import_system("win32")
    import odradek.system.sockets

    odradek.system.sockets.NO_LINGERING = struct.pack("ii", 1, 0)  # type: ignore[misc]  # as this kernel wants it
    del sys.modules["_winapi"], sys.modules["msvcrt"]  # other modules check whether these two exist
    take_the_c_library()
    rename_as_windows_does()


def hide(name: str) -> None:
    """Makes a function of `os` fail if the product calls it. Tests can still call it."""
    real = getattr(os, name)
    if not callable(real):
        return

    def call(*arguments: Any, **options: Any) -> Any:
        if is_called_by_the_product():
            raise AttributeError(f"Windows has no os.{name}")
        return real(*arguments, **options)

    setattr(os, name, call)


def rename_as_windows_does() -> None:
    """Makes the product's renames work as on Windows, where a directory cannot be renamed while one of its files is
    open, and `os.rename` does not replace an existing file."""
    rename, replace, listdir, readlink = os.rename, os.replace, os.listdir, os.readlink

    def check(source: Any) -> None:
        if not os.path.isdir(source):
            return
        inside = os.path.realpath(source) + os.sep
        for descriptor in listdir("/proc/self/fd"):
            try:
                path = readlink(f"/proc/self/fd/{descriptor}")
            except FileNotFoundError:
                continue
            if path.startswith(inside):
                raise PermissionError(errno.EACCES, f"{path} is open", source)

    def rename_new(source: Any, target: Any, **options: Any) -> None:
        if is_called_by_the_product():
            check(source)
            if os.path.exists(target):
                raise FileExistsError(errno.EEXIST, "the target exists", target)
        rename(source, target, **options)

    def replace_it(source: Any, target: Any, **options: Any) -> None:
        if is_called_by_the_product():
            check(source)
        replace(source, target, **options)

    os.rename = rename_new  # type: ignore[assignment]
    os.replace = replace_it  # type: ignore[assignment]


def stand_in(name: str, **members: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    return module


SYSTEMS: Final[dict[str, tuple[tuple[str, ...], Callable[[], None]]]] = {
    "macos": (("nowait", "sendfile", "fdatasync", "memfd", "proc", "shm"), be_macos),
    "windows": (tuple(ABILITIES), be_windows),
}


def take_away(words: str) -> None:
    for word in words.split(","):
        if word in SYSTEMS:
            abilities, be = SYSTEMS[word]
            for ability in abilities:
                ABILITIES[ability]()
            be()
        else:
            ABILITIES[word]()


if os.environ.get("WITHOUT"):
    take_away(os.environ["WITHOUT"])
