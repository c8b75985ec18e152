"""Tests that acknowledgements staged in a two-phase commit survive a power failure before any disk call, even though no
setting requires an fsync.

Once the transaction's last request has been answered, an external coordinator relies on the staged acknowledgements. A
day after the power failure their records have not been delivered to any other member. Then the decision is carried out:
either the outputs become visible and the inputs are acknowledged, or neither happens. Rules:
docs/spec/share-groups.md#s5-12, #s5-13 row 6.
"""

from __future__ import annotations

import os

import pytest

from odradek.protocol.errors import ErrorCode
from tests.simulation.share_stage import Moment, ShareStage, ShareStory, prepared_disk
from tests.simulation.stage import NO_PAIR
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk

SEED = int(os.environ.get("SEED", "1"))
E = ErrorCode
DAY_MS = 24 * 60 * 60 * 1000
IN_DOUBT = 3  # number of records that the story stages


@pytest.fixture(scope="module")
def prepared() -> FakeDisk:
    return prepared_disk(is_durable=False)


def keep(story: ShareStory) -> None:
    code, ongoing = story.stage.init6(keep=True)
    assert (code, ongoing != NO_PAIR) == (E.NONE, True)


def played(prepared: FakeDisk, *, commit: bool, keeps: bool) -> list[tuple[str, Moment, FakeDisk]]:
    """Returns, for each crash, a description, the clients' knowledge, and the possible contents of the disk."""
    story = ShareStory(ShareStage(prepared.after_kill(), NOW_MS, is_durable=False, is_two_phase=True))
    disk = story.stage.disk
    found: list[tuple[str, Moment, FakeDisk]] = []
    seen: set[tuple[int, bytes]] = set()

    def look() -> None:
        moment = story.moment()
        states = list(disk.after_power_failure(SEED + disk.calls, random_states=1))
        for state in (states[0], states[-1]):
            key = (hash(repr(moment.knowledge)), state.disk.fingerprint)
            if key not in seen:
                seen.add(key)
                found.append((f"{state.name}, before call {disk.calls + 1}", moment, state.disk))

    disk.before_call = look
    story.begin()
    for count in (1, IN_DOUBT - 1):
        assert story.stage_some("A", count)
    if keeps:
        keep(story)
    assert story.end(commit=commit)
    story.stage.wait(1_000)
    look()
    disk.before_call = None
    story.stage.broker.kill()
    return found


def check_recovery(moment: Moment, disk: FakeDisk, *, commit: bool) -> None:
    """Checks the recovery from a crash.

    commit  the decision in the application's database, if everything was staged
    """
    story = moment.continue_story(disk, DAY_MS)
    staged, is_over = set(moment.knowledge.staged), moment.knowledge.ending is None and bool(moment.knowledge.finished)
    try:
        story.stage.wait(2_000)
        if moment.knowledge.ending is None and not is_over:
            story.may_be_delivered = lambda record: record not in staged
            while story.fetch("B", 3):
                pass
            story.close_session("B")
        code, ongoing = story.stage.init6(keep=True)
        assert code is E.NONE
        is_decided = moment.knowledge.ending is not None or is_over
        assert ongoing != NO_PAIR or is_decided or not staged, "what was promised has been decided by nobody"
        story.may_be_delivered = lambda record: True
        if ongoing != NO_PAIR:
            story.knowledge.staged = staged
            assert story.end(commit=commit and len(staged) == IN_DOUBT)
        elif commit and is_decided:
            story.knowledge.finished |= staged
        story.drain(in_transactions=True)
    finally:
        story.stage.broker.kill()


@pytest.mark.parametrize(("commit", "keeps"), [(True, False), (False, True)], ids=["commit", "kept, then aborted"])
def test_promised_acknowledgements_survive_a_power_failure(commit: bool, keeps: bool, prepared: FakeDisk) -> None:
    for name, moment, disk in played(prepared, commit=commit, keeps=keeps):
        try:
            check_recovery(moment, disk, commit=commit)
        except AssertionError as failure:
            raise AssertionError(f"{name}: {failure}") from failure
