"""Bugs of other brokers that show only after a restart, a lost answer or a disk error; each comment names the cause."""

from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from tests.support.broker_scene import answer_of
from tests.support.fake_disk import Fault
from tests.support.transaction_broker import TransactionBroker
from tests.support.transactional_clients import ID, TIMEOUT_MS, Clients, Pair
from tests.support.turns import run

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def scene() -> Clients:
    return Clients()


def state(scene: TransactionBroker, transactional_id: str = ID) -> str:
    return scene.transactions.describe(transactional_id).transaction_state


def nothing_hangs(scene: Clients) -> bool:
    return all(
        scene.latest_offset(committed=True, index=index) == scene.latest_offset(committed=False, index=index)
        for index in (0, 1)
    )


# KAFKA-19999: the epoch of a repeated marker is no longer above that of its partition; refused, the transaction stayed
# in PREPARE_COMMIT and the id answered CONCURRENT_TRANSACTIONS without end.
@pytest.mark.parametrize("commit", [True, False])
def test_known_bug_01_markers_repeated_after_a_restart_are_accepted(scene: Clients, commit: bool) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"a")
    scene.produce(pair, 0, b"b", index=1)
    scene.markers.refusals = {T1: E.KAFKA_STORAGE_ERROR}
    scene.end(pair, commit=commit)
    again = scene.restarted(killed=True)
    assert state(again) == ("CompleteCommit" if commit else "CompleteAbort")
    assert len(again.markers_in(*T0)) == 2
    assert nothing_hangs(again)
    again.produce(again.init(), 0, b"next")


def test_known_bug_01_and_after_a_lost_answer(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"a")
    next_pair = scene.commit(pair)
    for _ in range(2):
        code = scene.write_marker(next_pair, commit=True, version=2, transaction_version=2)
        assert code is E.NONE


# KAFKA-12671, kcl 10: an open transaction whose coordinator knew nothing of it kept readers waiting until somebody
# wrote a marker by hand.
@pytest.mark.parametrize("killed", [True, False])
def test_known_bug_11_whatever_was_left_open_ends_by_itself(scene: Clients, killed: bool) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"left behind")
    scene.commit_offset_in_transaction(pair, 10)
    again = scene.restarted(killed=killed)
    again.clock.advance(TIMEOUT_MS + 1)
    again.transactions.abort_timed_out()
    assert nothing_hangs(again)
    assert again.read(committed=True) == []
    assert again.committed_offset(require_stable=True) == -1


# KAFKA-14904: while the record of another partition was on its way to the disk, a request about a partition that
# had long been added was told CONCURRENT_TRANSACTIONS.
def test_known_bug_13_a_partition_is_verified_while_another_one_is_being_added() -> None:
    scene = TransactionBroker()
    scene.topic("__transaction_state", 1, flush_messages=1)
    scene.topic("t", 2)
    init = scene.transactions.init_producer_id(
        InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)
    )
    scene.settle()
    pair = answer_of(init).producer_id, answer_of(init).producer_epoch
    ask = partial(scene.transactions.add_partitions, ID, *pair, asked_version=2)
    ask([T0], verify_only=False)
    scene.settle()
    adding = ask([T1], verify_only=False)
    verifying = ask([T0], verify_only=True)
    assert isinstance(adding, Deferred)
    assert not adding.is_done
    scene.settle()
    assert answer_of(verifying) == {T0: E.NONE}
    assert answer_of(adding) == {T1: E.NONE}


# redpanda 6018: that a transaction was begun was in the coordinator's memory only; after its restart the commit found
# nothing to commit, and acknowledged records were dropped.
@pytest.mark.parametrize("version", [4, 5])
def test_known_bug_33_a_commit_after_a_restart_commits_what_was_written_before_it(scene: Clients, version: int) -> None:
    pair = scene.init()
    scene.add(pair, 0, 1)
    scene.produce(pair, 0, b"a", version=11 if version == 4 else 12)
    scene.produce(pair, 0, b"b", version=11 if version == 4 else 12, index=1)
    again = scene.restarted(killed=True)
    again.commit(pair, version=version)
    assert (again.read(committed=True), again.read(committed=True, index=1)) == ([b"a"], [b"b"])


