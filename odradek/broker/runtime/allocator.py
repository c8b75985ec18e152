"""Memory of the process: which freed memory the C library keeps, and what the garbage collector passes over.

By default glibc returns the memory of large buffers to the kernel as soon as they are freed, and fetches it again page
by page, zeroed, for the next: a quarter of the CPU time of large Produce and Fetch requests. What is free between used
memory it never returns by itself.
"""

import ctypes
import gc
from collections.abc import Callable, Sized
from functools import cache
from typing import Final

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
KEPT_BYTES: Final = 16 * 1024 * 1024  # free memory at the end of the heap, above which it goes back to the kernel
MAPPED_BYTES: Final = 8 * 1024 * 1024  # buffers from this size on come from the kernel directly, and go back there

STUCK: Final = 50  # brokers that are thawed and collected; and half as many as there are clusters
FREEZES: Final = 500  # after which cycles among frozen objects are looked for; fewer when no cluster waits meanwhile
FREEZES_OF_THE_LAST: Final = 100
FREEZES_FOR_EACH: Final = 10  # more for each cluster: with many the pause is longer


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


class FrozenObjects:
    """Objects of the process that the garbage collector passes over: all that are there when a cluster has started.

    A turn of the loop in which it looked at those of a fork of 100 partitions took 15 ms of CPU and more, and at those
    that the process itself has 30. What a cluster leaves goes by its reference counts. Only cycles need the collector,
    which does not find frozen ones: they are thawed, all at once, when there may be many, best when no cluster is left.
    """

    def __init__(self) -> None:
        self._freezes = 0  # since all were thawed
        self._stuck = 0  # brokers that did not go by their reference counts

    def begin(self) -> bool:
        """Before a cluster starts. Returns what `made` needs."""
        gc.collect(1)  # garbage would be frozen with it; what requests have left since the last time is little
        collects = gc.isenabled()
        gc.disable()
        return collects

    def made(self, began: bool) -> None:
        """When it has started, or could not."""
        gc.freeze()
        self._freezes += 1
        if began:
            gc.enable()

    def gone(self, broker: Callable[[], object], clusters: Sized) -> None:
        """Some time after a broker has let go of its parts.

        broker    None if it went with them; a weak reference
        clusters  those that are left
        """
        alive = len(clusters)
        self._stuck += broker() is not None
        most = FREEZES if alive > 1 else FREEZES_OF_THE_LAST
        if self._stuck > STUCK + alive // 2 or self._freezes > most + FREEZES_FOR_EACH * alive:
            self._freezes = self._stuck = 0
            gc.unfreeze()
            gc.collect()
            gc.freeze()
