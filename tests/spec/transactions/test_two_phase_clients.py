"""Tests KIP-939 as clients see it. The tests cover InitProducerId v6, permissions, and Produce while a transaction is
kept.

Rules: docs/spec/transactions.md#s3-1, #s3-7; scenarios: #s8-8.
"""

import pytest

from odradek.broker.api.served import SERVED
from odradek.broker.transactions.entry import NEVER_MS
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import TRANSACTION_STATE
from odradek.storage.log import Origin
from tests.support.fake_disk import Fault
from tests.support.transaction_scene import refused
from tests.support.transactional_clients import ID, NO_PAIR, TIMEOUT_MS, TV1, TV2, Clients, Pair

E = ErrorCode
DAY_MS = 24 * 60 * 60 * 1000
TWO_PHASE = Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, ID
WRITE = Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ID


@pytest.fixture
def scene() -> Clients:
    return Clients(decisions=TransactionConfig(transaction_two_phase_commit_enable=True))


def prepared(scene: Clients) -> Pair:
    """Creates a prepared transaction with one record in t-0. Its producer is no longer used.

    Returns the transaction's producer id and epoch.
    """
    pair, ongoing = scene.init6()
    assert ongoing == NO_PAIR
    assert scene.produce(pair, 0, b"prepared") is E.NONE
    return pair


def test_version_6_of_init_producer_id_is_advertised() -> None:
    handler = SERVED[ApiKey.INIT_PRODUCER_ID]
    assert (handler.min_version, handler.max_version) == (0, 6)


def test_scenario_109_with_two_phase_commit_off_a_plain_transaction_can_still_be_kept() -> None:
    scene = Clients()
    pair = scene.init()
    scene.produce(pair)
    with refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        scene.init6(keep=True)
    owner, ongoing = scene.init6(two_phase=False, keep=True)
    assert (owner, ongoing) == ((pair[0], pair[1] + 1), pair)


def test_scenario_110_two_phase_commit_is_a_permission_of_its_own(scene: Clients) -> None:
    scene.authorizer.denied.add(TWO_PHASE)
    for keep in (True, False):
        with refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            scene.init6(keep=keep)
    scene.init6(two_phase=False, keep=True)
    scene.init()


def test_scenario_110_two_phase_commit_also_requires_write(scene: Clients) -> None:
    scene.authorizer.denied.add(WRITE)
    with refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        scene.init6()


def test_a_producer_id_without_an_epoch_is_refused_in_version_6_too(scene: Clients) -> None:
    with refused(E.INVALID_REQUEST):
        scene.init6((7, -1), keep=True)


def test_scenario_112_a_prepared_transaction_is_committed_by_the_producer_that_recovers_it(scene: Clients) -> None:
    pair = prepared(scene)
    owner, ongoing = scene.init6(keep=True)
    assert ongoing == pair
    assert scene.read(committed=True) == []
    following = scene.commit(owner)
    assert scene.read(committed=True) == [b"prepared"]
    assert scene.produce(following, 0, b"next") is E.NONE
    scene.commit(following)
    assert scene.read(committed=True) == [b"prepared", b"next"]


@pytest.mark.parametrize("version", [TV1, TV2])
def test_scenario_121_the_new_owner_cannot_write_to_other_partitions(scene: Clients, version: int) -> None:
    prepared(scene)
    owner, _ = scene.init6(keep=True)
    assert scene.produce(owner, index=1, version=version) is E.INVALID_TXN_STATE
    assert scene.produce(owner, index=0, version=version) is E.INVALID_TXN_STATE
    (topic,) = scene.transactions.describe(ID).topics
    assert (topic.topic, topic.partitions) == ("t", [0])


def test_scenario_121_the_old_producer_cannot_write_to_other_partitions(scene: Clients) -> None:
    pair = prepared(scene)
    scene.init6(keep=True)
    assert scene.produce(pair, index=1) is E.INVALID_PRODUCER_EPOCH
    assert scene.add(pair, 1) is E.PRODUCER_FENCED
    assert scene.add_offsets(pair) is E.PRODUCER_FENCED


def test_scenario_125_an_operator_without_the_permission_can_abort_a_prepared_transaction(scene: Clients) -> None:
    pair = prepared(scene)
    scene.authorizer.denied.add(TWO_PHASE)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    assert scene.init()[1] == pair[1] + 2
    with refused(E.PRODUCER_FENCED):
        scene.commit(pair)
    assert scene.read(committed=True) == []
    assert scene.transactions.describe(ID).transaction_timeout_ms == 60_000


# --- Producers whose batches are waiting for the disk.


def test_a_two_phase_producer_is_tracked_from_its_record_on_and_after_a_restart(scene: Clients) -> None:
    pair, _ = scene.init6()
    assert pair[0] in scene.two_phase
    again = scene.restarted(killed=True)
    assert again.two_phase.are_all_known
    assert again.two_phase.ids == {pair[0]}


