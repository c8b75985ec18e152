"""Cases for the TXN, TV2, 2PC and SHT rules. For each rule, one trace keeps the rule and one breaks it."""

from __future__ import annotations

from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.messages.txn_share_acknowledge_request import TxnShareAcknowledgeRequest
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from tests.support.judged_cases import Case, Story, batch, init, join, produce
from tests.support.traces import Asked, Trace

NAME = "pay"
PAIR, NEXT = (7, 0), (7, 1)


def _adds(error: int, pair: tuple[int, int]) -> Asked:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=pair[0],
        v3_and_below_producer_epoch=pair[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    part = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=error)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[part])
    return request, 3, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def _adds_offsets(error: int, pair: tuple[int, int]) -> Asked:
    request = AddOffsetsToTxnRequest(transactional_id=NAME, producer_id=pair[0], producer_epoch=pair[1], group_id="g")
    return request, 3, AddOffsetsToTxnResponse(error_code=error)


class Producer:
    """A transactional producer with two connections, which uses transaction.version 1 or 2 depending on its Produce
    version."""

    def __init__(self, trace: Trace, version: int = 11, *, begins: bool = True) -> None:
        self.coordinator, self.leader = trace.connect(), trace.connect()
        self.version = version
        if begins:
            init(self.coordinator, PAIR, NAME)

    def add(self, error: int = 0, *, pair: tuple[int, int] = PAIR, after_ms: float = 100) -> None:
        self.coordinator.ask(*_adds(error, pair), after_ms=after_ms)

    def send(self, sequence: int = 0, error: int = 0, *, pair: tuple[int, int] = PAIR, version: int = 0) -> None:
        records = batch(sequence, producer=pair, transactional=True)
        produce(self.leader, records, error=error, version=version or self.version, transactional_id=NAME)

    def end(
        self,
        committed: bool = True,
        error: int = 0,
        *,
        pair: tuple[int, int] = PAIR,
        gives: tuple[int, int] = (-1, -1),
        lost: bool = False,
    ) -> None:
        request = EndTxnRequest(transactional_id=NAME, producer_id=pair[0], producer_epoch=pair[1], committed=committed)
        answer = EndTxnResponse(error_code=error, producer_id=gives[0], producer_epoch=gives[1])
        self.coordinator.ask(request, 5 if self.version >= 12 else 4, None if lost else answer)

    def add_offsets(self, pair: tuple[int, int] = PAIR, *, error: int = 0) -> None:
        self.coordinator.ask(*_adds_offsets(error, pair))

    def add_both(self, error: int, error_of_offsets: int) -> None:
        """Sends AddPartitionsToTxn and then AddOffsetsToTxn before either is answered, as kafka-python does."""
        self.coordinator.ask_interleaved(_adds(error, PAIR), _adds_offsets(error_of_offsets, PAIR))

    def acknowledge(self, pair: tuple[int, int] = PAIR) -> None:
        request = TxnShareAcknowledgeRequest(
            transactional_id=NAME, group_id="g", producer_id=pair[0], producer_epoch=pair[1], member_id="m"
        )
        self.leader.ask(request, 0, TxnShareAcknowledgeResponse())

    def commit_offsets(self, member: str = "m", generation: int = 1) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=NAME,
            group_id="g",
            producer_id=PAIR[0],
            producer_epoch=PAIR[1],
            member_id=member,
            generation_id_or_member_epoch=generation,
        )
        self.coordinator.ask(request, 3, TxnOffsetCommitResponse())


def with_offsets(trace: Trace) -> None:
    producer = Producer(trace)
    producer.add_offsets()
    producer.commit_offsets()


def without_add_offsets(trace: Trace) -> None:
    Producer(trace).commit_offsets()


def of_a_group(member: str, generation: int) -> Story:
    def story(trace: Trace) -> None:
        join(trace.connect(), "m", generation=1)
        producer = Producer(trace)
        producer.add_offsets()
        producer.commit_offsets(member, generation)

    return story


def sends(pair: tuple[int, int]) -> Story:
    return lambda trace: Producer(trace, 12).send(pair=pair)


def adds_then_sends(error: int) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace)
        producer.add(error)
        producer.send()

    return story


def ends_with_a_batch(in_flight: bool) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12)
        producer.send()
        if in_flight:
            del trace.entries[-2:]
        producer.end(gives=NEXT)

    return story


def late_batch(committed: bool, pair: tuple[int, int]) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12)
        producer.send()
        producer.end(committed, gives=NEXT)
        producer.send(pair=pair)

    return story


def batch_fails(code: int, committed: bool) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12)
        producer.send(error=code)
        producer.end(committed, gives=NEXT)

    return story


def batch_succeeds(trace: Trace) -> None:
    producer = Producer(trace, 12)
    producer.send(error=7)
    producer.send()
    producer.end(gives=NEXT)


def fenced(then_sends: bool) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace)
        producer.add(90)
        if then_sends:
            producer.add()

    return story


def concurrent(same: bool, after_ms: float = 100) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace)
        producer.add(51)
        if same:
            producer.add(after_ms=after_ms)
        else:
            producer.add_offsets()

    return story


