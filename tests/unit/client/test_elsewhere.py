"""Tests that the client, the fixtures and the commands work without the modules that exist only on Unix.

The test hides those modules, so that it can run on Linux. On Windows and macOS, some of the modules do not exist
anyway.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The standard library is loaded before the modules are hidden, because it also checks the platform.
HIDE = """
import asyncio, concurrent.futures, ctypes, logging, multiprocessing, os, shutil, socket, ssl, subprocess, sys, tempfile
import aiohttp, cryptography.x509, pytest
of_unix = "fork", "geteuid", "pread", "preadv", "pwrite", "pwritev", "sendfile", "statvfs", "sysconf"
for name in ("fdatasync", "memfd_create", "sched_getaffinity", *(of_unix if {platform!r} == "win32" else ())):
    if hasattr(os, name):
        delattr(os, name)
if {platform!r} == "win32" and sys.platform != "win32":
    import signal, types
    for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop"):
        sys.modules[name] = None
    del os.register_at_fork
    os.O_BINARY = os.O_NOINHERIT = subprocess.CREATE_NEW_PROCESS_GROUP = 0
    signal.SIGBREAK, socket.SO_EXCLUSIVEADDRUSE = signal.SIGUSR1, socket.SO_REUSEADDR
    for name in ("_winapi", "msvcrt"):
        sys.modules[name] = types.ModuleType(name)
sys.platform = {platform!r}
"""
PLATFORMS = ("win32", "darwin")
USED = (
    "odradek.cli",
    "odradek.broker.process",
    "odradek.client",
    "odradek.client.admin",
    "odradek.client.sync",
    "odradek.dualwrite",
    "odradek.testing",
    "odradek.testing.pytest_plugin",
    "odradek.testing.sync",
    "odradek.tools.commands.tree",
)


def run(platform: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    # The new process inherits the complete environment. On Windows, it could not start without the system's variables.
    command = [sys.executable, "-c", HIDE.format(platform=platform) + code]
    environment = os.environ | {"TMPDIR": str(folder), "ODRADEK_PURE": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_all_modules_for_other_platforms_can_be_imported(platform: str, tmp_path: Path) -> None:
    done = run(platform, f"import {', '.join(USED)}", tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_key_in_a_file_of_its_own_does_not_outlive_the_context(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "odradek", "certs", "--client", "kate", str(tmp_path / "certs")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (certificate,) = (tmp_path / "certs").glob("client-kate.pem")
    (tmp_path / "temporary").mkdir()
    code = (
        "from odradek.client.security.settings import Security, client_context\n"
        f"client_context(Security('SSL', ssl_certfile={str(certificate)!r}))\n"
    )
    done = run("darwin", code, tmp_path / "temporary")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []
