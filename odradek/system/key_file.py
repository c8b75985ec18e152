"""Passes keys to OpenSSL, which reads them only from files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

if sys.platform == "linux" and hasattr(os, "memfd_create"):

    @contextmanager
    def as_file(content: bytes) -> Iterator[str]:
        """Yields the path of an unnamed file in memory, so that a key never reaches a disk."""
        descriptor = os.memfd_create("odradek-key", os.MFD_CLOEXEC)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

else:
    import tempfile

    @contextmanager
    def as_file(content: bytes) -> Iterator[str]:
        """Yields the path of a file that only its owner can read and deletes the file afterwards. In-memory files
        exist only on Linux."""
        descriptor, path = tempfile.mkstemp(prefix="odradek-key-")
        try:
            with os.fdopen(descriptor, "wb") as file:  # must be closed before OpenSSL opens it on Windows
                file.write(content)
            yield path
        finally:
            os.unlink(path)