def concurrent_commit(*, retries: bool) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace)
        producer.add(51)
        if retries:
            producer.add()
        producer.end()

    return story


def concurrent_end(*, retries: bool) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace)
        producer.add()
        producer.end(error=51)
        if retries:
            producer.end()
        producer.add()

    return story


def end_again(committed: bool, *, error: int = 0, lost: bool = False, pair: tuple[int, int] = PAIR) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12)
        producer.send()
        producer.end(True, error, lost=lost)
        producer.end(committed, pair=pair, gives=NEXT)

    return story


def inits_fail(code: int, times: int, *, two_phase: bool = False) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        for _ in range(times):
            request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=10**9, enable2_pc=two_phase)
            peer.ask(request, 6 if two_phase else 4, InitProducerIdResponse(error_code=code))

    return story


def unmapped(recovers: bool) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace)
        producer.add(49)
        if recovers:
            request = InitProducerIdRequest(
                transactional_id=NAME, transaction_timeout_ms=1, producer_id=PAIR[0], producer_epoch=PAIR[1]
            )
            producer.coordinator.ask(request, 4, InitProducerIdResponse(producer_id=8))
        else:
            producer.add()

    return story


def adds_at_v2(trace: Trace) -> None:
    producer = Producer(trace, 12)
    producer.send()
    producer.add()


def next_transaction(pair: tuple[int, int], sequence: int = 0, gives: tuple[int, int] = NEXT) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12)
        producer.send()
        producer.end(gives=gives)
        producer.send(sequence, pair=pair)

    return story


def aborts_are_refused(times: int) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12)
        producer.send()
        for _ in range(times):
            producer.end(False, 120)

    return story


def two_versions(second: int) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12)
        producer.send()
        producer.send(1, version=second)

    return story


def kept_transaction(ends: bool) -> Story:
    def story(trace: Trace) -> None:
        producer = Producer(trace, 12, begins=False)
        request = InitProducerIdRequest(
            transactional_id=NAME, transaction_timeout_ms=1, enable2_pc=True, keep_prepared_txn=True
        )
        answer = InitProducerIdResponse(
            producer_id=7, producer_epoch=1, ongoing_txn_producer_id=7, ongoing_txn_producer_epoch=0
        )
        producer.coordinator.ask(request, 6, answer)
        if ends:
            producer.end(pair=(7, 1))
        else:
            producer.send(pair=(7, 1))

    return story


def acknowledges(pair: tuple[int, int]) -> Story:
    return lambda trace: Producer(trace, 12).acknowledge(pair)


CASES = (
    Case("TXN.1", sends(PAIR), sends((9, 0))),
    Case("TXN.2", adds_then_sends(0), adds_then_sends(51)),
    Case("TXN.3", with_offsets, without_add_offsets),
    Case("TXN.4", ends_with_a_batch(False), ends_with_a_batch(True)),
    Case("TXN.4", late_batch(True, NEXT), late_batch(True, PAIR)),
    Case("TXN.5", batch_succeeds, batch_fails(10, True)),
    Case("TXN.6", fenced(False), fenced(True)),
    Case("TXN.7", batch_fails(47, False), batch_fails(47, True)),
    Case("TXN.8", concurrent_commit(retries=True), concurrent_commit(retries=False)),
    Case("TXN.8", concurrent_end(retries=True), concurrent_end(retries=False)),
    Case("TXN.9", end_again(True, error=16), end_again(False, error=16)),
    Case("TXN.10", end_again(True, lost=True), end_again(False, lost=True)),
    Case("TXN.12", of_a_group("m", 1), of_a_group("", -1)),
    Case("TXN.14", inits_fail(50, 2), inits_fail(50, 8)),
    Case("TXN.15", late_batch(False, NEXT), late_batch(False, PAIR)),
    Case("TXN.16", inits_fail(53, 2), inits_fail(53, 8)),
    Case("TXN.16", unmapped(True), unmapped(False)),
    Case("TXN.17", concurrent(True), concurrent(True, after_ms=1)),
    Case("TV2.1", sends(PAIR), adds_at_v2),
    Case("TV2.2", next_transaction(NEXT), next_transaction(PAIR)),
    Case("TV2.3", next_transaction(NEXT), next_transaction(NEXT, 1)),
    Case("TV2.4", batch_fails(120, False), batch_fails(120, True)),
    Case("TV2.5", aborts_are_refused(2), aborts_are_refused(6)),
    Case("TV2.6", end_again(True, lost=True), end_again(True, lost=True, pair=NEXT)),
    Case("TV2.8", two_versions(12), two_versions(11)),
    Case("TV2.9", next_transaction((8, 0), gives=(8, 0)), next_transaction(PAIR, gives=(8, 0))),
    Case("2PC.2", kept_transaction(True), kept_transaction(False)),
    Case("2PC.3", inits_fail(53, 2, two_phase=True), inits_fail(53, 8, two_phase=True)),
    Case("SHT.1", acknowledges(PAIR), acknowledges((7, 5))),
)
