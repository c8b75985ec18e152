"""Tests that freed memory held by the C library is returned to the kernel."""

import os
import platform
from pathlib import Path

import pytest

from odradek.broker.runtime.allocator import return_freed_memory

BLOCK_BYTES = 20_000  # too large for Python's own allocator, and too small to be mapped separately by the kernel
BLOCKS = 4_000
KEPT_EVERY = 100


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.linux  # the process's memory usage is read from /proc
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide for themselves")
def test_pages_between_used_memory_go_back() -> None:
    blocks = [bytes(BLOCK_BYTES - number % 2) for number in range(BLOCKS)]
    kept = blocks[::KEPT_EVERY]
    del blocks
    before = rss_bytes()
    assert return_freed_memory()
    assert before - rss_bytes() > BLOCK_BYTES * BLOCKS / 2
    assert len(kept) == BLOCKS / KEPT_EVERY
