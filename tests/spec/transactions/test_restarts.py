"""Tests transactions across a restart, a lost response or a disk error, as clients see them."""

from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.support.broker_scene import answer_of
from tests.support.fake_disk import Fault
from tests.support.transaction_broker import TransactionBroker
from tests.support.transactional_clients import ID, TIMEOUT_MS, Clients
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


# The epoch of a repeated marker is no longer above the epoch in the partition, so Kafka's partition refused the marker.
# The transaction stayed in PREPARE_COMMIT, and all later requests received CONCURRENT_TRANSACTIONS.
@pytest.mark.known_bug(1, "KAFKA-19999")
@pytest.mark.parametrize("commit", [True, False])
def test_markers_repeated_after_a_restart_are_accepted(scene: Clients, commit: bool) -> None:
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


@pytest.mark.known_bug(1, "KAFKA-19999")
def test_a_marker_whose_answer_was_lost_may_be_sent_again(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"a")
    next_pair = scene.commit(pair)
    for _ in range(2):
        code = scene.write_marker(next_pair, commit=True, version=2, transaction_version=2)
        assert code is E.NONE


# In Kafka, an open transaction that had no entry in its coordinator held back readers until somebody wrote a marker by
# hand.
@pytest.mark.known_bug(11, "KAFKA-12671, kcl 10")
@pytest.mark.parametrize("killed", [True, False])
def test_a_transaction_that_was_left_open_times_out(scene: Clients, killed: bool) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"left behind")
    scene.commit_offset_in_transaction(pair, 10)
    again = scene.restarted(killed=killed)
    again.clock.advance(TIMEOUT_MS + 1)
    again.transactions.abort_timed_out()
    assert nothing_hangs(again)
    assert again.read(committed=True) == []
    assert again.committed_offset(require_stable=True) == -1


# While Kafka was writing another partition's record to disk, requests for a partition that had been added long before
# received CONCURRENT_TRANSACTIONS.
@pytest.mark.known_bug(13, "KAFKA-14904")
def test_a_partition_is_verified_while_another_one_is_being_added() -> None:
    scene = TransactionBroker()
    scene.topic("__transaction_state", 1, flush_messages=1)
    scene.topic("t", 2)
    init = scene.transactions.init_producer_id(
        InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)
    )
    scene.settle()
    pair = answer_of(init).producer_id, answer_of(init).producer_epoch
    ask = partial(scene.transactions.add_partitions, ID, *pair, requested_version=2)
    ask([T0], verify_only=False)
    scene.settle()
    adding = ask([T1], verify_only=False)
    verifying = ask([T0], verify_only=True)
    assert isinstance(adding, Deferred)
    assert not adding.is_done
    scene.settle()
    assert answer_of(verifying) == {T0: E.NONE}
    assert answer_of(adding) == {T1: E.NONE}


# In Redpanda, only the coordinator's memory contained the start of a transaction. After a restart, the commit found
# nothing to commit, and acknowledged records were dropped.
@pytest.mark.known_bug(33, "redpanda 6018")
@pytest.mark.parametrize("version", [4, 5])
def test_a_commit_after_a_restart_commits_what_was_written_before_it(scene: Clients, version: int) -> None:
    pair = scene.init()
    scene.add(pair, 0, 1)
    scene.produce(pair, 0, b"a", version=11 if version == 4 else 12)
    scene.produce(pair, 0, b"b", version=11 if version == 4 else 12, index=1)
    again = scene.restarted(killed=True)
    again.commit(pair, version=version)
    assert (again.read(committed=True), again.read(committed=True, index=1)) == ([b"a"], [b"b"])


# In AutoMQ, the partition's next leader did not have its producers' last batches, so it appended their retries as new
# batches.
@pytest.mark.known_bug(41, "AutoMQ 437")
@pytest.mark.parametrize("killed", [True, False])
def test_batches_that_are_sent_again_after_a_restart_are_stored_once(scene: Clients, killed: bool) -> None:
    pair = scene.init()
    for sequence in range(5):
        scene.produce(pair, sequence, b"%d" % sequence)
    again = scene.restarted(killed=killed)
    for sequence in range(5) if killed else [4]:  # A snapshot contains only a producer's last batch.
        assert again.produce(pair, sequence, b"%d" % sequence) is E.NONE
    again.commit(pair)
    assert again.read(committed=True) == [b"0", b"1", b"2", b"3", b"4"]


# After an OUT_OF_ORDER_SEQUENCE_NUMBER within a transaction, librdkafka started another transaction and lost the first
# part. A correct producer must therefore never receive this error, even if the disk has refused a batch or a response
# was lost.
@pytest.mark.known_bug(47, "librdkafka 3575")
def test_a_producer_that_repeats_a_failed_batch_is_not_out_of_order(scene: Clients) -> None:
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


# Kafka identified partitions by name, so a recreated topic received the marker for the old topic's transaction.
@pytest.mark.known_bug(53, "Kafka 4.3.1")
def test_a_topic_of_the_same_name_gets_no_marker_of_the_old_one(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"old")
    scene.delete_topic("t")
    scene.topic("t", 2)
    scene.commit(pair)
    assert state(scene) == "CompleteCommit"
    assert scene.partition("t").log.log_end_offset == 0


@pytest.mark.known_bug(53, "Kafka 4.3.1")
def test_a_topic_that_is_recreated_while_the_coordinator_loads_gets_no_marker_of_the_old_one(scene: Clients) -> None:
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