# AutoMQ 437: the next leader of the partition did not know the last batches of its producers, and took what they sent
# again for something new.
@pytest.mark.parametrize("killed", [True, False])
def test_known_bug_41_what_is_sent_again_to_the_next_process_is_there_once(scene: Clients, killed: bool) -> None:
    pair = scene.init()
    for sequence in range(5):
        scene.produce(pair, sequence, b"%d" % sequence)
    again = scene.restarted(killed=killed)
    for sequence in range(5) if killed else [4]:  # a snapshot holds the last one
        assert again.produce(pair, sequence, b"%d" % sequence) is E.NONE
    again.commit(pair)
    assert again.read(committed=True) == [b"0", b"1", b"2", b"3", b"4"]


# KoP 1599: with many producers in one request, the answer lacked some of them.
def test_known_bug_46_every_producer_of_a_request_is_answered(scene: Clients) -> None:
    pairs = []
    for number in range(100):
        pair = scene.init(transactional_id=f"id-{number}")
        scene.produce(pair, 0, b"v", transactional_id=f"id-{number}")
        pairs.append(pair)
    markers = [
        WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )
        for producer_id, producer_epoch in pairs
    ]
    answer = scene.answer(WriteTxnMarkersRequest(markers=markers), 1, WriteTxnMarkersResponse)
    codes = {each.producer_id: each.topics[0].partitions[0].error_code for each in answer.markers}
    assert codes == {producer_id: 0 for producer_id, _ in pairs}


# librdkafka 3575: an OUT_OF_ORDER_SEQUENCE_NUMBER amid a transaction made the client begin another one and lose the
# first part. So a producer that does nothing wrong must never be told that: not when the disk refused a batch, and not
# when the answer to one got lost.
def test_known_bug_47_a_producer_that_only_repeats_itself_is_not_out_of_order(scene: Clients) -> None:
    pair = scene.init()
    assert scene.produce(pair, 0, b"a") is E.NONE
    scene.disk.fail(1, Fault.EIO)
    assert scene.produce(pair, 1, b"b") is E.KAFKA_STORAGE_ERROR
    assert scene.produce(pair, 1, b"b") is E.NONE
    assert scene.produce(pair, 1, b"b") is E.NONE
    again = scene.restarted(killed=True)
    assert again.produce(pair, 1, b"b") is E.NONE
    assert again.produce(pair, 2, b"c") is E.NONE
    again.commit(pair)
    assert again.read(committed=True) == [b"a", b"b", b"c"]


# Seen in Kafka 4.3.1: partitions are known by name, so that the topic that was created anew got the marker of the
# transaction that the old one took part in.
def test_known_bug_53_a_topic_of_the_same_name_gets_no_marker_of_the_old_one(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"old")
    scene.delete_topic("t")
    scene.topic("t", 2)
    scene.commit(pair)
    assert state(scene) == "CompleteCommit"
    assert scene.partition("t").log.log_end_offset == 0


def test_known_bug_53_nor_if_it_is_made_anew_while_the_coordinator_loads(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"old")
    loading: list[Coroutine[Any, Any, None]] = []
    scene.spawn = loading.append
    scene.restart_coordinator()
    scene.delete_topic("t")
    scene.topic("t", 2)
    for coroutine in loading:
        run(coroutine)
    scene.commit(pair)
    assert state(scene) == "CompleteCommit"
    assert scene.partition("t").log.log_end_offset == 0


# Seen in Kafka 4.3.1: a request without transactions was never answered, and an id that stood in it twice got the
# other's results.
@pytest.mark.parametrize("version", [4, 5])
def test_known_bug_55_a_batch_of_no_transactions_is_answered_and_one_with_repeated_ids_refused(
    scene: Clients, version: int
) -> None:
    assert added_together(scene, version) == []
    pair = scene.init()
    assert added_together(scene, version, (pair, 0), (pair, 1)) == [E.INVALID_REQUEST, E.INVALID_REQUEST]
    assert state(scene) == "Empty"


def added_together(scene: Clients, version: int, *entries: tuple[Pair, int]) -> list[ErrorCode]:
    """AddPartitionsToTxn as brokers send it, all for one transactional id; the code of each entry's partition."""
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=ID,
            producer_id=pair[0],
            producer_epoch=pair[1],
            topics=[AddPartitionsToTxnTopic(name="t", partitions=[index])],
        )
        for pair, index in entries
    ]
    answer = scene.answer(AddPartitionsToTxnRequest(transactions=transactions), version, AddPartitionsToTxnResponse)
    return [
        ErrorCode(partition.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    ]
