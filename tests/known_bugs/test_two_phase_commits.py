"""What transactions need to be recovered by an external coordinator (KIP-939); each comment names the cause."""

import pytest

from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.errors import ErrorCode
from tests.support.transactional_clients import ID, TIMEOUT_MS, Clients

E = ErrorCode
YEAR_MS = 365 * 24 * 60 * 60 * 1000


@pytest.fixture
def scene() -> Clients:
    return Clients(decisions=TransactionConfig(transaction_two_phase_commit_enable=True))


def state(scene: Clients) -> str:
    return scene.transactions.describe(ID).transaction_state


def later(scene: Clients, ms: int) -> None:
    scene.clock.advance(ms)
    scene.transactions.abort_timed_out()
    scene.settle()


# KIP-939: what a producer had prepared was aborted by its next InitProducerId, or by a timeout while the external
# coordinator decided; the other half of the dual write was committed.
@pytest.mark.parametrize("killed", [True, False])
def test_known_bug_50_a_prepared_transaction_outlives_restarts_and_timeouts_and_is_kept(
    scene: Clients, killed: bool
) -> None:
    pair, _ = scene.init6(two_phase=True)
    scene.produce(pair, 0, b"prepared")
    scene = scene.restarted(killed=killed)
    later(scene, YEAR_MS)
    owner, kept = scene.init6(two_phase=True, keep=True)
    assert kept == pair
    assert state(scene) == "Ongoing"
    scene.commit(owner)
    assert scene.read(committed=True) == [b"prepared"]


# Once ours: a recovered id passed the timeout of its old owner on to the next transaction. Two-phase ones timed out,
# ordinary ones never did.
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("two_phase", [True, False])
def test_known_bug_59_the_next_transaction_has_the_new_owners_timeout(
    scene: Clients, two_phase: bool, restarts: bool
) -> None:
    pair, _ = scene.init6(two_phase=not two_phase)
    scene.produce(pair, 0, b"kept")
    owner, _ = scene.init6(two_phase=two_phase, keep=True)
    if restarts:
        scene = scene.restarted(killed=True)
    following = scene.commit(owner)
    scene.produce(following, 0, b"following")
    later(scene, TIMEOUT_MS + 1)
    assert (state(scene) == "Ongoing") is two_phase


# Once ours: the same recovery was answered NONE, and the transaction that it kept was aborted by its old timeout.
@pytest.mark.parametrize("restarts", [True, False])
def test_known_bug_60_a_transaction_kept_with_two_phase_commit_does_not_time_out_any_more(
    scene: Clients, restarts: bool
) -> None:
    pair, _ = scene.init6(two_phase=False)
    scene.produce(pair, 0, b"kept")
    owner, _ = scene.init6(two_phase=True, keep=True)
    if restarts:
        scene = scene.restarted(killed=True)
    later(scene, YEAR_MS)
    scene.commit(owner)
    assert scene.read(committed=True) == [b"kept"]
