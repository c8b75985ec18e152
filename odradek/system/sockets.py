"""Options and questions of sockets that differ between systems."""

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
    CORK: int = socket.TCP_CORK  # the socket option that holds a partial packet back
    # Whether large answers are sent from their files: the kernel copies them, and says beforehand what it has cached.
    SENDS_FILES: bool = hasattr(os, "sendfile") and hasattr(os, "RWF_NOWAIT") and hasattr(os, "preadv")
else:
    CORK = 0
    SENDS_FILES = False

if sys.platform == "win32":
    # SO_REUSEADDR would let a second broker listen on the port of the first.
    OWN_PORT: int = socket.SO_EXCLUSIVEADDRUSE
    # The value of SO_LINGER with which `close` sends a reset.
    NO_LINGERING: Final = struct.pack("hh", 1, 0)

    def send_buffers(to: socket.socket, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Sends buffers in one call. Returns how many bytes were sent. Raises OSError, including BlockingIOError."""
        return to.send(b"".join(buffers))

    def has_unread_bytes(descriptor: int) -> bool:
        """Returns whether the peer has sent bytes that have not been read, or has closed the connection. Raises
        OSError."""
        return bool(select.select([descriptor], [], [], 0)[0])

else:
    from fcntl import ioctl

    # Lets a broker listen on the port of one that has just stopped.
    OWN_PORT = socket.SO_REUSEADDR
    NO_LINGERING: Final = struct.pack("ii", 1, 0)
    send_buffers = socket.socket.sendmsg
    _UNREAD: Final = array("i", [0])
    if sys.platform == "linux":
        _FIONREAD = 0x541B  # termios defines it too, but would have to be imported
    else:
        from termios import FIONREAD as _FIONREAD

    def has_unread_bytes(descriptor: int) -> bool:
        """Returns whether the peer has sent bytes that have not been read. Raises OSError."""
        ioctl(descriptor, _FIONREAD, _UNREAD)
        return _UNREAD[0] > 0
