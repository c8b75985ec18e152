"""Reserves a port for a broker that is killed and restarted, so that no other process takes the port in the meantime.

The kernel may give an unused port to the next process that requests any port, or to an outgoing connection, but only
from its ephemeral range. The reserved ports are below that range. A lock file for each port shows other test processes
on the machine whether the port is in use.
"""

import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

PORTS = range(20_000, 32_000)
FOLDER = Path(tempfile.gettempdir(), "odradek-test-ports")


class ReservedPort:
    """A port reserved until this object is deleted or its process exits."""

    def __init__(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        for number in random.sample(PORTS, 100):
            lock = open(FOLDER / str(number), "ab")  # noqa: SIM115
            if _is_ours(lock) and _is_free(number):
                self.number, self._lock = number, lock
                return
            lock.close()
        raise RuntimeError(f"of 100 ports from {PORTS.start} to {PORTS.stop - 1} none is free")


def _is_ours(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(number: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True
