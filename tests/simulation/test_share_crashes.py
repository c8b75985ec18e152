"""Tests that everything that a client of a share group has learned is still true after a crash or a power failure at
any disk call.

Members and a producer play a story. Wherever the broker dies, they continue with the next broker, as clients do. A
finished record is not delivered again, an input's output is visible if and only if the input is acknowledged, no
delivery count decreases, and no record is lost. Rules: docs/spec/share-groups.md#s4, #s5-12.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.simulation.share_requests import ACCEPT, REJECT, RELEASE, RENEW
from tests.simulation.share_stage import LOCK_MS, Moment, ShareStage, ShareStory, prepared_disk
from tests.simulation.stage import NO_PAIR
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import CrashState, FakeDisk, ProcessCrashed

SEED = int(os.environ.get("SEED", "1"))
HALVES = 5  # Every fifth call, chosen by the seed, is also tried as a partial write.
Event = Callable[[ShareStory], None]


def acknowledges(name: str, count: int, kind: int = ACCEPT) -> Event:
    return lambda story: story.acknowledge(name, count, kind)


def fetches(name: str, count: int) -> Event:
    def event(story: ShareStory) -> None:
        story.fetch(name, count, mode=1)

    return event


def works(name: str, count: int, *, commits: bool = True, kind: int = ACCEPT, twice: bool = False) -> Event:
    """Returns an event with one transaction that contains an output for each input, and the acknowledgements."""

    def event(story: ShareStory) -> None:
        if story.stage.pair == NO_PAIR:
            story.begin()
        is_staged = story.stage_some(name, count, kind, twice=twice)
        if not story.end(commit=commits and is_staged):
            story.begin()

    return event


def works_slowly(name: str, count: int) -> Event:
    """Returns an event in which the broker writes a snapshot of the state between staging and commit."""

    def event(story: ShareStory) -> None:
        story.begin()
        is_staged = story.stage_some(name, count)
        story.stage.wait(LOCK_MS - 300)
        if not story.end(commit=is_staged):
            story.begin()

    return event


def works_too_slowly(name: str, count: int) -> Event:
    """Returns an event in which the locks expire before the commit. The commit is then refused, because the broker has
    aborted the transaction."""

    def event(story: ShareStory) -> None:
        story.begin()
        if story.stage_some(name, count) and story.knowledge.staged:
            story.stage.wait(2 * LOCK_MS)
            assert not story.end(commit=True)
        story.begin()

    return event


def stages_and_goes(name: str, count: int) -> Event:
    """Returns an event in which the member disconnects before its producer commits. The commit still succeeds."""

    def event(story: ShareStory) -> None:
        story.begin()
        is_staged = story.stage_some(name, count)
        story.disconnect(name)
        if not story.end(commit=is_staged):
            story.begin()

    return event


def leaves(name: str) -> Event:
    return lambda story: story.leave(name)


def disconnects(name: str) -> Event:
    return lambda story: story.disconnect(name)


def waits(ms: int) -> Event:
    """Returns an event that lets `ms` milliseconds pass. Meanwhile, locks can expire, snapshots can be written, and
    records of the state topic can be deleted."""
    return lambda story: story.stage.wait(ms)


PLAIN: list[Event] = [
    acknowledges("A", 1),
    fetches("A", 3),
    acknowledges("A", 1, RELEASE),
    acknowledges("B", 1, RELEASE),
    acknowledges("B", 1, REJECT),
    acknowledges("A", 1, RENEW),
    disconnects("A"),
    fetches("C", 1),
    waits(LOCK_MS + 100),
    acknowledges("B", 2),
    leaves("B"),
    acknowledges("A", 1, RELEASE),
    acknowledges("A", 3),
]
IN_TRANSACTIONS: list[Event] = [
    works("A", 1),
    works("A", 2, commits=False),
    works("A", 2, twice=True),
    works_too_slowly("A", 1),
    works_slowly("B", 1),
    works("B", 1, kind=REJECT),
    stages_and_goes("B", 2),
    waits(1_500),
    works("A", 1),
]


@dataclass(frozen=True, slots=True)
class Crash:
    """A point at which the process can die: the event, the clients' knowledge, and the possible contents of the
    disk."""

    event: int
    moment: Moment
    state: str
    disk: FakeDisk


class Play:
    """A run of a story. `event` is the number of the current event."""

    def __init__(self, events: list[Event], story: ShareStory, event: int = 0) -> None:
        self.events = events
        self.story = story
        self.event = event

    def to_the_end(self) -> None:
        while self.event < len(self.events):
            self.events[self.event](self.story)
            self.event += 1


def start_play(events: list[Event], prepared: FakeDisk) -> Play:
    return Play(events, ShareStory(ShareStage(prepared.after_kill(), NOW_MS)))


def crashes(
    events: list[Event], prepared: FakeDisk, states: Callable[[FakeDisk, int], Iterator[CrashState]]
) -> list[Crash]:
    """Returns a crash for every distinct state that dying before a disk call can leave, and a crash at the end."""
    found: list[Crash] = []
    seen: set[tuple[int, bytes]] = set()
    play = start_play(events, prepared)
    story, disk = play.story, play.story.stage.disk

    def before_call() -> None:
        moment = story.moment()
        for state in states(disk, disk.calls):
            key = (hash(repr(moment.knowledge)), state.disk.fingerprint)
            if key not in seen:
                seen.add(key)
                found.append(Crash(play.event, moment, f"{state.name}, before call {disk.calls + 1}", state.disk))

    disk.before_call = before_call
    play.to_the_end()
    disk.before_call = None
    story.stage.broker.kill()
    found.append(Crash(len(events), story.moment(), "at the end", disk.after_kill()))
    return found


def continue_story(events: list[Event], crash: Crash, *, repeats_end: bool) -> None:
    """Continues the story after a crash.

    repeats_end  whether the producer repeats an unanswered EndTxn; otherwise a new producer takes over
    """
    story = crash.moment.continue_story(crash.disk)
    in_transactions = events is IN_TRANSACTIONS
    play = Play(events, story, crash.event)
    try:
        if in_transactions:
            ending = story.knowledge.ending
            if ending is None or not repeats_end or not story.end(commit=ending):
                story.begin()
        play.to_the_end()
        story.drain(in_transactions=in_transactions)
    except AssertionError as failure:
        raise AssertionError(f"{crash.state}, in event {crash.event}; in event {play.event}: {failure}") from failure
    finally:
        story.stage.broker.kill()


def killed(disk: FakeDisk, call: int) -> Iterator[CrashState]:
    yield CrashState("killed", disk.after_kill())


def without_power(disk: FakeDisk, call: int) -> Iterator[CrashState]:
    """Yields states of the disk in which all or some of the unsynced data is lost."""
    states = list(disk.after_power_failure(SEED + call, random_states=1))
    return iter([states[0], states[-1]])


@pytest.fixture(scope="module")
def prepared() -> FakeDisk:
    return prepared_disk(is_durable=True)


STORIES = pytest.mark.parametrize("events", [PLAIN, IN_TRANSACTIONS], ids=["plain", "in transactions"])


@STORIES
def test_a_killed_broker_keeps_the_state_that_it_reported_to_clients(events: list[Event], prepared: FakeDisk) -> None:
    for number, crash in enumerate(crashes(events, prepared, killed)):
        continue_story(events, crash, repeats_end=number % 2 == 0)


@STORIES
def test_a_power_failure_loses_no_state_that_was_reported_to_clients(events: list[Event], prepared: FakeDisk) -> None:
    for number, crash in enumerate(crashes(events, prepared, without_power)):
        continue_story(events, crash, repeats_end=number % 2 == 0)


@STORIES
def test_a_torn_write_has_no_effect(events: list[Event], prepared: FakeDisk) -> None:
    play = start_play(events, prepared)
    disk = play.story.stage.disk
    start = disk.calls
    play.to_the_end()
    play.story.stage.broker.kill()
    for call in range(SEED % HALVES + 1, disk.calls - start + 1, HALVES):
        play = start_play(events, prepared)
        play.story.stage.disk.crash_before(call, half_write=True)
        with suppress(ProcessCrashed):
            play.to_the_end()
        play.story.stage.broker.kill()
        left = play.story.stage.disk.after_kill()
        crash = Crash(play.event, play.story.moment(), f"in the middle of call {call}", left)
        continue_story(events, crash, repeats_end=True)
