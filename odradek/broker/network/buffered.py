"""What a connection holds that nobody has handled or sent yet: asked by recordings only."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any, Final

FIONREAD: Final = 0x541B  # Linux; termios has it, and costs an import


def buffered_bytes(transport: asyncio.Transport | None, holds_input: bool) -> tuple[int, int]:
    """Bytes of the peer, the kernel's included; bytes of answers. holds_input: some frame of it waits."""
    if transport is None or transport.is_closing():
        return 0, 0
    unsent = transport.get_write_buffer_size()
    if holds_input:
        return 1, unsent
    shared: Any = transport.get_extra_info("socket")
    if shared is None:
        return 0, unsent
    from fcntl import ioctl  # here: only recordings ask

    unread = array("i", [0])
    try:
        ioctl(shared.fileno(), FIONREAD, unread)
    except OSError:
        return 0, unsent
    return unread[0], unsent
