"""Socket options and socket queries that differ between operating systems."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Final

if sys.platform == "linux":
    CORK: int = socket.TCP_CORK  # socket option that holds back partial packets
    # Whether large responses can be sent directly from files. The kernel must copy the bytes itself and report which
    # bytes are cached.
    SENDS_FILES: bool = hasattr(os, "sendfile") and hasattr(os, "RWF_NOWAIT") and hasattr(os, "preadv")
else:
    CORK = 0
    SENDS_FILES = False

if sys.platform == "win32":
    # SO_REUSEADDR would allow a second broker to listen on the same port.
    OWN_PORT: int = socket.SO_EXCLUSIVEADDRUSE
    # The value of SO_LINGER that makes `close` send a reset.
    NO_LINGERING: Final = struct.pack("hh", 1, 0)

    def send_buffers(to: socket.socket, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Sends buffers in one call. Returns the number of bytes sent. Raises OSError, including BlockingIOError."""
        return to.send(b"".join(buffers))

    def has_unread_bytes(descriptor: int) -> bool:
        """Returns whether the peer has sent bytes that have not been read, or has closed the connection. Raises
        OSError."""
        return bool(select.select([descriptor], [], [], 0)[0])

else:
    from fcntl import ioctl

    # Allows a broker to listen on the port of a broker that has just stopped.
    OWN_PORT = socket.SO_REUSEADDR
    NO_LINGERING: Final = struct.pack("ii", 1, 0)
    send_buffers = socket.socket.sendmsg
    _UNREAD: Final = array("i", [0])
    if sys.platform == "linux":
        _FIONREAD = 0x541B  # the value of termios.FIONREAD, without importing termios
    else:
        from termios import FIONREAD as _FIONREAD

    def has_unread_bytes(descriptor: int) -> bool:
        """Returns whether the peer has sent bytes that have not been read. Raises OSError."""
        ioctl(descriptor, _FIONREAD, _UNREAD)
        return _UNREAD[0] > 0
