"""Tests that a database and Kafka never diverge, no matter which process is killed at which step.

In each of ROUNDS rounds (200 by default, shared by the databases) one victim (the application, the broker or the
database) is killed with SIGKILL before, after or during one step of the recipe or of its recovery. In additional rounds
a second instance takes over while the first one sleeps at a step. Both sides are checked before recovery (neither may
have decided alone) and after it (they must be equal). SEED repeats a run's choices.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from pathlib import Path
from random import Random

import pytest

from odradek.dualwrite import Step
from tests.checker import history as messages
from tests.checker.anomalies import anomalies
from tests.checker.dual_writes import BlockStarted, Event, Judge, Kind, RowsReported, Verdict
from tests.checker.history import Answer
from tests.clients.admin import create_topic
from tests.crash.dual_writer import PARTITIONS, POSTGRESQL, SQLITE, TOPIC, Job
from tests.crash.dual_writing import DATABASES, Database, Nursery, committed_messages, look, recover
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.postgresql import why_not

ROUNDS = int(os.environ.get("ROUNDS", "200"))
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 1,
}
WRITING = (
    Step.BEGIN_DATABASE,
    Step.APPLICATION,
    Step.PREPARE_KAFKA,
    Step.WRITE_STATE,
    Step.COMMIT_DATABASE,
    Step.COMMIT_KAFKA,
)
RECOVERING = (
    Step.TAKE_OVER_DATABASE,
    Step.TAKE_OVER_KAFKA,
    Step.READ_STATE,
    Step.COMPLETE_KAFKA,
    Step.FORGET_STATE,
)
VICTIMS = {SQLITE: ("application", "broker"), POSTGRESQL: ("application", "broker", "database")}
MISSED_S = 0.3  # longest broker downtime that an application waits for
IMPATIENT_MS, MISSED_LONGER_S = 1_000, 1.2  # a timeout, and a longer downtime, after which the application gives up
SHORT_MS, LONG_MS = 500, 5_000  # how long the second of two instances waits for the first


@dataclass(frozen=True, slots=True)
class Round:
    victim: str
    step: Step
    when: str

    def __str__(self) -> str:
        return f"{self.victim} killed {self.when} {self.step.name}"


def rounds(database: str, rng: Random) -> Iterator[Round]:
    """Yields every victim at every step, endlessly in the same random order."""
    every = [Round(*each) for each in product(VICTIMS[database], (*WRITING, *RECOVERING), ("before", "after"))]
    rng.shuffle(every)
    return cycle(every)


class World:
    """A broker, a database, two nurseries of applications, and all their events."""

    def __init__(self, broker: Broker, database: Database, rng: Random) -> None:
        self.broker = broker
        self.database = database
        self.rng = rng
        self.events: list[Event] = []
        self.first, self.second = Nursery("first", self.events), Nursery("second", self.events)
        self._judge = Judge()
        self._judged = 0
        self._values = 0

    def job(self, *, blocks: int = 0) -> Job:
        return Job(
            self.database.kind, self.database.address, self.broker.bootstrap, [self.block() for _ in range(blocks)]
        )

    def block(self) -> list[str]:
        count = self.rng.randint(1, 4)
        self._values += count
        return [f"v{number}" for number in range(self._values - count, self._values)]

    def run(self, job: Job) -> None:
        """Runs an application to completion and checks that it exits as expected."""
        self.first.begin(job)
        status = self.first.until("ended")["status"]
        assert status == (-signal.SIGKILL if job.deed == "die" else 0), f"{job} ended with status {status}"

    def look(self) -> list[Verdict]:
        self.events.append(look(self.database, self.broker.bootstrap))
        new, self._judged = self.events[self._judged :], len(self.events)
        return [verdict for event in new for verdict in self._judge.take(event)]

    def recover(self) -> None:
        recover(self.database, self.broker.bootstrap, self.events)

    def close(self) -> None:
        self.first.close()
        self.second.close()


@pytest.fixture(params=[SQLITE, POSTGRESQL])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    reason = why_not() if request.param == POSTGRESQL else None
    if reason is not None:
        pytest.skip(reason)
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker, DATABASES[request.param]() as database:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS, exact=True)
        made = World(broker, database, Random(SEED))
        made.run(made.job(blocks=1))
        assert made.look() == []
        yield made
        made.close()


def test_both_sides_agree_whichever_process_is_killed_at_any_step(world: World) -> None:
    count = ROUNDS // len(DATABASES)
    print(f"SEED={SEED} {count} rounds")
    for number, each in enumerate(islice(rounds(world.database.kind, world.rng), count)):
        what = f"SEED={SEED} round {number}: {each}"
        began = len(world.events)
        if each.step in RECOVERING:
            leave_in_doubt(world)
            assert world.look() == [], (what, world.events[began:])
        kill_at(world, each)
        assert world.look() == [], (what, world.events[began:])
        world.recover()
        assert world.look() == [], (what, world.events[began:])
    print(Counter(event.rows.name for event in world.events if isinstance(event, RowsReported)))
    assert [str(each) for each in anomalies(history(world))] == []


def leave_in_doubt(world: World) -> None:
    step, when = world.rng.choice(
        [(Step.PREPARE_KAFKA, "after"), (Step.WRITE_STATE, "after"), (Step.COMMIT_DATABASE, "after")]
    )
    world.run(replace(world.job(blocks=1), at=step.name, when=when, deed="die"))


def kill_at(world: World, each: Round) -> None:
    """Runs an application once and kills the victim. Afterwards all processes are running again."""
    rng = world.rng
    blocks_before = 0 if each.step in RECOVERING else rng.randint(0, 1)
    job = replace(
        world.job(blocks=blocks_before + rng.randint(1, 2)),
        at=each.step.name,
        when=each.when,
        blocks_before=blocks_before,
        recovers=rng.random() < 0.5,
    )
    if each.victim == "application" and rng.random() < 0.7:
        world.run(replace(job, deed="die"))
        return
    if each.victim == "application":
        kill_under_way(world, job)
    else:
        kill_server(world, world.broker if each.victim == "broker" else world.database, job)


def kill_under_way(world: World, job: Job) -> None:
    """Kills the victim while the application is at the step or the following one."""
    world.first.begin(replace(job, deed="tell"))
    message = world.first.until("there")
    assert message["event"] == "there", f"it never came there: {message}"
    time.sleep(world.rng.uniform(0.0, 0.004))
    with suppress(ProcessLookupError):  # The process may already have exited.
        os.kill(message["pid"], signal.SIGKILL)
    world.first.until("ended")


def kill_server(world: World, victim: Broker | Database, job: Job) -> None:
    rng = world.rng
    absence = rng.choice(["blow", "restart", "missed", "missed longer"])
    job = replace(job, deed="tell" if absence == "blow" else "wait")
    if absence == "missed longer":
        job = replace(job, timeout_ms=IMPATIENT_MS)
    world.first.begin(job)
    if world.first.until("there")["event"] != "there":
        assert job.timeout_ms == IMPATIENT_MS, "it never came there"  # the machine was too busy for the short timeout
        return
    if absence == "blow":  # the application is at the step or at the following one
        time.sleep(rng.uniform(0.0, 0.004))
    victim.kill9()
    if absence.startswith("missed"):
        world.first.go_on()
        time.sleep(rng.uniform(0.0, MISSED_S) if absence == "missed" else MISSED_LONGER_S)
    victim.start()
    if absence == "restart":
        world.first.go_on()
    world.first.until("ended")


def test_a_second_instance_takes_over_while_the_first_one_sleeps_at_a_step(world: World) -> None:
    moments = list(product((*WRITING, *RECOVERING), ("before", "after")))
    world.rng.shuffle(moments)
    for number, (step, when) in enumerate(islice(cycle(moments), max(len(moments), ROUNDS // 10))):
        what = f"SEED={SEED} round {number}: asleep {when} {step.name}"
        began = len(world.events)
        if step in RECOVERING:
            leave_in_doubt(world)
        world.first.begin(replace(world.job(blocks=1), at=step.name, when=when, deed="wait", recovers=False))
        assert world.first.until("there")["event"] == "there", what
        holds_the_row = world.database.kind == SQLITE or (step, when) in [
            (Step.WRITE_STATE, "after"),
            (Step.COMMIT_DATABASE, "before"),
        ]
        world.second.begin(
            replace(world.job(blocks=2), recovers=False, timeout_ms=SHORT_MS if holds_the_row else LONG_MS)
        )
        world.second.until("ended")
        world.first.go_on()
        world.first.until("ended")
        world.recover()
        assert world.look() == [], (what, world.events[began:])
    assert [str(each) for each in anomalies(history(world))] == []


def test_a_state_that_is_not_stored_in_the_row_is_detected(world: World) -> None:
    """Checks that a planted bug in the recipe is found. With this bug, recovery aborts messages whose rows are
    committed."""
    if world.database.kind != SQLITE:
        pytest.skip("one database is enough to see it")
    world.run(replace(world.job(blocks=1), at=Step.COMMIT_DATABASE.name, when="after", deed="die", planted=True))
    assert world.look() == []
    world.recover()
    assert {each.kind for each in world.look()} == {Kind.DIVERGED}


def history(world: World) -> list[messages.Event]:
    """Returns the history that the messages should have: a transaction is committed if its rows exist."""
    rows = set(world.database.rows())
    events: list[messages.Event] = []
    for event in world.events:
        if isinstance(event, BlockStarted):
            for number, value in enumerate(event.values):
                place = (TOPIC, number % PARTITIONS)
                events.append(messages.RecordSent("application", place, value, Answer.UNKNOWN, event.transaction))
            is_committed = event.values[0] in rows
            events.append(messages.CommitRequested(event.transaction))
            events.append(messages.CommitAnswered(event.transaction, Answer.YES if is_committed else Answer.NO))
    found = list(committed_messages(world.broker.bootstrap))
    for index in range(PARTITIONS):
        place = (TOPIC, index)
        records = [(offset, value) for partition, offset, value in found if partition == index]
        events += [messages.ConsumerPositioned("reader", place, 0), messages.RecordsPolled("reader", place, records)]
        events.append(messages.ReachedEnd("reader", place))
    return events
