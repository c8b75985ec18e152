"""Runs PostgreSQL as a child process in a temporary directory. Tests connect to it through a Unix socket and can kill
it."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import psycopg

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
USER = "postgres"  # The server refuses to run as root. Debian's package creates this account for it.
SETTINGS = {"listen_addresses": "", "shared_buffers": "16MB", "max_connections": "40", "log_min_messages": "warning"}


@cache
def binaries() -> Path | None:
    """Returns the directory of `postgres` and `initdb`: the one in the PATH, or else the newest version that Debian has
    installed."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in folders if (each / "initdb").exists() and (each / "postgres").exists()), None)


def why_not() -> str | None:
    """Returns the reason that no server can run here, or None if one can."""
    if binaries() is None:
        return "PostgreSQL is not installed (Debian: apt install postgresql)"
    if os.getuid() == 0 and account() is None:
        return f"PostgreSQL does not run as root, and there is no user {USER}"
    return None


def account() -> "pwd.struct_passwd | None":
    """Returns the user that runs the server, or None if the tests' own user runs it."""
    if os.getuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam(USER)
    return None


class PostgresqlProcess:
    """A server, used as a context manager. Connect with `psycopg.connect(server.conninfo)`. The directory is deleted at
    the end.

    is_synced  whether commits wait for the disk; otherwise they survive kill -9, but not a power failure
    """

    def __init__(self, *, is_synced: bool = True) -> None:
        self._settings = {**SETTINGS, "fsync": "on" if is_synced else "off"}
        # not below pytest's directory, which only its owner may enter
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._data = self._folder / "data"
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.conninfo = f"host={self._folder} user={USER} dbname=postgres connect_timeout=10"

    def __enter__(self) -> "PostgresqlProcess":
        owner = account()
        if owner is not None:
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
        try:
            self._run("initdb", "--pgdata", str(self._data), "--username", USER, "--auth", "trust", "--no-sync")
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running():
            self.kill9()
        shutil.rmtree(self._folder, ignore_errors=True)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and waits until its recovery is finished and it accepts connections."""
        assert not self.is_running(), "it runs already"
        words = [self._binary("postgres"), "-D", str(self._data), "-k", str(self._folder)]
        for name, value in self._settings.items():
            words += ["-c", f"{name}={value}"]
        with open(self._log, "ab") as log:
            self._process = self._popen(words, log.fileno())
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.conninfo).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()[-4000:]}") from error
                time.sleep(0.01)

    def kill9(self) -> None:
        """Kills the server and all its processes with SIGKILL and waits for them to exit."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(_is_alive(int(child)) for child in children):
            assert time.monotonic() < deadline, "a process of PostgreSQL does not end"
            time.sleep(0.002)

    def _binary(self, name: str) -> str:
        folder = binaries()
        assert folder is not None
        return str(folder / name)

    def _run(self, name: str, *words: str) -> None:
        with open(self._log, "ab") as log:
            process = self._popen([self._binary(name), *words], log.fileno())
        if process.wait(START_TIMEOUT_S) != 0:
            raise RuntimeError(f"{name} failed:\n{self._log.read_text()[-4000:]}")

    def _popen(self, words: list[str], output: int) -> "subprocess.Popen[bytes]":
        owner = account()
        return subprocess.Popen(
            words,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
        )


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
