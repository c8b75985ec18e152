"""Tests that share groups deliver every record until it is finished, while members fetch, acknowledge, fall silent and
vanish at random, writes fail, responses are lost, and the broker dies at random disk calls.

After every event a record is held by at most one member, acknowledged records are not delivered again, and no record is
delivered more often than the limit allows. A kill can lose the count of one delivery, and so can a write that fails
when the last session ends. When the faults end, every record is finished, has been delivered as often as allowed, or is
delivered to one more member.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from odradek.broker.shares.core.state import UNKNOWN_COUNT
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.simulation.seeds import seeds
from tests.support.fake_disk import FakeDisk, ProcessCrashed
from tests.support.share_broker import STATE_PARTITIONS, ShareBroker
from tests.support.share_member import Member, partitions_of

SEEDS = seeds(60)
EVENTS = 90
LOCK_MS = 30_000
LIMIT = 3
ACCEPT, RELEASE, REJECT = 1, 2, 3
TEMPORARY = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.trace = [f"SEED={seed}"]
        self.disk = FakeDisk()
        self.broker = ShareBroker(self.disk)
        self.topic = self.broker.shared_topic("T")
        self._configure()
        self.forgotten = 0  # number of a record's deliveries that may not have been stored
        self.members: dict[Member, dict[int, int]] = {}  # by member: the end of its lock for each offset
        self.names = iter(range(1_000_000))
        self.produced = 0  # end offset of the acknowledged records
        self.finished: set[int] = set()
        self.maybe_finished: set[int] = set()  # records with an unanswered acknowledgement
        self.deliveries: Counter[int] = Counter()

    def _configure(self) -> None:
        self.broker.set_group(share_delivery_count_limit=str(LIMIT))

    def check(self, condition: bool, what: str) -> None:
        assert condition, "\n".join([*self.trace, what])

    # --- Faults.

    def restart(self) -> None:
        self.forgotten += 1
        self.disk = self.disk.after_kill()
        self.broker = ShareBroker(self.disk)
        self._configure()
        self.topic = self.broker.topic("T").topic_id
        self.broker.topic(SHARE_GROUP_STATE, STATE_PARTITIONS)
        self.broker.settle()
        self.members.clear()

    # --- Events.

    def step(self) -> None:
        event = self.rng.choices(
            ["produce", "join", "fetch", "ack", "vanish", "close", "time", "refuse", "kill"],
            [6, 3, 14, 14, 2, 1, 4, 2, 1],
        )[0]
        self.trace.append(event)
        if event == "kill":
            self.disk.crash_before(self.rng.randrange(1, 12))
            return
        try:
            getattr(self, event)()
        except ProcessCrashed:
            self.trace.append("killed")
            self.restart()

    def produce(self) -> None:
        counts = [self.rng.randint(1, 6) for _ in range(self.rng.randint(1, 3))]
        for count in counts:
            self.broker.produce("T", count)
            self.produced = self.broker.partition("T").log.log_end_offset

    def join(self) -> None:
        if len(self.members) < 4:
            self.members[self.broker.member(f"m{next(self.names)}")] = {}

    def fetch(self) -> None:
        if not self.members:
            return
        member = self.rng.choice(list(self.members))
        how: dict[str, Any] = {
            "max_records": self.rng.choice([1, 4, 100]),
            "mode": self.rng.randint(0, 1),
            "batch_size": self.rng.choice([1, 5, 100]),
        }
        response = member.fetch(self.topic, **how)
        if response.error_code != 0:
            member.epoch = 0
            return
        is_lost = self.rng.random() < 0.1
        for first, last, count in partitions_of(response).get((self.topic, 0), NOTHING).acquired:
            self.delivered(member, first, last, count, is_lost=is_lost)

    def delivered(self, member: Member, first: int, last: int, count: int, *, is_lost: bool = False) -> None:
        self.trace.append(f"  {member.member_id} gets {first}-{last} for the {count}. time")
        now_ms = self.broker.clock.now_ms()
        self.check(1 <= count <= LIMIT, f"delivered for the {count}. time")
        for offset in range(first, last + 1):
            self.check(offset not in self.finished, f"{offset} is delivered again after it was finished")
            for other, held in self.members.items():
                until_ms = held.get(offset, 0)
                self.check(other is member or until_ms <= now_ms, f"{offset} is held by {other.member_id} too")
            self.deliveries[offset] += 1
            self.check(self.deliveries[offset] <= LIMIT + self.forgotten, f"{offset} is delivered too often")
            if not is_lost:
                self.members[member][offset] = now_ms + LOCK_MS

    def ack(self) -> None:
        holders = [member for member, held in self.members.items() if held]
        if not holders:
            return
        member = self.rng.choice(holders)
        held = self.members[member]
        chosen = sorted(self.rng.sample(sorted(held), self.rng.randint(1, len(held))))
        kinds = {offset: self.rng.choice([ACCEPT, ACCEPT, RELEASE, REJECT]) for offset in chosen}
        ends = {offset for offset, kind in kinds.items() if kind != RELEASE}
        now_ms = self.broker.clock.now_ms()
        # If the lock had expired, a failed write might have archived the record, so a success would not prove that the
        # acknowledgement was stored.
        in_time = {offset for offset in chosen if held[offset] > now_ms}
        for offset in chosen:
            del held[offset]
        self.maybe_finished |= ends
        response = member.ack({self.topic: [(offset, offset, kind) for offset, kind in kinds.items()]})
        if response.error_code != 0:
            member.epoch = 0
            return
        if self.rng.random() < 0.15:
            return  # the response is lost
        code = partitions_of(response)[self.topic, 0].code
        self.trace.append(f"  {member.member_id} acknowledges {kinds}: {code.name}")
        if code is ErrorCode.NONE:
            self.finished |= ends & in_time

    def vanish(self) -> None:
        if self.members:
            member = self.rng.choice(list(self.members))
            del self.members[member]
            member.disconnect()

    def close(self) -> None:
        if self.members:
            member = self.rng.choice(list(self.members))
            del self.members[member]
            member.ack({}, epoch=-1)

    def time(self) -> None:
        self.broker.sleep(self.rng.choice([10, 5_000, LOCK_MS + 1]))

    def refuse(self) -> None:
        refusals = [self.rng.choice(TEMPORARY)] * self.rng.randint(1, 2)
        self.broker.persister.refusals += refusals
        self.forgotten += len(refusals)

    # --- The end of the run.

    def end_well(self) -> None:
        try:
            self.broker.settle()
            for member in self.members:
                member.disconnect()
        except ProcessCrashed:
            pass
        self.restart()
        self.broker.sleep(LOCK_MS + 1)
        last = self.broker.member("last")
        self.members[last] = {}
        drained: set[int] = set()
        while acquired := last.acquire(self.topic):
            for first, end, count in acquired:
                self.delivered(last, first, end, count)
                drained |= set(range(first, end + 1))
                self.check(last.ack_code(self.topic, (first, end, ACCEPT)) is ErrorCode.NONE, "the last ack failed")
        used_up = {offset for offset, count in self.deliveries.items() if count >= LIMIT}
        lost = set(range(self.produced)) - self.finished - self.maybe_finished - drained - used_up
        self.check(not lost, f"lost: {sorted(lost)}")
        stored = self.broker.stored(self.topic)
        if stored.delivery_complete_count != UNKNOWN_COUNT and self.produced:
            log_end = self.broker.partition("T").log.log_end_offset
            lag = log_end - stored.start_offset - stored.delivery_complete_count
            self.check(lag == 0, f"a lag of {lag} is left")


class Nothing:
    acquired: tuple[tuple[int, int, int], ...] = ()


NOTHING: Any = Nothing()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_delivered_until_it_is_finished(seed: int) -> None:
    world = World(seed)
    for _ in range(EVENTS):
        world.step()
    world.end_well()
