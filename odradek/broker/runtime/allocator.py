"""Tells the C library which freed memory to keep.

By default glibc returns the memory of large buffers to the kernel as soon as they are freed, and fetches it again page
by page, zeroed, for the next: a quarter of the CPU time of large Produce and Fetch requests. What is free between used
memory it never returns by itself.
"""

import ctypes
from functools import cache
from typing import Final

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
KEPT_BYTES: Final = 16 * 1024 * 1024  # free memory at the end of the heap, above which it goes back to the kernel
MAPPED_BYTES: Final = 8 * 1024 * 1024  # buffers from this size on come from the kernel directly, and go back there


@cache  # once for all brokers of a process
def keep_freed_memory() -> bool:
    """Whether the C library can be told; others than glibc decide for themselves."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES))


def return_freed_memory() -> bool:
    """Returns free pages to the kernel, wherever they are: some ms. Whether there were any; False without glibc."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    return bool(malloc_trim(0))