def test_a_two_phase_producer_is_tracked_until_its_transactional_id_is_terminated(scene: Clients) -> None:
    pair, _ = scene.init6()
    scene.produce(pair)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    assert scene.two_phase.ids == {pair[0]}, "the abort is relied on too"
    scene.init()
    assert scene.two_phase.ids == set()


def test_a_new_two_phase_producer_id_replaces_the_old_one(scene: Clients) -> None:
    pair, _ = scene.init6()
    scene.produce(pair)
    scene.init6(keep=True)
    assert scene.two_phase.ids == {pair[0]}, "its records are under the old one"


def test_every_producer_counts_as_two_phase_while_some_transactional_ids_are_unreadable() -> None:
    scene = Clients()
    corrupt = build_batch([NewRecord(b"\0\0 cut", b"", 0)])
    scene.partition(TRANSACTION_STATE).append_now(corrupt, origin=Origin.COORDINATOR, now_ms=scene.clock.now_ms())
    again = scene.restarted(killed=True)
    assert not again.two_phase.are_all_known
    assert 12345 in again.two_phase


def test_a_transaction_that_becomes_a_two_phase_commit_is_tracked_even_after_a_restart(
    scene: Clients,
) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"prepared")
    assert scene.two_phase.ids == set()
    owner, ongoing = scene.init6(keep=True)
    assert ongoing == pair
    assert scene.two_phase.ids == {pair[0]}
    again = scene.restarted(killed=True)
    assert again.two_phase.ids == {pair[0]}
    following = again.commit(owner)
    assert again.two_phase.ids == {pair[0]}, "what comes next is a two-phase commit as well"
    again.produce(following)
    assert again.transactions.describe(ID).transaction_timeout_ms == NEVER_MS


def test_a_two_phase_commit_recovered_without_enable2pc_is_tracked_until_it_ends(scene: Clients) -> None:
    pair = prepared(scene)
    owner, _ = scene.init6(two_phase=False, keep=True)
    again = scene.restarted(killed=True)
    assert again.two_phase.ids == {pair[0]}
    following = again.commit(owner)
    assert again.two_phase.ids == set()
    again.produce(following, 0, b"next")
    assert again.transactions.describe(ID).transaction_timeout_ms == TIMEOUT_MS
    again.clock.advance(TIMEOUT_MS + 1)
    again.transactions.abort_timed_out()
    again.settle()
    assert again.read(committed=True) == [b"prepared"]
    assert again.latest_offset(committed=True) == again.latest_offset(committed=False), "no reader waits for it"


def test_retention_keeps_records_of_a_transaction_that_became_a_two_phase_commit(scene: Clients) -> None:
    scene.topic("r", segment_bytes=200, retention_ms=DAY_MS, segment_ms=DAY_MS * 100)
    pair = scene.init()
    for sequence in range(4):
        assert scene.produce(pair, sequence, b"v" * 100, topic="r") is E.NONE
    partition = scene.partition("r", 0)
    scene.init6(keep=True)
    assert partition.log.retention(scene.clock.now_ms() + DAY_MS * 2, partition.two_phase) is None
    assert partition.log.log_start_offset == 0


def test_a_recovery_fails_if_the_records_of_a_partition_cannot_be_synced(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"prepared")
    scene.init6(transactional_id="another")  # From here on, the coordinator's log needs a write and a sync.
    scene.disk.fail_from(3, Fault.EIO, 1)
    with refused(E.COORDINATOR_NOT_AVAILABLE):
        scene.init6(keep=True)
    assert scene.partition("t").log.offline_reason is not None


def test_a_topic_that_is_gone_has_nothing_to_be_synced(scene: Clients) -> None:
    scene.topic("gone")
    pair = scene.init()
    scene.produce(pair, 0, b"prepared", topic="gone")
    scene.delete_topic("gone")
    assert scene.init6(keep=True)[1] == pair


# Before KIP-939, a prepared transaction was aborted by its producer's next InitProducerId, or by a timeout while the
# external coordinator was deciding. The other half of the dual write was committed.
@pytest.mark.known_bug(50, "KIP-939")
@pytest.mark.parametrize("killed", [True, False])
def test_a_prepared_transaction_outlives_restarts_and_timeouts_and_is_kept(scene: Clients, killed: bool) -> None:
    pair, _ = scene.init6(two_phase=True)
    scene.produce(pair, 0, b"prepared")
    scene = scene.restarted(killed=killed)
    scene.clock.advance(365 * DAY_MS)
    scene.transactions.abort_timed_out()
    scene.settle()
    owner, kept = scene.init6(two_phase=True, keep=True)
    assert kept == pair
    assert scene.transactions.describe(ID).transaction_state == "Ongoing"
    scene.commit(owner)
    assert scene.read(committed=True) == [b"prepared"]
