"""Tests that acknowledged ACL changes survive a crash before any disk call or in the middle of one.

The next process finds the result of some prefix of the changes, which includes all acknowledged ones. Each request is
decided as a whole, so its changes are never applied in part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from odradek.broker.metadata.acl_changes import create_acls, delete_acls
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import Decision
from odradek.broker.security.acl.acls import Acl, AclFilter
from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType
from tests.support.fake_disk import FakeDisk, ProcessCrashed
from tests.support.metadata import Running, ids

State = frozenset[Acl]
Change = Callable[[MetadataImage], Decision[Any]]
ANY = 1


def acl(name: str, permission: Permission) -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:alice", "*", Operation.ALL, permission)


def changes() -> Iterator[Change]:
    new_uuid = ids()

    def create(*acls: Acl) -> Change:
        return lambda image: create_acls(image, acls, new_uuid)

    def delete(name: str | None) -> Change:
        acl_filter = AclFilter(ANY, name, ANY, None, None, ANY, ANY)
        return lambda image: delete_acls(image, [acl_filter])

    both = (acl("a", Permission.ALLOW), acl("a", Permission.DENY))
    yield create(*both)
    yield create(acl("b", Permission.ALLOW), acl("c", Permission.DENY))
    yield delete("a")
    yield create(*both)
    yield delete(None)


def state_of(image: MetadataImage) -> State:
    return frozenset(each for _, each in image.acls.items())


def states_after_each_change() -> Sequence[State]:
    running = Running(FakeDisk())
    states = [state_of(running.metadata.image)]
    for change in changes():
        running.metadata.submit(change)
        states.append(state_of(running.metadata.image))
    return states


def start() -> tuple[FakeDisk, Running]:
    disk = FakeDisk()
    return disk, Running(disk)


def calls_to_the_disk() -> int:
    disk, running = start()
    before = disk.calls
    for change in changes():
        running.metadata.submit(change)
    return disk.calls - before


def disks_after(disk: FakeDisk) -> Iterator[tuple[str, FakeDisk]]:
    yield "kill", disk.after_kill()
    for state in disk.after_power_failure(seed=1):
        yield state.name, state.disk


def test_whenever_the_process_dies_the_acls_are_those_of_a_prefix_of_the_changes() -> None:
    states = states_after_each_change()
    assert len(set(states)) == 4
    count = calls_to_the_disk()
    assert count >= 2 * (len(states) - 1)
    for call in range(1, count + 2):
        for half_write in (False, True):
            disk, running = start()
            disk.crash_before(call, half_write=half_write)
            acknowledged = 0
            with suppress(ProcessCrashed):
                for change in changes():
                    if running.metadata.submit(change).is_done:
                        acknowledged += 1
            for name, found in disks_after(disk):
                after = state_of(Running(found).metadata.image)
                assert after in states[acknowledged : acknowledged + 2], f"call {call}, {half_write=}, {name}"


def test_a_change_that_is_not_acknowledged_has_no_effect_yet() -> None:
    """An ACL must not take effect before it is synced to disk, because a power failure could revoke it again."""
    disk, running = start()
    disk.crash_before(2)  # The process dies after the write and before the sync.
    with suppress(ProcessCrashed):
        running.metadata.submit(next(changes()))
    assert state_of(running.metadata.image) == frozenset()
