"""Tests that the garbage collector skips frozen objects at first, and finds cycles among them later."""

from __future__ import annotations

import gc
from weakref import ref

from odradek.broker.runtime.allocator import (
    FREEZES_PER_LOOP,
    MAX_FREEZES,
    MAX_FREEZES_OF_LAST_LOOP,
    STUCK,
    FrozenObjects,
)


class Circle:
    def __init__(self) -> None:
        self.itself = self


def is_looked_at(thing: object) -> bool:
    return any(each is thing for each in gc.get_objects())


def nobody() -> ref[Circle]:
    """Returns a weak reference to an object that no longer exists."""
    circle = Circle()
    del circle.itself
    return ref(circle)


def frozen_circle(objects: FrozenObjects) -> ref[Circle]:
    """Freezes a reference cycle to which no other object refers."""
    began = objects.cluster_starting()
    circle = Circle()
    objects.cluster_started(began)
    assert not is_looked_at(circle)
    return ref(circle)


def test_objects_that_the_process_froze_earlier_stay_frozen() -> None:
    own = Circle()
    gc.freeze()
    objects = FrozenObjects()
    objects.cluster_started(objects.cluster_starting())
    objects.broker_ended(nobody(), range(2))
    assert not is_looked_at(own)


def test_garbage_is_not_frozen() -> None:
    objects, circle = FrozenObjects(), Circle()
    left = ref(circle)
    del circle
    objects.cluster_started(objects.cluster_starting())
    assert left() is None


def test_the_garbage_collector_is_restored_to_its_previous_state() -> None:
    objects = FrozenObjects()
    for was_enabled in (True, False):
        if not was_enabled:
            gc.disable()
        try:
            began = objects.cluster_starting()
            assert not gc.isenabled()
            objects.cluster_started(began)
            assert gc.isenabled() == was_enabled
        finally:
            gc.enable()


def test_cycles_are_collected_after_many_brokers_were_not_released() -> None:
    objects = FrozenObjects()
    circle, stuck = frozen_circle(objects), Circle()
    for _ in range(STUCK + 5):
        objects.broker_ended(ref(stuck), range(10))
    gc.collect()
    assert circle() is not None
    objects.broker_ended(ref(stuck), range(10))
    assert circle() is None


def test_cycles_are_found_after_many_starts_and_sooner_when_no_cluster_is_left() -> None:
    for alive, starts in ((1, MAX_FREEZES_OF_LAST_LOOP + FREEZES_PER_LOOP), (3, MAX_FREEZES + 3 * FREEZES_PER_LOOP)):
        objects = FrozenObjects()
        circle = frozen_circle(objects)
        for _ in range(starts - 1):
            objects.cluster_started(objects.cluster_starting())
        objects.broker_ended(nobody(), range(alive))
        assert circle() is not None
        objects.cluster_started(objects.cluster_starting())
        objects.broker_ended(nobody(), range(alive))
        assert circle() is None
