"""Collects facts about the machine, the data directory and the broker. Changes nothing and leaves nothing locked."""

from __future__ import annotations

import asyncio
import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.files import names
from odradek.system.files import lock, open_file, space_bytes
from odradek.system.processes import open_file_limits
from odradek.tools.doctor.findings import BrokerFacts, DirectoryFacts, MachineFacts, ProbedAddress

if TYPE_CHECKING:
    from odradek.client.security.settings import SecuritySettings

CONNECT_TIMEOUT_S = 3.0
LEFT_OVER = ("-delete", "-stray", names.DELETED, names.CLEANED, names.SWAP, ".tmp")
MOUNTS = Path("/proc/self/mounts")


def machine_facts() -> MachineFacts:
    return MachineFacts(*open_file_limits(), find_spec("uvloop") is not None)


def directory_facts(path: Path) -> DirectoryFacts:
    """Examines a data directory. Raises OSError if it cannot be listed."""
    path = path.absolute()
    if not path.is_dir():
        return DirectoryFacts(str(path), exists=path.exists())
    entries = sorted(entry.name for entry in os.scandir(path))
    newest_s = max((entry.stat().st_mtime for entry in os.scandir(path)), default=None)
    return DirectoryFacts(
        str(path),
        exists=True,
        is_writable=os.access(path, os.W_OK | os.X_OK),
        free_bytes=space_bytes(path)[1],
        file_system=file_system_of(path),
        is_data_directory=names.META_PROPERTIES in entries,
        is_used=is_locked(path / names.LOCK),
        was_stopped_cleanly=names.CLEAN_SHUTDOWN in entries,
        refused=tuple(name for name in entries if (path / name / names.REFUSED).exists()),
        set_aside=tuple(name for name in entries if name.endswith(LEFT_OVER)),
        newest_ms=None if newest_s is None else int(newest_s * 1000),
        now_ms=int(time.time() * 1000),
    )


def is_locked(path: Path) -> bool:
    """Returns whether another process holds a data directory's lock. `path` is the lock file."""
    try:
        file = open_file(str(path), os.O_RDWR, 0)
    except OSError:
        return False
    try:
        return not lock(file)
    except OSError:
        return True
    finally:
        os.close(file)


def file_system_of(path: Path) -> str:
    """Returns the type of the file system that contains `path`, as mount(8) calls it, or an empty string if the type is
    unknown."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    mounts = [(line.split()[1], line.split()[2]) for line in lines]
    real = os.path.realpath(path)
    holding = [(place, kind) for place, kind in mounts if os.path.commonpath([real, place]) == place]
    return max(holding, key=lambda each: len(each[0]), default=("", ""))[1]


async def broker_facts(bootstrap: str, timeout_s: float, security: SecuritySettings) -> BrokerFacts:
    from odradek.client.admin import Admin
    from odradek.client.common.errors import ClientError

    given = [address_of(text.strip()) for text in bootstrap.split(",")]
    reached = tuple(await asyncio.gather(*(reach(*each) for each in given)))
    if all(each.error is not None for each in reached):
        return BrokerFacts(reached)
    timeout_ms = timeout_s * 1000
    admin = Admin(
        bootstrap_servers=bootstrap, default_api_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms, **security
    )
    try:
        async with admin:
            found = await admin.describe_cluster()
    except ClientError as error:
        return BrokerFacts(reached, refusal=str(error))
    probed = await asyncio.gather(*(reach(each.host, each.port) for each in found.brokers))
    return BrokerFacts(reached, advertised=tuple(probed))


def address_of(text: str) -> tuple[str, int]:
    """Parses HOST:PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


async def reach(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> ProbedAddress:
    """Connects to an address and closes the connection. Returns the address, with the error if it cannot be reached."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return ProbedAddress(host, port, f"no answer in {timeout_s:g} s")
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
        return ProbedAddress(host, port, why)
    writer.close()
    return ProbedAddress(host, port)
