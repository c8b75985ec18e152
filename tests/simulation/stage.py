"""A simulated broker that tests crash, and a transactional producer that waits for each response."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from odradek.broker.metadata.supported_features import TRANSACTION_VERSION
from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes, response_has_tags
from odradek.protocol.messages import response_class
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import GROUP_OFFSETS, TRANSACTION_STATE
from tests.simulation.invariants import ask_for_offset, committed_records
from tests.simulation.plan import broker_config
from tests.simulation.simulated_broker import Parts, SimulatedBroker
from tests.simulation.transaction_world import NOW_MS
from tests.simulation.virtual_time import VirtualTime
from tests.support.batches import batch_by
from tests.support.fake_disk import FakeDisk, ProcessCrashed
from tests.support.requests import produce_request
from tests.support.transaction_listing import all_listed

ID, GROUP = "pay", "billing"
P0, P1 = ("orders", 0), ("orders", 1)
TIMEOUT_MS = 5_000
EXPIRATION_MS = 60_000
Pair = tuple[int, int]
NO_PAIR: Pair = (-1, -1)
E = ErrorCode


class Stage:
    def __init__(
        self,
        disk: FakeDisk | None = None,
        now_ms: int = NOW_MS,
        level: int = 2,
        *,
        is_durable: bool = True,
        is_two_phase: bool = False,
        settings: Mapping[str, str] | None = None,
        begins_after_ms: int = 500,
        parts: Parts | None = None,
    ) -> None:
        """Starts a broker on the given disk, or on a new one.

        is_durable       whether every acknowledgement waits for an fsync
        is_two_phase     whether the producer uses Enable2Pc, which the broker then allows
        begins_after_ms  time that passes before the first request, for example while the broker loads its coordinators
        """
        self.disk = disk or FakeDisk()
        self.time = VirtualTime(now_ms)
        self.config = broker_config(
            is_durable,
            **{
                "transactional_id_expiration_ms": str(EXPIRATION_MS),
                "transaction_remove_expired_transaction_cleanup_interval_ms": str(EXPIRATION_MS),
                "transaction_two_phase_commit_enable": str(is_two_phase).lower(),
                **(settings or {}),
            },
        )
        self.is_durable = is_durable
        self.is_two_phase = is_two_phase
        self.dies_at_call: int | None = None  # number of the disk call after which the broker dies
        self.level = level
        self.pair = NO_PAIR
        self.sequences: dict[tuple[str, int], int] = {}
        self.answers: list[ErrorCode] = []
        rng = Random(0 if disk is None else now_ms)  # A restarted broker must not generate the same ids again.
        self.broker = SimulatedBroker(
            self.disk, self.time, rng, self.config, log_changes={"segment_bytes": 1 << 20}, parts=parts or Parts()
        )
        if disk is None:
            self._make_topics()
        self.wait(begins_after_ms)

    def _make_topics(self) -> None:
        internal = [internal_topic(name, self.config) for name in (TRANSACTION_STATE, GROUP_OFFSETS)]
        self.broker.auto_creation.create(
            [NewTopic("orders", 2, 1), NewTopic("input", 1, 1), *[each for each in internal if each is not None]]
        )
        self.broker.metadata.commit([FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=self.level)])

    def wait(self, ms: int) -> None:
        until_ms = self.time.now_ms() + ms
        while self._step(until_ms):
            pass

    def _step(self, until_ms: float) -> bool:
        is_stepped = self.time.step(until_ms)
        if self.dies_at_call is not None and self.disk.calls >= self.dies_at_call:
            raise ProcessCrashed
        return is_stepped

    def die_after(self, calls: int) -> None:
        """Makes the broker die after this many more disk calls. The event that makes the last call still completes."""
        self.dies_at_call = self.disk.calls + calls

    def ask(self, request: Message, version: int, client: str = "producer") -> Any:
        """Sends a request over the connection `client` and returns the response."""
        return self.ask_together([(request, version, client)])[0]

    def ask_together(self, requests: Sequence[tuple[Message, int, str]]) -> list[Any]:
        """Sends several requests, each with its version and client, without waiting for responses in between. Returns
        the responses in the order of the requests."""
        answers: list[list[bytes]] = [[] for _ in requests]
        for (request, version, client), answer in zip(requests, answers, strict=True):
            self.broker.receive(request_bytes(request, version, 1, client), answer.append, client)
        until_ms = self.time.now_ms() + 2_000
        while not all(answers) and self._step(until_ms):
            pass
        responses = []
        for (request, version, _), answer in zip(requests, answers, strict=True):
            assert answer, f"{type(request).__name__} is not answered"
            kind = response_class(request.API_KEY)
            responses.append(decode(kind, version, answer[0], 8 + response_has_tags(request.API_KEY, kind, version)))
        return responses

    def init(self, pair: Pair = NO_PAIR) -> ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS, producer_id=pair[0], producer_epoch=pair[1]
        )
        answer = self.ask(request, 4)
        if not answer.error_code:
            self.pair = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def init6(self, *, keep: bool) -> tuple[ErrorCode, Pair]:
        """Sends InitProducerId v6. Returns its error code, and the producer id and epoch of a kept transaction."""
        request = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=TIMEOUT_MS,
            enable2_pc=self.is_two_phase,
            keep_prepared_txn=keep,
        )
        answer = self.ask(request, 6)
        if not answer.error_code:
            self.pair = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code), (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)

    def produce(self, value: str, partition: tuple[str, int], *, version: int = 12) -> ErrorCode:
        topic, index = partition
        records = batch_by(self.pair, self.sequences.get(partition, 0), value.encode(), at_ms=self.time.now_ms())
        self.sequences[partition] = self.sequences.get(partition, 0) + 1
        request = produce_request(topic, records, partition=index, transactional_id=ID)
        return ErrorCode(self.ask(request, version).responses[0].partition_responses[0].error_code)

    def commit_offset(self, offset: int, *, version: int = 5) -> ErrorCode:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            topics=[TxnOffsetCommitRequestTopic(name="input", partitions=[partition])],
        )
        return ErrorCode(self.ask(request, version).topics[0].partitions[0].error_code)

    def end(self, *, committed: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.pair[0], producer_epoch=self.pair[1], committed=committed
        )
        answer = self.ask(request, 5)
        if not answer.error_code:
            self.pair = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    # --- Observations.

    def offset(self) -> int:
        offsets: list[int] = []
        ask_for_offset(self.broker, GROUP, offsets.append)
        self.wait(100)
        return offsets[0]

    def readable(self) -> list[str]:
        """Returns the values that read_committed consumers see in both partitions."""
        values = []
        for topic, index in (P0, P1):
            log = self.broker.partition(topic, index).log
            end = log.last_stable_offset
            assert end == log.high_watermark, f"{topic}-{index} is stuck"
            data = b"".join(log.reader.scan(0, end))
            values += [value.decode() for _, value in committed_records(data, log.reader.aborted_transactions(0, end))]
        return sorted(values)

    def states(self) -> set[str]:
        return {each.transaction_state for each in all_listed(self.broker.transactions)}
