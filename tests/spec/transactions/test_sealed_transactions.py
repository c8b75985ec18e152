"""Tests a transaction that another producer has taken over with KeepPreparedTxn. It is sealed: nothing can be added to
it any more.

An external coordinator may already have decided the transaction. The transaction's partitions and groups check whether
the coordinator has assigned it to a new owner. If so, they refuse requests that Kafka would accept. Rules:
docs/spec/transactions.md#s3-7.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.broker.metadata.supported_features import TRANSACTION_VERSION
from odradek.broker.partitions.registry import LedPartitions
from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.entry import MAX_EPOCH
from odradek.broker.transactions.producers import Seals
from odradek.broker.transactions.records import encode_record
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.storage.log import Origin
from odradek.storage.validation import CHEAP_RECORDS
from tests.support.broker_scene import NODE_ID, NOW_MS, answer_of
from tests.support.kept_transactions import kept
from tests.support.peer import Peer, server_around
from tests.support.transaction_scene import S as States
from tests.support.transaction_scene import refused, txn
from tests.support.transactional_clients import ID, TV1, TV2, Answering, Clients, Pair, batch_of
from tests.support.turns import run

E = ErrorCode
PRODUCE_VERSIONS = [3, 9, TV1, TV2, 13]
COMMIT_VERSIONS = range(6)  # versions of TxnOffsetCommit


def scene_of(*, verification: bool = True) -> Clients:
    return Clients(
        decisions=TransactionConfig(transaction_two_phase_commit_enable=True),
        transaction_partition_verification_enable=verification,
    )


@pytest.fixture(params=[True, False], ids=["verified", "not verified"])
def scene(request: pytest.FixtureRequest) -> Clients:
    return scene_of(verification=request.param)


def prepared(scene: Clients, *, two_phase: bool = True) -> Pair:
    """Creates an open transaction that has one record in t-0 and commits offset 5 for t-0. Its producer is no longer
    used.

    Returns the transaction's producer id and epoch.
    """
    pair, _ = scene.init6(two_phase=two_phase)
    assert scene.produce(pair, 0, b"prepared") is E.NONE
    assert scene.commit_offset_in_transaction(pair, 5) is E.NONE
    return pair


def sealed(scene: Clients, *, two_phase: bool = True) -> tuple[Pair, Pair]:
    """Returns two pairs of producer id and epoch: a sealed transaction's and its new owner's."""
    pair = prepared(scene, two_phase=two_phase)
    owner, ongoing = scene.init6(two_phase=two_phase, keep=True)
    assert ongoing == pair
    return pair, owner


def assert_as_prepared(scene: Clients, owner: Pair) -> None:
    """Makes the new owner commit, and checks that the transaction contains exactly what it contained at the
    takeover."""
    scene.commit(owner)
    assert scene.read(committed=True) == [b"prepared"]
    assert scene.read(committed=True, index=1) == []
    assert scene.committed_offset() == 5


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_scenario_141_a_record_of_the_old_producer_is_refused_in_partitions_of_the_transaction(
    scene: Clients, version: int
) -> None:
    pair, owner = sealed(scene)
    assert scene.produce(pair, 1, b"late", version=version) is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(scene, owner)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_scenario_141_a_record_of_the_old_producer_is_refused_in_other_partitions(scene: Clients, version: int) -> None:
    pair, owner = sealed(scene)
    assert scene.produce(pair, 0, b"late", version=version, index=1) is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(scene, owner)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_scenario_142_a_record_of_the_new_owner_is_refused_because_it_may_only_end_the_transaction(
    scene: Clients, version: int, index: int
) -> None:
    _, owner = sealed(scene)
    assert scene.produce(owner, 0, b"more", version=version, index=index) is E.INVALID_TXN_STATE
    assert_as_prepared(scene, owner)


def test_a_record_outside_transactions_is_refused_under_either_pair(scene: Clients) -> None:
    pair, owner = sealed(scene)
    for index in range(2):
        codes = [scene.produce(each, 0, b"plain", transactional=False, index=index) for each in (pair, owner)]
        assert codes == [E.INVALID_PRODUCER_EPOCH, E.INVALID_TXN_STATE]
    assert_as_prepared(scene, owner)


def test_a_record_that_is_there_already_is_not_acknowledged_again_to_a_producer_that_was_replaced(
    scene: Clients,
) -> None:
    pair, owner = sealed(scene)
    assert scene.produce(pair, 0, b"prepared") is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(scene, owner)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_scenario_141_an_offset_of_the_old_producer_is_refused_for_a_group_with_offsets(
    scene: Clients, version: int
) -> None:
    pair, owner = sealed(scene)
    assert scene.commit_offset_in_transaction(pair, 7, version=version) is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(scene, owner)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_scenario_141_an_offset_of_the_old_producer_is_refused_for_a_group_without_offsets(
    scene: Clients, version: int
) -> None:
    pair, _ = scene.init6()
    assert scene.produce(pair, 0, b"prepared") is E.NONE
    owner, _ = scene.init6(keep=True)
    assert scene.commit_offset_in_transaction(pair, 7, version=version) is E.INVALID_PRODUCER_EPOCH
    scene.commit(owner)
    assert scene.committed_offset() == -1


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_scenario_142_an_offset_of_the_new_owner_is_refused_too(scene: Clients, version: int) -> None:
    _, owner = sealed(scene)
    assert scene.commit_offset_in_transaction(owner, 7, version=version) is E.INVALID_TXN_STATE
    assert_as_prepared(scene, owner)


def test_partitions_and_offsets_cannot_be_added_to_a_sealed_transaction(scene: Clients) -> None:
    pair, owner = sealed(scene)
    assert (scene.add(pair), scene.add_offsets(pair)) == (E.PRODUCER_FENCED, E.PRODUCER_FENCED)
    assert (scene.add(owner), scene.add_offsets(owner)) == (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE)
    assert_as_prepared(scene, owner)


@pytest.mark.parametrize("level", [0, 1])
def test_lowering_the_transaction_version_does_not_break_the_seal(scene: Clients, level: int) -> None:
    pair, owner = sealed(scene)
    scene.features[TRANSACTION_VERSION] = level
    assert scene.produce(pair, 1, b"late", version=TV1) is E.INVALID_PRODUCER_EPOCH
    assert scene.commit_offset_in_transaction(pair, 7, version=3) is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(scene, owner)


def test_a_transaction_with_a_timeout_that_is_kept_is_sealed_as_well(scene: Clients) -> None:
    pair, owner = sealed(scene, two_phase=False)
    assert scene.produce(pair, 1, b"late") is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(scene, owner)


def test_each_of_several_nodes_over_one_log_knows_the_seal(scene: Clients) -> None:
    pair, owner = sealed(scene)
    scene.broker.partitions = LedPartitions(scene.partitions, NODE_ID)
    assert scene.produce(pair, 1, b"late") is E.INVALID_PRODUCER_EPOCH
    assert scene.commit_offset_in_transaction(pair, 7, version=3) is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(scene, owner)


def test_a_transaction_that_was_not_taken_over_continues(scene: Clients) -> None:
    pair = prepared(scene)
    assert scene.produce(pair, 1, b"more") is E.NONE
    assert scene.seals.by_producer == {}


def test_another_transaction_than_the_sealed_one_continues(scene: Clients) -> None:
    _, owner = sealed(scene)
    other = scene.init(transactional_id="other")
    assert scene.produce(other, 0, b"other", transactional_id="other") is E.NONE
    scene.commit(other, transactional_id="other")
    scene.commit(owner)
    assert scene.read(committed=True) == [b"prepared", b"other"]


@pytest.mark.parametrize("commit", [True, False])
def test_the_seal_is_lifted_when_the_transaction_is_complete_and_the_id_goes_on(scene: Clients, commit: bool) -> None:
    pair, owner = sealed(scene)
    following = scene.end(owner, commit=commit)
    assert scene.seals.by_producer == {}
    assert scene.produce(following, 0, b"next") is E.NONE
    scene.commit(following)
    assert scene.read(committed=True) == ([b"prepared", b"next"] if commit else [b"next"])
    assert scene.produce(pair, 1, b"late") is E.INVALID_PRODUCER_EPOCH


# --- The epochs are exhausted, so the new owner has a new producer id.


@pytest.fixture
def rotated() -> tuple[Clients, Pair, Pair]:
    scene = scene_of(verification=False)
    pair = (42, MAX_EPOCH - 1)
    record = NewRecord(*encode_record(txn(States.EMPTY, pair, transactional_id=ID), 2), NOW_MS)
    scene.partition(TRANSACTION_STATE).append_now(build_batch([record]), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    scene.restart_coordinator()
    assert scene.produce(pair, 0, b"prepared") is E.NONE
    assert scene.commit_offset_in_transaction(pair, 5) is E.NONE
    owner, ongoing = scene.init6(keep=True)
    assert (ongoing, owner[0] != pair[0], owner[1]) == (pair, True, 0)
    return scene, pair, owner


def test_scenario_142_the_old_producer_gets_invalid_producer_id_mapping(rotated: tuple[Clients, Pair, Pair]) -> None:
    scene, pair, owner = rotated
    for version in PRODUCE_VERSIONS:
        assert scene.produce(pair, 1, b"late", version=version) is E.INVALID_PRODUCER_ID_MAPPING
    assert scene.commit_offset_in_transaction(pair, 7, version=3) is E.INVALID_PRODUCER_ID_MAPPING
    assert_as_prepared(scene, owner)


def test_a_refused_record_of_the_new_owner_leaves_no_hanging_transaction(rotated: tuple[Clients, Pair, Pair]) -> None:
    scene, _, owner = rotated
    assert scene.produce(owner, 0, b"more", version=TV1, index=1) is E.INVALID_TXN_STATE
    assert_as_prepared(scene, owner)
    assert scene.latest_offset(committed=True, index=1) == scene.latest_offset(committed=False, index=1) == 0
    assert scene.seals.by_producer == {}


# --- Between the decision and its markers.


@pytest.mark.parametrize("commit", [True, False])
def test_scenario_144_the_transaction_stays_sealed_until_its_last_marker_is_written(
    scene: Clients, commit: bool
) -> None:
    pair, owner = sealed(scene)
    scene.markers.refusals = {("t", 0): E.NOT_LEADER_OR_FOLLOWER, (GROUP_OFFSETS, 0): E.NOT_LEADER_OR_FOLLOWER}
    following = scene.end(owner, commit=commit)
    assert scene.produce(pair, 1, b"late", version=TV1) is E.INVALID_PRODUCER_EPOCH
    assert scene.commit_offset_in_transaction(pair, 7, version=3) is E.INVALID_PRODUCER_EPOCH
    again = scene.restarted(killed=True)
    again.markers.refusals = scene.markers.refusals
    assert again.produce(pair, 1, b"late", version=TV1) is E.INVALID_PRODUCER_EPOCH
    again.markers.refusals = {}
    again.timers.advance(1_000)
    again.settle()
    assert again.read(committed=True) == ([b"prepared"] if commit else [])
    assert again.committed_offset() == (5 if commit else -1)
    assert again.produce(following) is E.NONE


def test_scenario_144_the_next_transaction_waits_until_the_last_marker_is_written() -> None:
    scene = scene_of(verification=False)
    _, owner = sealed(scene)
    scene.markers.refusals = {("t", 0): E.NOT_LEADER_OR_FOLLOWER}
    following = scene.commit(owner)
    assert scene.produce(following, version=TV1) is E.NOT_ENOUGH_REPLICAS, "which is sent again"
    assert scene.commit_offset_in_transaction(following, 7, version=3) is E.CONCURRENT_TRANSACTIONS


def test_an_abort_by_the_timeout_lifts_the_seal_with_its_last_marker(scene: Clients) -> None:
    pair, owner = sealed(scene, two_phase=False)
    scene.clock.advance(60_001)
    scene.markers.refusals = {("t", 0): E.NOT_LEADER_OR_FOLLOWER}
    scene.transactions.abort_timed_out()
    assert scene.produce(pair, 1, b"late", version=TV1) is E.INVALID_PRODUCER_EPOCH
    scene.markers.refusals = {}
    scene.timers.advance(1_000)
    scene.settle()
    assert scene.seals.by_producer == {}
    assert scene.read(committed=True) == []
    with refused(E.PRODUCER_FENCED):
        scene.commit(owner)


# --- Requests that are in progress when the transaction is sealed.


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("index", [0, 1])
def test_scenario_143_a_record_whose_verification_was_under_way_when_the_seal_came_is_refused(
    version: int, index: int
) -> None:
    scene = scene_of()
    pair = prepared(scene) if index else scene.init6()[0]
    assert scene.add(pair, 0, 1) is E.NONE
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    reply = scene.send(*[None] * index, batch_of(pair, 0, b"late"), version=version)
    scene.settle()
    assert not reply.is_done
    owner, _ = scene.init6(keep=True)
    coordinator.held.pop()()
    assert [each.error_code for each in scene.produce_answers(reply, version)] == [E.INVALID_PRODUCER_EPOCH.value]
    scene.coordinator = scene.transactions
    scene.commit(owner)
    assert scene.read(committed=True, index=index) == []


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_scenario_143_an_offset_whose_verification_was_under_way_is_refused(version: int) -> None:
    scene = scene_of()
    pair, _ = scene.init6()
    assert scene.add_offsets(pair) is E.NONE
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    reply = scene.begin_offset_in_transaction(pair, 7, version=version)
    owner, _ = scene.init6(keep=True)
    coordinator.held.pop()()
    assert scene.offset_commit_code(reply, version) is E.INVALID_PRODUCER_EPOCH
    scene.commit(owner)
    assert scene.committed_offset() == -1


def test_scenario_143_a_large_batch_that_was_being_checked_in_a_thread_is_refused(scene: Clients) -> None:
    pair = prepared(scene)
    reply = scene.send(batch_of(pair, 1, *[b"late"] * (CHEAP_RECORDS + 1)))
    assert not reply.is_done
    recovery = scene.ask(scene.init6_request(keep=True), 6)
    assert [each.error_code for each in scene.produce_answers(reply)] == [E.INVALID_PRODUCER_EPOCH.value]
    recovered = answer_of(recovery)
    assert_as_prepared(scene, (recovered.producer_id, recovered.producer_epoch))


def test_scenario_147_a_recovery_that_could_not_be_recorded_seals_nothing(scene: Clients) -> None:
    pair = prepared(scene)
    log = scene.partition(TRANSACTION_STATE).log
    log.config = replace(log.config, max_message_bytes=1)
    with refused(E.UNKNOWN_SERVER_ERROR):
        scene.init6(keep=True)
    assert scene.seals.by_producer == {}
    assert scene.produce(pair, 1, b"more") is E.NONE


# --- The fast path.


class Straight:
    """Sends Produce requests over a real connection, so that they can take the fast path."""

    def __init__(self, scene: Clients) -> None:
        self.scene = scene
        dispatcher: Dispatcher[Any] = Dispatcher(scene.broker, scene.clock, handler_of, fast_path_of=fast_path_of)
        self.peer = Peer(server_around(dispatcher, None, scene.timers))

    def produce(self, pair: Pair, sequence: int, value: bytes, version: int) -> ErrorCode:
        data = [PartitionProduceData(index=0, records=batch_of(pair, sequence, value))]
        named = TopicProduceData(partition_data=data)
        if version >= 13:
            named.topic_id = self.scene.image.topics["t"].topic_id
        else:
            named.name = "t"
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1_000, topic_data=[named])
        self.peer.ask(request, version)
        self.scene.settle()
        answer = self.peer.answer(ApiKey.PRODUCE, version)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", range(9, 14))
async def test_the_fast_path_has_no_way_around_the_seal(scene: Clients, version: int) -> None:
    straight = Straight(scene)
    pair, _ = scene.init6()
    scene.add(pair)
    assert straight.produce(pair, 0, b"prepared", version) is E.NONE
    assert scene.commit_offset_in_transaction(pair, 5) is E.NONE
    owner, _ = scene.init6(keep=True)
    assert straight.produce(pair, 1, b"late", version) is E.INVALID_PRODUCER_EPOCH
    assert straight.produce(owner, 0, b"more", version) is E.INVALID_TXN_STATE
    assert_as_prepared(scene, owner)


# --- After a restart.


@pytest.mark.parametrize("killed", [True, False])
def test_scenario_145_the_seal_is_found_again_in_the_log(scene: Clients, killed: bool) -> None:
    pair, owner = sealed(scene)
    again = scene.restarted(killed=killed)
    assert again.produce(pair, 1, b"late") is E.INVALID_PRODUCER_EPOCH
    assert again.commit_offset_in_transaction(pair, 7, version=3) is E.INVALID_PRODUCER_EPOCH
    assert again.produce(owner, 0, b"more") is E.INVALID_TXN_STATE
    assert_as_prepared(again, owner)


def test_a_second_recovery_seals_against_the_first_one_too(scene: Clients) -> None:
    pair, first = sealed(scene)
    again = scene.restarted(killed=True)
    owner, _ = again.init6(keep=True)
    for old in (pair, first):
        assert again.produce(old, 0, b"late") is E.INVALID_PRODUCER_EPOCH
        assert again.commit_offset_in_transaction(old, 7) is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(again, owner)


def begin_to_load(scene: Clients) -> Callable[[], None]:
    """Makes the coordinator start loading its transactional ids. The returned function completes the loading."""
    held: list[Coroutine[Any, Any, None]] = []
    scene.spawn = held.append
    scene.restart_coordinator()

    def finish() -> None:
        scene.spawn = run
        for each in held:
            run(each)
        scene.settle()

    return finish


Ask = Callable[[Clients, Pair], ErrorCode]
ASKS: dict[str, Ask] = {
    "produce v11": lambda scene, pair: scene.produce(pair, 1, b"late", version=TV1),
    "produce v12": lambda scene, pair: scene.produce(pair, 1, b"late", version=TV2),
    "commit offset v3": lambda scene, pair: scene.commit_offset_in_transaction(pair, 7, version=3),
    "commit offset v5": lambda scene, pair: scene.commit_offset_in_transaction(pair, 7, version=5),
}


@pytest.mark.parametrize("how", ASKS)
def test_scenario_145_requests_get_a_retriable_error_while_the_transactional_id_is_loaded(
    scene: Clients, how: str
) -> None:
    pair, owner = sealed(scene)
    again = scene.restarted(killed=True)
    finish = begin_to_load(again)
    expected = E.NOT_ENOUGH_REPLICAS if how.startswith("produce") else E.COORDINATOR_LOAD_IN_PROGRESS
    assert ASKS[how](again, pair) is expected
    finish()
    assert ASKS[how](again, pair) is E.INVALID_PRODUCER_EPOCH
    assert_as_prepared(again, owner)


async def test_scenario_145_while_ids_are_being_loaded_the_fast_path_does_not_accept_the_record_either(
    scene: Clients,
) -> None:
    pair, owner = sealed(scene)
    again = scene.restarted(killed=True)
    finish = begin_to_load(again)
    assert Straight(again).produce(pair, 1, b"late", TV2) is E.NOT_ENOUGH_REPLICAS
    finish()
    assert_as_prepared(again, owner)


@pytest.mark.parametrize("version", [TV1, TV2])
def test_an_open_transaction_goes_on_while_other_ids_cannot_be_read(scene: Clients, version: int) -> None:
    """Checks that records and offsets are still accepted. The transaction's own id has been loaded, so the coordinator
    knows that the transaction is not sealed."""
    pair = prepared(scene)
    scene.two_phase.are_all_known = False
    assert scene.produce(pair, 1, b"more", version=version) is E.NONE
    assert scene.commit_offset_in_transaction(pair, 7, version=3) is E.NONE
    scene.commit(pair)
    assert scene.read(committed=True) == [b"prepared", b"more"]


@pytest.mark.parametrize("is_over", [True, False])
def test_a_finished_recovery_seals_nothing_while_the_log_is_read(is_over: bool) -> None:
    """Checks that a transaction is sealed only while its recovery is the last state of its id. By now, the producer may
    be in another transaction, which must not be mistaken for the recovered one."""
    seals = Seals()
    core = TransactionCore(TransactionConfig(), coordinator_epoch=1, seals=seals)
    core.replay(kept((42, 10), by=(42, 11)))
    assert seals.by_producer == {}
    if is_over:
        core.replay(txn(States.COMPLETE_COMMIT, (42, 12)))
    core.on_loaded(NOW_MS)
    assert set(seals.by_producer) == (set() if is_over else {42})
