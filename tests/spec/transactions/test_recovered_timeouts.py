"""Tests the timeouts of a kept transaction and of later transactions (table 3.2 in docs/spec/transactions.md#s3-2).

An ordinary transaction that is kept with Enable2Pc becomes a two-phase commit, and no later recovery changes this.
Later transactions have the timeout that the last owner requested. The tests check each of these rules with a restart at
any point (ADR 11).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek.broker.transactions.entry import NEVER_MS, Txn
from odradek.broker.transactions.records import decode_record, record_headers, restore_headers
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.errors import MalformedMessage
from tests.support.transaction_scene import MAX, P0, TIMEOUT_MS, E, Pair, S, Scene, given, refused, txn

ALLOWED = TransactionConfig(transaction_two_phase_commit_enable=True)
DAY_MS = 24 * 60 * 60 * 1000
OPEN: Pair = (42, 10)
SHORT_MS, OTHER_MS = 3_000, 7_000
RESTARTS = pytest.mark.parametrize("restart", [lambda scene: scene, Scene.restarted], ids=["running", "restarted"])
Restart = Callable[[Scene], Scene]

# The columns are the timeout of the original transaction, the Enable2Pc and the timeout of the recovery, and the
# resulting timeouts of the kept transaction and of the next one.
TABLE = [
    pytest.param(SHORT_MS, False, OTHER_MS, SHORT_MS, OTHER_MS, id="ordinary, recovered as such"),
    pytest.param(SHORT_MS, True, 0, NEVER_MS, NEVER_MS, id="ordinary, recovered with Enable2Pc"),
    pytest.param(NEVER_MS, False, OTHER_MS, NEVER_MS, OTHER_MS, id="two-phase, recovered without Enable2Pc"),
    pytest.param(NEVER_MS, True, 0, NEVER_MS, NEVER_MS, id="two-phase, recovered as such"),
    pytest.param(-1, False, OTHER_MS, -1, OTHER_MS, id="two-phase as the KIP writes it, recovered without"),
]


def opened(timeout_ms: int, pair: Pair = OPEN) -> Scene:
    return given(txn(S.ONGOING, pair, timeout_ms=timeout_ms), config=ALLOWED)


# In an earlier Odradek, the next transaction after a recovery inherited the old owner's timeout. Two-phase commits
# timed out, and ordinary transactions never did.
@pytest.mark.known_bug(59, "ours")
@RESTARTS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(("begun_ms", "enable2_pc", "asked_ms", "own_ms", "next_ms"), TABLE)
def test_a_kept_transaction_keeps_its_timeout_and_the_next_one_has_the_requested_timeout(
    begun_ms: int, enable2_pc: bool, asked_ms: int, own_ms: int, next_ms: int, commit: bool, restart: Restart
) -> None:
    scene = opened(begun_ms)
    owner, _ = scene.keep(enable2_pc=enable2_pc, timeout_ms=asked_ms)
    scene = restart(scene)
    assert scene.describe().transaction_timeout_ms == own_ms
    scene.end(owner, committed=commit, version=5)
    scene = restart(scene)
    scene.write_markers()
    scene = restart(scene)
    assert scene.describe().transaction_timeout_ms == next_ms
    scene.add5((42, 12))
    scene.advance(max(SHORT_MS, OTHER_MS) + 1)
    assert scene.time_out() == ([] if next_ms == NEVER_MS else ["pay"])


# In an earlier Odradek, the recovery succeeded, but then the old timeout aborted the transaction that the recovery had
# kept.
@pytest.mark.known_bug(60, "ours")
@RESTARTS
def test_a_transaction_that_became_a_two_phase_commit_is_not_timed_out(restart: Restart) -> None:
    scene = opened(SHORT_MS)
    scene.advance(SHORT_MS)
    owner, _ = scene.keep(enable2_pc=True)
    scene = restart(scene)
    scene.advance(DAY_MS)
    assert scene.time_out() == []
    assert scene.commit5(owner).is_parked


@RESTARTS
def test_an_ordinary_transaction_recovered_as_such_is_timed_out_and_so_is_its_owners_next(restart: Restart) -> None:
    scene = opened(SHORT_MS)
    scene.keep(timeout_ms=OTHER_MS)
    scene = restart(scene)
    scene.advance(SHORT_MS + 1)
    assert scene.time_out() == ["pay"]
    scene.write_markers()
    scene = restart(scene)
    scene.add5((42, 12))
    scene.advance(OTHER_MS)
    assert scene.time_out() == []
    scene.advance(1)
    assert scene.time_out() == ["pay"]


@RESTARTS
def test_a_two_phase_commit_stays_one_whoever_recovers_it(restart: Restart) -> None:
    scene = opened(SHORT_MS)
    scene.keep(enable2_pc=True)
    scene = restart(scene)
    owner, _ = scene.keep(timeout_ms=OTHER_MS)
    scene = restart(scene)
    assert scene.txn.is_two_phase
    scene.commit5(owner)
    scene.write_markers()
    assert scene.txn.timeout_ms == OTHER_MS


@RESTARTS
def test_the_later_of_two_recoveries_sets_the_next_timeout(restart: Restart) -> None:
    scene = opened(NEVER_MS)
    scene.keep(timeout_ms=OTHER_MS)
    scene = restart(scene)
    owner, _ = scene.keep(enable2_pc=True)
    scene = restart(scene)
    scene.commit5(owner)
    scene.write_markers()
    assert scene.txn.timeout_ms == NEVER_MS


@RESTARTS
def test_a_new_owner_that_does_not_keep_has_its_own_timeout(restart: Restart) -> None:
    scene = opened(NEVER_MS)
    scene.keep(timeout_ms=OTHER_MS)
    scene = restart(scene)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init(timeout_ms=TIMEOUT_MS)
    scene.write_markers()
    scene = restart(scene)
    assert scene.txn.timeout_ms == OTHER_MS
    scene.init(timeout_ms=TIMEOUT_MS)
    assert (scene.txn.timeout_ms, scene.txn.next_timeout_ms) == (TIMEOUT_MS, None)


@RESTARTS
def test_the_next_timeout_survives_a_change_of_the_producer_id(restart: Restart) -> None:
    scene = opened(SHORT_MS, (42, MAX - 1))
    owner, _ = scene.keep(enable2_pc=True)
    scene = restart(scene)
    scene.commit5(owner)
    scene.write_markers()
    scene = restart(scene)
    assert (scene.txn.timeout_ms, scene.txn.producer_id) == (NEVER_MS, owner[0])


@pytest.mark.parametrize("level", [0, 1])
@RESTARTS
def test_the_next_timeout_survives_a_lowered_level(level: int, restart: Restart) -> None:
    scene = opened(NEVER_MS)
    owner, _ = scene.keep(timeout_ms=OTHER_MS)
    scene.transaction_version = level
    scene.delete_topic("refunds")
    scene = restart(scene)
    scene.commit5(owner)
    scene = restart(scene)
    scene.write_markers()
    assert scene.restarted().txn.timeout_ms == OTHER_MS


def test_a_recovery_that_cannot_be_recorded_changes_no_timeout() -> None:
    scene = opened(SHORT_MS)
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.keep(enable2_pc=True)
    assert (scene.txn.timeout_ms, scene.txn.next_timeout_ms) == (SHORT_MS, None)


def test_a_kept_transaction_of_an_older_broker_passes_its_timeout_on_until_the_next_initialisation() -> None:
    """Checks that the transaction keeps its recorded timeout, because the record lacks the timeout that the owner
    requested. `odradek.client` sends InitProducerId after the transaction completes, which records the requested
    timeout."""
    scene = given(
        txn(S.ONGOING, OPEN, timeout_ms=SHORT_MS, following=42, following_epoch=11),
        config=ALLOWED,
    )
    scene.commit5((42, 11))
    scene.write_markers()
    assert scene.txn.timeout_ms == SHORT_MS
    scene.init((42, 12), enable2_pc=True)
    assert scene.txn.timeout_ms == NEVER_MS


def test_the_next_recovery_sets_the_timeout_of_an_older_broker() -> None:
    scene = given(
        txn(S.ONGOING, OPEN, timeout_ms=SHORT_MS, following=42, following_epoch=11),
        config=ALLOWED,
    )
    owner, _ = scene.keep(enable2_pc=True)
    scene.advance(DAY_MS)
    assert scene.time_out() == []
    scene.commit5(owner)
    scene.write_markers()
    assert scene.txn.timeout_ms == NEVER_MS


def test_a_broker_that_ignores_the_header_reads_the_rest_of_the_record() -> None:
    scene = opened(NEVER_MS)
    scene.keep(timeout_ms=OTHER_MS)
    key, value, headers = scene.log[-1]
    assert [name for name, _ in headers] == ["next-timeout-ms"]
    assert decode_record(key, value) == replace(scene.txn, next_timeout_ms=None)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0"])
def test_a_header_that_cannot_be_read_is_refused(value: bytes | None) -> None:
    with pytest.raises(MalformedMessage, match="next-timeout-ms"):
        restore_headers(txn(), (("next-timeout-ms", value),))


def test_records_without_a_recovery_carry_no_header() -> None:
    assert record_headers(txn(S.ONGOING)) == ()


@pytest.mark.parametrize(
    ("begun_ms", "enable2_pc", "is_synced"),
    [(SHORT_MS, False, False), (SHORT_MS, True, True), (NEVER_MS, False, True), (NEVER_MS, True, True)],
)
def test_a_recovery_into_a_two_phase_commit_waits_until_the_records_are_synced(
    begun_ms: int, enable2_pc: bool, is_synced: bool
) -> None:
    scene = opened(begun_ms)
    scene.keep(enable2_pc=enable2_pc)
    assert scene.to_sync == ({P0} if is_synced else set())


def test_without_a_kept_transaction_nothing_is_synced() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, OPEN), config=ALLOWED)
    scene.keep(enable2_pc=True)
    assert scene.to_sync == set()


def kept_with(own_ms: int, next_ms: int | None) -> Txn:
    return replace(txn(S.ONGOING, OPEN, timeout_ms=own_ms, following=42, following_epoch=11), next_timeout_ms=next_ms)


@pytest.mark.parametrize("record", [kept_with(NEVER_MS, OTHER_MS), kept_with(SHORT_MS, NEVER_MS)])
def test_a_record_with_its_header_is_read_as_it_was_written(record: Txn) -> None:
    assert given(record, config=ALLOWED).txn == record
