"""Controls how much freed memory the C library keeps, and which objects the garbage collector skips.

By default, glibc returns the memory of large buffers to the kernel as soon as they are freed. The kernel then has to
provide zeroed pages for the next buffer, one by one, which took a quarter of the CPU time of large Produce and Fetch
requests. Conversely, glibc never returns free pages that lie between used pages, unless `malloc_trim` is called.
"""

import ctypes
import gc
from collections.abc import Callable, Sized
from functools import cache
from typing import Final

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # constants from glibc's malloc.h
# Maximum amount of free memory at the end of the heap. The rest is returned to the kernel.
FREE_MEMORY_BYTES: Final = 16 * 1024 * 1024
# Buffers of at least this size are mapped from the kernel directly, and unmapped when freed.
MAPPED_BYTES: Final = 8 * 1024 * 1024

# TypeError is raised on Windows, where ctypes needs the name of a library.
NO_GLIBC: Final = (OSError, AttributeError, TypeError)

# A full collection runs when the number of brokers that have not been freed exceeds this number plus half the number of
# clusters.
STUCK: Final = 50
# Number of freezes after which a full collection looks for cycles among frozen objects. The second limit applies if at
# most one cluster is left, because the collection then delays hardly any clients.
MAX_FREEZES: Final = 500
MAX_FREEZES_OF_LAST_LOOP: Final = 100
# Added to either limit for each cluster, because the pause is longer if there are more clusters.
FREEZES_PER_LOOP: Final = 10


@cache  # runs only once, even if the process has several brokers
def keep_freed_memory() -> bool:
    """Makes glibc keep more freed memory. Returns False for any other C library, which has no such option."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except NO_GLIBC:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, FREE_MEMORY_BYTES) and mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES))


def return_freed_memory() -> bool:
    """Returns all free pages to the kernel, which takes a few milliseconds. Returns True if there were any free pages,
    and always False without glibc."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except NO_GLIBC:
        return False
    return bool(malloc_trim(0))


class FrozenObjects:
    """Keeps the garbage collector from examining the objects that are alive once a cluster has started.

    Without freezing, a collection blocked the loop for at least 15 ms of CPU time for a fork with 100 partitions, and
    for 30 ms for the process's own objects. A stopped cluster is freed by reference counting, except for cycles. The
    collector does not find cycles of frozen objects, so all objects are unfrozen for one collection when many cycles
    may have accumulated, preferably when no cluster is left.
    """

    def __init__(self) -> None:
        self._freezes = 0  # number of freezes since the last thaw
        self._stuck = 0  # number of brokers that reference counting did not free

    def cluster_starting(self) -> bool:
        """Collects garbage and disables the collector. Called before a cluster starts. Returns whether the collector
        was enabled; the caller passes this value to `cluster_started`."""
        gc.collect(1)  # Garbage would otherwise also be frozen. Requests leave little garbage between two collections.
        collects = gc.isenabled()
        gc.disable()
        return collects

    def cluster_started(self, began: bool) -> None:
        """Freezes all objects. Called when the cluster has started or has failed to start. `began` is the result of
        `cluster_starting`."""
        gc.freeze()
        self._freezes += 1
        if began:
            gc.enable()

    def broker_ended(self, broker: Callable[[], object], clusters: Sized) -> None:
        """Counts a stopped broker that has not been freed and runs a full collection if many cycles may have
        accumulated. Called some time after the broker has dropped its parts.

        broker    a weak reference, which returns None if the broker has been freed
        clusters  the remaining clusters
        """
        alive = len(clusters)
        self._stuck += broker() is not None
        most = MAX_FREEZES if alive > 1 else MAX_FREEZES_OF_LAST_LOOP
        if self._stuck > STUCK + alive // 2 or self._freezes > most + FREEZES_PER_LOOP * alive:
            self._freezes = self._stuck = 0
            gc.unfreeze()
            gc.collect()
            gc.freeze()
