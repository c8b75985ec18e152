"""Tests share group acknowledgements in a producer's transaction (KIP-1289), over the network.

The tests cover the results, every refusal by a single broker, and the feature that enables these acknowledgements.
Rules: docs/spec/share-groups.md#s5. tests/crash/test_txn_share_kill_9.py adds kill -9.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.client import (
    AbortableError,
    AcknowledgedRange,
    AcknowledgeType,
    ClientError,
    IllegalState,
    ProducerFenced,
    RetriableError,
    ShareGroupMetadata,
    TopicPartition,
)
from odradek.client.sync import Admin, Consumer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgePartition,
)
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from tests.clients.admin import create_topic
from tests.clients.own_share_consumers import first_of, poll, share_group, values, worker
from tests.clients.own_share_transactions import (
    BROKER,
    LOCK_MS,
    TEN,
    Request,
    delivered_again,
    outputs,
    producer_of,
    queue_of_ten,
    request_of,
    transactional_worker,
    upgrade,
)
from tests.clients.speakers import wait_for
from tests.support.broker_process import IS_KAFKA, Broker, BrokerProcess
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="no released Kafka has KIP-1289")

E, T = ErrorCode, AcknowledgeType


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", BROKER) as running:
        upgrade(running.bootstrap)
        yield running


@pytest.fixture
def at(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def queue(at: str, request: pytest.FixtureRequest) -> str:
    return queue_of_ten(at, request.node.name.translate(str.maketrans("[]", "..")))


# --- Results of the acknowledgements.


def test_outputs_and_acknowledgements_become_final_together(at: str, queue: str) -> None:
    results = create_topic(at, f"{queue}-results")
    with transactional_worker(at, queue) as consumer, producer_of(at, queue) as producer:
        producer.init_transactions()
        records = first_of(consumer)
        producer.begin_transaction()
        for record in records:
            producer.send(results, record.value)
        producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
        assert delivered_again(at, queue) == []
        producer.commit_transaction()
        assert outputs(at, results) == TEN
    assert delivered_again(at, queue) == []
    with Admin(bootstrap_servers=at) as admin:
        assert [each.lag for each in admin.list_share_group_offsets(queue).values()] == [0]


def test_after_an_abort_the_records_are_the_member_s_again(at: str, queue: str) -> None:
    results = create_topic(at, f"{queue}-results")
    with transactional_worker(at, queue) as consumer, producer_of(at, queue) as producer:
        producer.init_transactions()
        records = first_of(consumer)
        producer.begin_transaction()
        producer.send(results, b"never seen")
        producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
        producer.abort_transaction()
        producer.begin_transaction()  # This transaction acknowledges some of the records again.
        accepted = {TopicPartition(queue, 0): [AcknowledgedRange(0, 3), AcknowledgedRange(4, 5, T.REJECT)]}
        producer.send_share_acknowledgements_to_transaction(accepted, consumer.share_group_metadata())
        producer.commit_transaction()
        for record in records[6:]:  # the records that the second transaction does not acknowledge
            consumer.acknowledge(record, T.RELEASE)
        again = first_of(consumer)
        assert [(record.offset, record.delivery_count) for record in again] == [(6, 2), (7, 2), (8, 2), (9, 2)]
    assert outputs(at, results) == []


def test_a_transaction_of_another_member_s_records_has_to_be_aborted(at: str, queue: str) -> None:
    with (
        transactional_worker(at, queue) as owner,
        transactional_worker(at, queue) as thief,
        producer_of(at, queue) as producer,
    ):
        producer.init_transactions()
        records = first_of(owner)
        wait_for("a member", lambda: poll(thief) == [] and bool(thief.assignment()))
        producer.begin_transaction()
        with pytest.raises(AbortableError) as refused:
            producer.send_share_acknowledgements_to_transaction(records, thief.share_group_metadata())
        assert refused.value.code is E.INVALID_RECORD_STATE
        with pytest.raises(AbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(records, owner.share_group_metadata())
        producer.commit_transaction()


def test_a_lock_that_runs_out_ends_the_transaction_before_the_records_go_to_others(at: str, queue: str) -> None:
    share_group(at, queue, share_record_lock_duration_ms=LOCK_MS)
    with transactional_worker(at, queue) as slow, producer_of(at, queue) as producer:
        producer.init_transactions()
        records = first_of(slow)
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(records, slow.share_group_metadata())
        assert values(delivered_again(at, queue, 60_000)) == TEN
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()


# --- The consumer's own acknowledgements do not interfere.


def test_a_consumer_with_implicit_acknowledgement_has_no_group_metadata(at: str, queue: str) -> None:
    with worker(at, queue, queue, "implicit") as consumer:
        first_of(consumer)
        with pytest.raises(IllegalState) as refused:
            consumer.share_group_metadata()
    for named in (queue, 'share_acknowledgement_mode="implicit"', '"explicit"', '"transactional"'):
        assert named in str(refused.value)


@pytest.mark.parametrize("mode", ["explicit", "transactional"])
def test_the_loop_of_the_kip_loses_nothing_that_it_aborts(at: str, queue: str, mode: str) -> None:
    share_group(at, queue, share_record_lock_duration_ms=LOCK_MS)
    with worker(at, queue, queue, mode) as consumer, producer_of(at, queue) as producer:
        producer.init_transactions()
        records = first_of(consumer)
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
        producer.abort_transaction()
        again = first_of(consumer)  # The records are delivered again after their locks have expired.
        assert (values(again), {record.delivery_count for record in again}) == (TEN, {2})
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(again, consumer.share_group_metadata())
        producer.commit_transaction()
        assert poll(consumer) == []
    assert delivered_again(at, queue) == []


def test_an_explicit_consumer_waits_for_records_that_are_neither_acknowledged_nor_staged(at: str, queue: str) -> None:
    with worker(at, queue, queue) as consumer, producer_of(at, queue) as producer:
        producer.init_transactions()
        records = first_of(consumer)
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(records[:9], consumer.share_group_metadata())
        with pytest.raises(IllegalState, match="acknowledge every record"):
            poll(consumer)
        with pytest.raises(
            IllegalState, match=f"a transaction contains the acknowledgement of the record at 0 of {queue}-0"
        ):
            consumer.acknowledge(records[0])
        consumer.acknowledge(records[9], T.RELEASE)
        producer.commit_transaction()
        assert values(first_of(consumer)) == [TEN[9]]


@pytest.mark.parametrize("mode", ["explicit", "transactional"])
def test_a_record_that_the_consumer_acknowledges_itself_is_kept_out_of_a_transaction(
    at: str, queue: str, mode: str
) -> None:
    with worker(at, queue, queue, mode) as consumer, producer_of(at, queue) as producer:
        producer.init_transactions()
        records = first_of(consumer)
        # The next poll would send this acknowledgement, and an abort could not undo it.
        consumer.acknowledge(records[4])
        producer.begin_transaction()
        with pytest.raises(AbortableError, match=f"offset 4 of {queue}-0.*outside the transaction") as refused:
            producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
        assert refused.value.code is E.INVALID_RECORD_STATE
        with pytest.raises(AbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(
            [record for record in records if record.offset != 4], consumer.share_group_metadata()
        )
        producer.commit_transaction()
        assert consumer.commit() == {TopicPartition(queue, 0): None}
    assert delivered_again(at, queue) == []


@pytest.mark.parametrize("kind", [T.RELEASE, T.RENEW, 0], ids=["RELEASE", "RENEW", "GAP"])
def test_a_type_that_no_transaction_can_undo_ends_the_transaction(at: str, queue: str, kind: AcknowledgeType) -> None:
    with transactional_worker(at, queue) as consumer, producer_of(at, queue) as producer:
        producer.init_transactions()
        first_of(consumer)
        producer.begin_transaction()
        with pytest.raises(AbortableError, match="ACCEPT and REJECT") as refused:
            producer.send_share_acknowledgements_to_transaction(
                {TopicPartition(queue, 0): [AcknowledgedRange(0, 9, kind)]}, consumer.share_group_metadata()
            )
        assert refused.value.code is E.INVALID_RECORD_STATE
        with pytest.raises(AbortableError):
            producer.commit_transaction()


# --- The identity of the member.


def test_the_metadata_wait_until_the_member_has_joined(at: str, queue: str) -> None:
    with transactional_worker(at, queue) as consumer:
        with pytest.raises(RetriableError, match=f"not join the share group '{queue}'") as late:
            consumer.share_group_metadata(timeout_ms=0)
        assert late.value.code is E.REQUEST_TIMED_OUT
        joined = consumer.share_group_metadata()
        assert (joined.group_id, joined.member_epoch > 0) == (queue, True)
        assert joined == ShareGroupMetadata(queue, joined.member_id, joined.member_epoch)
        assert pickle.loads(pickle.dumps(joined)) == joined


def test_the_group_metadata_are_returned_while_another_thread_polls(at: str, queue: str) -> None:
    with transactional_worker(at, queue) as consumer, ThreadPoolExecutor(1) as threads:
        first_of(consumer)
        polling = threads.submit(consumer.getmany, timeout_ms=2_000)
        assert consumer.share_group_metadata().member_epoch > 0
        assert not polling.done()
        assert polling.result() == {}


def test_a_broker_that_is_down_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER) as broker, ThreadPoolExecutor(1) as threads:
        upgrade(broker.bootstrap)
        with transactional_worker(broker.bootstrap, queue_of_ten(broker.bootstrap, "down")) as consumer:
            first_of(consumer)
            broker.kill9()
            with pytest.raises(RetriableError):
                consumer.share_group_metadata(timeout_ms=200)
            waiting = threads.submit(consumer.share_group_metadata)
            broker.start()
            assert waiting.result(60).member_epoch > 0


def test_the_group_metadata_raise_the_error_of_a_group_that_refuses_the_member(at: str, queue: str) -> None:
    with (
        Consumer(queue, bootstrap_servers=at, group_id=f"{queue}-classic") as classic,
        worker(at, queue, f"{queue}-classic") as consumer,
    ):
        wait_for("a classic group", lambda: classic.getmany(timeout_ms=100))
        with pytest.raises(ClientError) as refused:
            consumer.share_group_metadata()
        assert refused.value.code is E.GROUP_ID_NOT_FOUND


def test_the_group_metadata_require_a_started_and_subscribed_consumer(at: str, queue: str) -> None:
    consumer = transactional_worker(at, queue)
    with pytest.raises(IllegalState, match="was not started"):
        consumer.share_group_metadata()
    with consumer:
        consumer.unsubscribe()
        with pytest.raises(IllegalState, match="subscribe"):
            consumer.share_group_metadata()
    with pytest.raises(IllegalState, match="closed"):
        consumer.share_group_metadata()


# --- Refusals.


REFUSALS: Mapping[str, tuple[Callable[[Request], Request], ErrorCode]] = {
    "no transactional id": (lambda it: replace(it, transactional_id=None), E.INVALID_REQUEST),
    "an empty transactional id": (lambda it: replace(it, transactional_id=""), E.INVALID_REQUEST),
    "no group": (lambda it: replace(it, group_id=""), E.INVALID_REQUEST),
    "no member": (lambda it: replace(it, member_id=""), E.INVALID_REQUEST),
    "a long member id": (lambda it: replace(it, member_id="m" * 37), E.INVALID_REQUEST),
    "an unknown topic": (lambda it: replace(it, topic_id=b"\1" * 16), E.UNKNOWN_TOPIC_ID),
    "an unknown partition": (lambda it: replace(it, partition=7), E.UNKNOWN_TOPIC_OR_PARTITION),
    "a range that ends before it begins": (lambda it: replace(it, batches=[(3, 2, [1])]), E.INVALID_REQUEST),
    "overlapping ranges": (lambda it: replace(it, batches=[(0, 3, [1]), (3, 4, [1])]), E.INVALID_REQUEST),
    "no types": (lambda it: replace(it, batches=[(0, 3, [])]), E.INVALID_REQUEST),
    "as many types as there are not offsets": (lambda it: replace(it, batches=[(0, 3, [1, 1])]), E.INVALID_REQUEST),
    "a type that there is not": (lambda it: replace(it, batches=[(0, 3, [5])]), E.INVALID_REQUEST),
    "gaps": (lambda it: replace(it, batches=[(0, 3, [0])]), E.INVALID_RECORD_STATE),
    "releases": (lambda it: replace(it, batches=[(0, 3, [2])]), E.INVALID_RECORD_STATE),
    "renewals": (lambda it: replace(it, batches=[(0, 3, [1, 1, 4, 1])]), E.INVALID_RECORD_STATE),
    "an unknown group": (lambda it: replace(it, group_id="another"), E.UNKNOWN_MEMBER_ID),
    "an unknown member": (lambda it: replace(it, member_id="nobody"), E.UNKNOWN_MEMBER_ID),
    "an old member epoch": (lambda it: replace(it, member_epoch=it.member_epoch - 1), E.STALE_MEMBER_EPOCH),
    "a future member epoch": (lambda it: replace(it, member_epoch=it.member_epoch + 1), E.STALE_MEMBER_EPOCH),
    "an unknown transactional id": (
        lambda it: replace(it, transactional_id="nobody"),
        E.INVALID_PRODUCER_ID_MAPPING,
    ),
    "another producer id": (lambda it: replace(it, producer_id=it.producer_id + 9), E.INVALID_PRODUCER_ID_MAPPING),
    "an old producer epoch": (lambda it: replace(it, producer_epoch=it.producer_epoch - 1), E.PRODUCER_FENCED),
    "a future producer epoch": (lambda it: replace(it, producer_epoch=it.producer_epoch + 1), E.PRODUCER_FENCED),
    "offsets beyond the acquired ones": (lambda it: replace(it, batches=[(0, 10, [1])]), E.INVALID_REQUEST),
}


def test_each_refusal_leaves_the_records_with_their_member(at: str, queue: str) -> None:
    with transactional_worker(at, queue) as consumer:
        first_of(consumer)
        right = request_of(at, queue, consumer)
        # This raises the epoch, because one refusal needs an earlier epoch of the same producer.
        right = request_of(at, queue, consumer)
        found = {name: change(right).code(at) for name, (change, _) in REFUSALS.items()}
        assert found == {name: code for name, (_, code) in REFUSALS.items()}
        assert right.code(at) is E.NONE
        assert right.code(at) is E.NONE  # A client repeats the request if it has lost the first response.
        # The transaction has already accepted these records.
        assert replace(right, batches=[(0, 9, [3])]).code(at) is E.INVALID_RECORD_STATE
        assert replace(right, batches=()).code(at) is E.NONE


def test_one_refused_partition_keeps_the_others_from_being_staged(at: str, queue: str) -> None:
    with transactional_worker(at, queue) as consumer:
        first_of(consumer)
        message = request_of(at, queue, consumer).message()
        (topic,) = message.topics
        topic.partitions.append(
            TxnShareAcknowledgePartition(
                partition_index=3, acknowledgement_batches=topic.partitions[0].acknowledgement_batches
            )
        )
        with Wire(at) as wire:
            answer = wire.ask(message, 0, TxnShareAcknowledgeResponse)
        codes = [ErrorCode(each.error_code) for each in answer.responses[0].partitions]
        assert codes == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
        with Admin(bootstrap_servers=at) as admin:
            assert admin.describe_transactions([queue])[queue].state == "Empty"


# --- The feature.


def serves_it(wire: Wire) -> bool:
    answer = wire.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4, ApiVersionsResponse)
    return ApiKey.TXN_SHARE_ACKNOWLEDGE.value in {each.api_key for each in answer.api_keys}


@pytest.mark.slow
def test_the_feature_is_raised_and_lowered_at_run_time(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", BROKER) as broker,
        Wire(broker.bootstrap) as wire,
        transactional_worker(broker.bootstrap, queue_of_ten(broker.bootstrap, "gated")) as consumer,
        producer_of(broker.bootstrap, "gated-producer") as producer,
    ):
        at = broker.bootstrap
        producer.init_transactions()
        records = first_of(consumer)
        assert not serves_it(wire)
        with pytest.raises(ClientError, match=r"KIP-1289.*odradek\.share\.transactions at level 1") as unserved:
            consumer.share_group_metadata()
        assert unserved.value.code is E.UNSUPPORTED_VERSION
        producer.begin_transaction()
        with pytest.raises(AbortableError) as refused:
            producer.send_share_acknowledgements_to_transaction(records, ShareGroupMetadata("gated", "member", 1))
        assert refused.value.code is E.UNSUPPORTED_VERSION
        producer.abort_transaction()
        assert Request("gated", "gated", 1, 1, "member", 1, bytes(16)).code(at) is E.UNSUPPORTED_VERSION
        upgrade(at)
        assert serves_it(wire)  # This connection was opened before the change.
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(records[:5], consumer.share_group_metadata())
        with pytest.raises(ClientError, match="5 acknowledgements") as held:
            upgrade(at, 0)
        assert held.value.code is E.FEATURE_UPDATE_FAILED
        producer.commit_transaction()
        upgrade(at, 0)
        assert not serves_it(wire)
        upgrade(at)
        broker.kill9()
        broker.start()
        with Wire(at) as later:
            assert serves_it(later)
