"""The share coordinator's core for tests, without a socket or an event loop. It makes decisions, encodes its records,
and replays them from their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.records import decode_record, encode_record
from odradek.broker.shares.core.state import Outcome, SharePartitionKey, StateBatch, StateRecord, StoredState
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig, StateCore
from odradek.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("g", TOPIC_ID, 0)


class ShareStateScene:
    """A core in which the topic TOPIC_ID has `partition_count` partitions."""

    def __init__(self, config: ShareCoordinatorConfig | None = None, partition_count: int = 2) -> None:
        self.config = config or ShareCoordinatorConfig()
        self.partition_count = partition_count
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.core = self._new_core()

    def _new_core(self) -> StateCore:
        return StateCore(
            self.config, lambda topic_id, index: topic_id == TOPIC_ID and 0 <= index < self.partition_count
        )

    def restart(self) -> None:
        self.core = self._new_core()
        for record_offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            if record is not None:
                self.core.replay(record, record_offset, -1)

    def turn(self, decide: Callable[[StateCore], Outcome[R]]) -> R | ErrorCode:
        """Calls `decide` with the core, then logs and replays the resulting records. Returns the response, or the error
        code if `decide` raises KafkaError."""
        try:
            outcome = decide(self.core)
        except KafkaError as error:
            return error.code
        for record in outcome.records:
            encoded = encode_record(record)
            self.log.append(encoded)
            assert decode_record(*encoded) is not None
            self.core.replay(record, len(self.log) - 1, -1)
        assert outcome.response is not None
        return outcome.response

    @property
    def records(self) -> list[StateRecord]:
        return [record for each in self.log if (record := decode_record(*each)) is not None]

    def initialize(self, state_epoch: int = 1, start_offset: int = 0, key: SharePartitionKey = KEY) -> bool | ErrorCode:
        return self.turn(lambda core: core.initialize(key, state_epoch, start_offset, self.now_ms))

    def read(self, leader_epoch: int = 0, key: SharePartitionKey = KEY) -> StoredState | ErrorCode:
        return self.turn(lambda core: core.read(key, leader_epoch, self.now_ms))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start_offset: int = 0,
        count: int = 0,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        key: SharePartitionKey = KEY,
    ) -> bool | ErrorCode:
        write = StateWrite(start_offset, count, [StateBatch(*each) for each in batches])
        return self.turn(lambda core: core.write(key, state_epoch, leader_epoch, write, self.now_ms))

    def delete(self, key: SharePartitionKey = KEY) -> bool | ErrorCode:
        return self.turn(lambda core: core.delete(key))
