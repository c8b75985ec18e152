"""Tests that the protocol of the Spark sink (docs/spec/spark.md#s2) neither loses nor repeats records if a driver
crashes. The driver crashes at every step, and the query then continues in every possible way.

After each crash the output contains every decided batch once, no transaction is open, and readers do not have to wait.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest
import pytest_asyncio

from odradek.client import Admin, ClientError, PreparedTxnState, Producer
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import (
    DIGEST_OF_ALL_COLUMNS,
    LeaseLost,
    Ledger,
    LedgerEntry,
    PreparedPart,
    read_entries,
    undecided_entry,
)
from odradek.spark.names import Sink, TaskName, sink_of, task_of
from odradek.spark.options import SinkOptions
from odradek.spark.steps import CommitStep, ObserveTask, TaskStep
from odradek.spark.task import RunSealed, write_rows
from odradek.spark.two_phase import (
    ID_EXPIRATION_MS,
    CheckpointBehind,
    LedgerBehind,
    LeftOpen,
    NotExactlyOnce,
    ReplayDiffers,
    SinkError,
    TwoPhaseSink,
    Vote,
    VotesDoomed,
    futile_ids,
    wall_clock_ms,
)
from tests.clients.admin import create_topic
from tests.clients.conftest import SETTINGS
from tests.clients.own_producers import TWO_PHASE
from tests.support.broker_process import IS_KAFKA, Broker, new_broker
from tests.support.spark_queries import PARTITIONS, ROWS, Crash, Query, Stop, committed_values

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="no released Kafka keeps prepared transactions")

SEEDS = int(os.environ.get("SPARK_SEEDS", "6"))
STEPS = [
    (CommitStep.BEGUN, 0),
    (CommitStep.LEASED, 0),
    (CommitStep.LISTED, 0),
    (CommitStep.APPENDED, 0),
    (CommitStep.DECIDED, 0),
    (CommitStep.ENDING, 0),
    (CommitStep.ENDING, 1),
    (CommitStep.ENDED, 0),
    (CommitStep.FINISHED, 0),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS | TWO_PHASE) as running:
        yield running


@pytest_asyncio.fixture
async def query(broker: Broker, request: pytest.FixtureRequest) -> AsyncIterator[Query]:
    topic = await asyncio.to_thread(create_topic, broker.bootstrap, request.node.name, partitions=PARTITIONS)
    made = Query(broker.bootstrap, topic)
    yield made
    await made.close()


def named(step: tuple[CommitStep, int]) -> str:
    return f"{step[0].name}{step[1] or ''}".lower()


# --- Ways in which a query continues after its driver has stopped.


async def its_commit_raised(query: Query, stopped: tuple[CommitStep, int]) -> None:
    """Spark calls abort() with the same votes, and the query is then started again."""
    driver = query.driver(Stop(*stopped, crashes=True))
    with pytest.raises(Crash):
        await driver.write()
    await query.driver().write()


async def it_is_started_again(query: Query, stopped: tuple[CommitStep, int]) -> None:
    stop = Stop(*stopped)
    await query.driver(stop).write_until(stop)
    await query.driver().write()


async def a_second_driver_overtakes_it(query: Query, stopped: tuple[CommitStep, int]) -> None:
    """The second driver is one batch ahead when the old driver continues."""
    stop = Stop(*stopped)
    old, new = query.driver(stop), query.driver()
    await old.write_until(stop)
    await new.write()
    await new.write()
    await new.prepare()
    stop.go_on()
    assert isinstance(await old.ended(), SinkError | ClientError | None)
    with suppress(VotesDoomed):
        await new.commit()


async def it_goes_on_while_a_second_driver_prepares(query: Query, stopped: tuple[CommitStep, int]) -> None:
    stop = Stop(*stopped)
    old, new = query.driver(stop), query.driver()
    await old.write_until(stop)
    await new.prepare()
    stop.go_on()
    assert await old.ended() is None
    with suppress(VotesDoomed):
        await new.commit()


async def it_is_recovered(query: Query, stopped: tuple[CommitStep, int]) -> None:
    stop = Stop(*stopped)
    await query.driver(stop).write_until(stop)
    await query.recover()


async def it_is_recovered_and_goes_on(query: Query, stopped: tuple[CommitStep, int]) -> None:
    stop = Stop(*stopped)
    old = query.driver(stop)
    await old.write_until(stop)
    await query.recover()
    await query.recover()
    stop.go_on()
    assert isinstance(await old.ended(), VotesDoomed | NotExactlyOnce | None)


async def a_listener_comes_late(query: Query, stopped: tuple[CommitStep, int]) -> None:
    """A listener recovers the previous run, which has ended, while the next run is active."""
    stop = Stop(*stopped)
    old, new = query.driver(stop), query.driver()
    await old.write_until(stop)
    await new.prepare()
    await query.recover(old.run)
    await new.commit()


WAYS: list[Callable[[Query, tuple[CommitStep, int]], Awaitable[None]]] = [
    its_commit_raised,
    it_is_started_again,
    a_second_driver_overtakes_it,
    it_goes_on_while_a_second_driver_prepares,
    it_is_recovered,
    it_is_recovered_and_goes_on,
    a_listener_comes_late,
]


@pytest.mark.slow
@pytest.mark.parametrize("stopped", STEPS, ids=named)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_row_is_lost_or_duplicated(
    query: Query, stopped: tuple[CommitStep, int], way: Callable[[Query, tuple[CommitStep, int]], Awaitable[None]]
) -> None:
    await query.driver().write()
    await way(query, stopped)
    await query.check()


async def test_a_batch_without_rows_writes_nothing(query: Query) -> None:
    driver = query.driver()
    for batch in (0, 1, 0):
        await driver.sink.commit([], batch)
    assert query.sink.name not in await read_entries(query.brokers)


async def test_a_batch_without_rows_aborts_the_open_transactions_of_an_earlier_run(query: Query) -> None:
    driver = query.driver()
    await query.prepare("an earlier run", 0, 0)
    await driver.sink.commit([], 0)
    assert await driver.sink.open_ids() == []


async def test_a_finished_batch_is_noted_and_its_replay_asks_nothing(query: Query) -> None:
    driver = query.driver()
    await driver.write()
    entry = (await read_entries(query.brokers))[query.sink.name]
    assert entry.is_finished
    steps: list[CommitStep] = []

    async def observe(step: CommitStep, number: int) -> None:
        steps.append(step)

    replay = query.driver(observe)
    await replay.prepare(batch=0)
    await replay.commit()
    assert CommitStep.ENDING not in steps
    await query.check()


async def test_the_losers_of_retries_are_aborted_by_the_decision(query: Query) -> None:
    driver = query.driver()
    await query.prepare(driver.run, 0, 0, attempt=0)
    await query.prepare(driver.run, 0, 1, attempt=7)
    await driver.write()
    async with Admin(bootstrap_servers=query.bootstrap) as admin:
        pattern = query.sink.pattern()
        assert await admin.list_transactions(states=["Ongoing"], transactional_id_pattern=pattern) == []
    await query.check()


async def test_an_older_checkpoint_is_refused(query: Query) -> None:
    driver = query.driver()
    for _ in range(3):
        await driver.write()
    old = query.driver()
    await old.prepare(batch=1)
    with pytest.raises(CheckpointBehind, match="batch 2 is already committed"):
        await old.commit()
    await query.check()


@pytest.mark.parametrize("kept", [0, 1], ids=["topic made anew", "older copy"])
async def test_a_ledger_that_lost_a_decision_of_the_driver_is_refused(query: Query, kept: int) -> None:
    """With such a ledger, rows of committed batches could be lost without an error."""
    driver = query.driver()
    for batch in range(3):
        await driver.write()
        if batch == 0:
            first = (await read_entries(query.brokers, query.sink))[query.sink.name]
    behind = Ledger(query.brokers, query.sink)
    newest = await behind.acquire_lease()
    await (behind.write(first) if kept else behind.erase())
    await driver.prepare()
    with pytest.raises(
        LedgerBehind, match="batch 2 was committed, .* ends with batch 0:" if kept else "contains no batch:"
    ):
        await driver.commit()
    await behind.acquire_lease()
    await behind.write(newest)
    await behind.release()
    await driver.write()
    await query.check()


async def test_a_replay_with_another_number_of_rows_fails(query: Query) -> None:
    await query.driver().write()
    replay = query.driver()
    await replay.prepare(batch=0)
    replay.votes = replay.votes[:1]
    with pytest.raises(ReplayDiffers, match="6 rows, but its replay has 3"):
        await replay.commit()
    await query.check()


async def test_a_replay_with_other_rows_is_logged(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    await query.driver().write()
    replay = query.driver()
    await replay.prepare(batch=0)
    first, second = replay.votes
    await replay.sink.commit([first, replace(second, digest=99)], 0)
    assert "not deterministic" in caplog.text
    await query.check()


async def test_the_error_names_a_transaction_that_an_operator_ended_after_the_decision(query: Query) -> None:
    stop = Stop(CommitStep.DECIDED)
    driver = query.driver(stop)
    await driver.write_until(stop)
    lost = driver.votes[1]
    async with Admin(bootstrap_servers=query.bootstrap) as admin:
        await admin.force_terminate_transaction(lost.transactional_id)
    stop.go_on()
    error = await driver.ended()
    assert isinstance(error, NotExactlyOnce)
    assert lost.transactional_id in str(error)
    assert str(lost.state) in str(error)


@pytest.mark.slow  # runs in `make test-slow`
async def test_a_broker_that_is_killed_after_the_decision_finishes_it_later(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS | TWO_PHASE) as broker:
        topic = await asyncio.to_thread(create_topic, broker.bootstrap, "out", partitions=PARTITIONS)
        query, stop = Query(broker.bootstrap, topic), Stop(CommitStep.DECIDED)
        driver = query.driver(stop)
        await driver.write_until(stop)
        await asyncio.to_thread(broker.kill9)
        stop.go_on()
        await asyncio.to_thread(broker.start)
        assert await driver.ended() is None
        await driver.write()
        await query.check()
        await query.close()


@pytest.mark.slow  # runs in `make test-slow`
@pytest.mark.parametrize("hours", [0, 1])
async def test_a_decision_whose_ids_the_broker_has_forgotten_is_finished_after_an_hour(
    tmp_path_factory: pytest.TempPathFactory, hours: int
) -> None:
    """The broker never removes a prepared transaction. It removes a completed transaction within the hour only if
    expiration rules require it, as in this test."""
    settings = SETTINGS | TWO_PHASE | {"odradek.transactional.id.expiration.rules": "spark.=2000"}
    with new_broker(tmp_path_factory.mktemp("broker") / "data", settings) as broker:
        topic = await asyncio.to_thread(create_topic, broker.bootstrap, "out", partitions=PARTITIONS)
        query, stop = Query(broker.bootstrap, topic), Stop(CommitStep.ENDED)
        await query.driver(stop).write_until(stop)
        replay = query.driver(clock_ms=lambda: wall_clock_ms() + hours * ID_EXPIRATION_MS)
        await replay.prepare(batch=0)
        async with Admin(bootstrap_servers=broker.bootstrap) as admin:
            pattern = query.sink.pattern()
            async with asyncio.timeout(30):
                while len(await admin.list_transactions(transactional_id_pattern=pattern)) > len(replay.votes):
                    await asyncio.sleep(0.05)
        if hours:
            await replay.commit()
            await query.driver().write()
            await query.check()
        else:
            with pytest.raises(NotExactlyOnce):
                await replay.sink.commit(replay.votes, 0)
        await query.close()


# --- Failed writes end the transactions of the run's tasks, whether or not the tasks have answered.


async def test_an_abort_also_ends_the_transactions_of_tasks_without_a_response(query: Query) -> None:
    """One task has voted, one has prepared but cannot answer, and one is still writing."""
    driver = query.driver()
    vote = await query.prepare(driver.run, 0, 0)
    await query.prepare(driver.run, 0, 1)
    async with Producer(
        bootstrap_servers=query.bootstrap,
        transactional_id=query.sink.task_id(driver.run, 0, 1, 1, "writes"),
        two_phase_commit=True,
        linger_ms=0,
    ) as writing:
        await writing.init_transactions()
        await writing.begin_transaction()
        await (await writing.send(query.topic, b"first", partition=1))
        assert not await driver.sink.abort([vote], 0, driver.run)
        with pytest.raises(ClientError):
            await (await writing.send(query.topic, b"second", partition=1))
    assert await driver.sink.open_ids() == []
    assert await committed_values(query.bootstrap, query.topic) == []
    assert query.sink.name not in await read_entries(query.brokers)


@pytest.mark.parametrize("ends", ["abort", "commit"])
@pytest.mark.parametrize("step", list(TaskStep), ids=lambda step: step.name.lower())
async def test_no_task_of_an_ended_write_leaves_a_transaction_open(query: Query, step: TaskStep, ends: str) -> None:
    """The task pauses at one of its steps while the driver ends the write, and then continues. In the `commit` case,
    another attempt at the same partition has succeeded."""
    driver = query.driver()
    votes = [await query.prepare(driver.run, 0, partition) for partition in range(PARTITIONS)]
    reached, goes_on = threading.Event(), threading.Event()

    def observe(at: TaskStep) -> None:
        if at is step:
            reached.set()
            goes_on.wait(60)

    task = asyncio.create_task(asyncio.to_thread(write_one_row, query, driver.run, observe))
    await asyncio.to_thread(reached.wait, 60)
    if ends == "commit":
        await driver.sink.commit(votes, 0, run=driver.run)
    else:
        await driver.sink.abort(votes, 0, driver.run)
    goes_on.set()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if step in (TaskStep.BEGUN, TaskStep.NAMED):
        assert isinstance(outcome, RunSealed)
    assert await driver.sink.open_ids() == []
    values = await committed_values(query.bootstrap, query.topic)
    assert b"row" not in values
    assert len(values) == (len(votes) * ROWS if ends == "commit" else 0)


def write_one_row(query: Query, run: str, observe: ObserveTask) -> Vote | None:
    options = SinkOptions.read({"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic}, is_stream=False)
    batch = pa.RecordBatch.from_pydict({"value": ["row"]})
    return write_rows(options, query.sink, run=run, batch=0, partition=0, attempt=1, rows=[batch], observe=observe)


async def test_the_abort_of_one_run_leaves_another_run_alone(query: Query) -> None:
    failed, other = query.driver(), query.driver()
    await failed.prepare()
    await other.prepare()
    await failed.sink.abort([], 0, failed.run)
    await other.commit()
    await query.check()


async def test_the_error_names_open_transactions_and_the_command_that_ends_them(
    query: Query, broker: Broker, unused_tcp_port: int
) -> None:
    driver = query.driver()
    await driver.prepare()
    nowhere = Brokers(f"localhost:{unused_tcp_port}", timeout_ms=100, bootstrap_timeout_ms=100)
    with pytest.raises(LeftOpen) as raised:
        await TwoPhaseSink(nowhere, query.sink).abort(driver.votes, 0, driver.run)
    assert all(vote.transactional_id in str(raised.value) for vote in driver.votes)
    assert f"odradek spark recover {query.sink.name} --bootstrap-server {nowhere.bootstrap_servers}" in str(
        raised.value
    )
    with pytest.raises(LeftOpen, match=re.escape(query.sink.task_prefix(driver.run))):
        await TwoPhaseSink(nowhere, query.sink).abort([], 0, driver.run)
    await driver.sink.abort([], 0, driver.run)
    assert await driver.sink.open_ids() == []


async def test_transactions_that_ended_before_the_decision_are_not_decided(query: Query) -> None:
    """An operator may have ended some of the transactions. If the driver then decided to commit, these transactions'
    rows would be lost."""
    driver = query.driver()
    await driver.prepare()
    ended = driver.votes[1]
    async with Admin(bootstrap_servers=query.bootstrap) as admin:
        await admin.force_terminate_transaction(ended.transactional_id)
    with pytest.raises(VotesDoomed, match=re.escape(ended.transactional_id)):
        await driver.commit()
    await driver.write()
    await query.check()


async def test_a_batch_that_fails_repeatedly_does_not_grow_the_ledger(query: Query) -> None:
    await query.driver().write()
    for _ in range(3):
        driver = query.driver()
        await driver.prepare()
        await driver.sink.abort(driver.votes, driver.batch, driver.run)
    assert (await read_entries(query.brokers))[query.sink.name].doomed == ()
    await query.driver().write()
    await query.check()


async def test_a_replay_ends_transactions_that_an_earlier_attempt_of_its_batch_left_open(query: Query) -> None:
    """A failed attempt of the deciding run opens its transaction only after the decision."""
    first = query.driver()
    await first.write()
    await query.prepare(first.run, 0, 0, attempt=7)
    replay = query.driver()
    await replay.prepare(batch=0)
    await replay.commit()
    assert await replay.sink.open_ids() == []
    await query.check()


async def test_a_replay_leaves_the_next_batch_of_another_driver_alone(query: Query) -> None:
    await query.driver().write()
    replay, ahead = query.driver(), query.driver()
    await replay.prepare(batch=0)
    await ahead.prepare(batch=1)
    await replay.commit()
    await ahead.commit()
    await query.check()


def test_only_batches_up_to_the_decided_one_are_futile() -> None:
    sink = Sink("spark", "q")
    decided, lost, next_one = (sink.task_id("run", batch, 0, 0, str(batch)) for batch in (3, 2, 4))
    part = PreparedPart(decided, PreparedTxnState(1, 1))
    entry = replace(undecided_entry(sink), batch=3, parts=(part,))
    assert futile_ids(entry, [decided, lost, next_one]) == {lost}


async def test_a_key_that_was_first_written_without_rows_is_remembered(query: Query) -> None:
    await query.driver().sink.commit([], 0, kept_ms=DAY_MS)
    again = query.driver()
    await again.sink.commit([], 0, kept_ms=DAY_MS)
    await again.prepare(batch=0)
    with pytest.raises(ReplayDiffers, match="0 rows, but its replay has 6"):
        await again.sink.commit(again.votes, 0, kept_ms=DAY_MS)
    assert await again.sink.open_ids() == []
    assert await committed_values(query.bootstrap, query.topic) == []


@pytest.mark.parametrize(("first_digest", "is_same"), [(5, True), (6, False), (None, True)])
async def test_a_key_of_an_earlier_release_is_compared_by_the_digest_of_that_release(
    query: Query, first_digest: int | None, is_same: bool
) -> None:
    """A record without `digestVersion` has a digest of keys and values, here 5. None means that the digests cannot be
    compared."""
    writer = query.driver()
    await writer.prepare(batch=0)
    await writer.sink.commit(writer.votes, 0, kept_ms=DAY_MS)
    ledger = Ledger(query.brokers, query.sink)
    entry = await ledger.acquire_lease()
    assert entry.digest_version == DIGEST_OF_ALL_COLUMNS
    before = json.loads(replace(entry, digest=5).to_json())
    del before["digestVersion"]
    await ledger.write(LedgerEntry.from_json(json.dumps(before).encode()))
    await ledger.release()
    again = query.driver()
    await again.prepare(batch=0)
    digests = (first_digest, None if first_digest is None else 0)
    votes = [replace(vote, first_digest=each) for vote, each in zip(again.votes, digests, strict=True)]
    if is_same:
        await again.sink.commit(votes, 0, kept_ms=DAY_MS)
    else:
        with pytest.raises(ReplayDiffers, match="other rows"):
            await again.sink.commit(votes, 0, kept_ms=DAY_MS)
    assert (await read_entries(query.brokers))[query.sink.name].digest == 5
    await query.check()


DAY_MS = 86_400_000


async def test_a_key_is_known_until_it_expires(query: Query) -> None:
    writer = query.driver()
    await writer.prepare(batch=0)
    await writer.sink.commit(writer.votes, 0, kept_ms=DAY_MS)
    for days, is_written in ((0, False), (1, True)):
        again = query.driver(clock_ms=lambda days=days: wall_clock_ms() + days * DAY_MS)  # type: ignore[misc]
        await again.prepare(batch=0)
        await again.sink.commit(again.votes, 0, kept_ms=DAY_MS)
        entry = (await read_entries(query.brokers))[query.sink.name]
        assert (entry.parts == tuple(vote.part for vote in again.votes)) == is_written


async def test_a_key_is_for_the_same_rows(query: Query) -> None:
    writer, other = query.driver(), query.driver()
    for driver in (writer, other):
        await driver.prepare(batch=0)
    await writer.sink.commit(writer.votes, 0, kept_ms=DAY_MS)
    first, second = other.votes
    with pytest.raises(ReplayDiffers, match="other rows"):
        await other.sink.commit([first, replace(second, digest=99)], 0, kept_ms=DAY_MS)
    await query.check()


async def test_expired_keys_leave_the_ledger(query: Query) -> None:
    old = query.driver()
    await old.prepare(batch=0)
    await old.sink.commit(old.votes, 0, kept_ms=DAY_MS)
    young = Query(query.bootstrap, query.topic)
    writer = young.driver()
    await writer.sink.forget_expired()
    assert query.sink.name in await read_entries(query.brokers)
    later = young.driver(clock_ms=lambda: wall_clock_ms() + DAY_MS)
    await later.sink.forget_expired()
    assert query.sink.name not in await read_entries(query.brokers)
    await young.close()


async def test_a_sink_that_is_forgotten_leaves_no_record(query: Query) -> None:
    driver = query.driver()
    await driver.write()
    await driver.sink.forget()
    assert query.sink.name not in await read_entries(query.brokers)


# --- Sinks that lack one rule of the protocol. The checks above must detect this.


class ObedientAbort(TwoPhaseSink):
    """Aborts every transaction that Spark passes to `abort`, without reading the ledger."""

    async def abort(self, votes: Sequence[Vote], batch: int, run: str | None = None) -> bool:
        async with self._brokers.admin() as admin:
            for vote in votes:
                await admin.end_transaction(vote.transactional_id, vote.state, committed=False)
        return False


class SweepWithoutDoom(TwoPhaseSink):
    """Aborts every open transaction that is not part of its own decision."""

    async def _finish(self, admin: Admin, entry: LedgerEntry) -> None:
        await super()._finish(admin, entry)
        await self._observe(CommitStep.FINISHED, 1)
        decided = {part.transactional_id for part in entry.parts}
        await self._abort(admin, set(await self._open_ids(admin)) - decided)


async def test_an_abort_that_ignores_the_decision_loses_a_decided_batch(query: Query) -> None:
    with pytest.raises(Crash):
        await query.driver(Stop(CommitStep.DECIDED, crashes=True), ObedientAbort).write()
    with pytest.raises(NotExactlyOnce):
        await query.check()


async def test_a_sweep_without_the_doomed_list_loses_the_decision_of_a_second_driver(query: Query) -> None:
    """The second driver has checked that its transactions are open, but has not decided."""
    sweeps, decides = Stop(CommitStep.FINISHED, 1), Stop(CommitStep.LISTED)
    old, new = query.driver(sweeps, SweepWithoutDoom), query.driver(decides, SweepWithoutDoom)
    await old.write_until(sweeps)
    query.next_batch = 1
    await new.write_until(decides)
    sweeps.go_on()
    assert await old.ended() is None
    decides.go_on()
    assert isinstance(await new.ended(), NotExactlyOnce)


# --- Random orders.


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_drivers_and_recoveries_in_any_order(query: Query, seed: int) -> None:
    rng = random.Random(seed)
    stops: list[tuple[Stop, asyncio.Task[None]]] = []
    runs: list[str] = []
    for _ in range(10):
        match rng.choice(["run", "stop", "stop", "go on", "recover", "listener"]):
            case "run":
                await _write(query, runs, None)
            case "stop":
                stop = Stop(*rng.choice(STEPS), crashes=rng.random() < 0.3)
                work = asyncio.create_task(_write(query, runs, stop))
                stops.append((stop, work))
                reached = asyncio.create_task(stop.reached.wait())
                await asyncio.wait({reached, work}, return_when=asyncio.FIRST_COMPLETED)
                reached.cancel()
            case "go on" if stops:
                stop, work = stops.pop(rng.randrange(len(stops)))
                stop.go_on()
                await work
            case "recover":
                await _recover(query, None)
            case "listener" if runs:
                await _recover(query, rng.choice(runs))
    for stop, work in stops:
        stop.go_on()
        await work
    await query.driver().write()
    await query.check()


async def _write(query: Query, runs: list[str], stop: Stop | None) -> None:
    driver = query.driver() if stop is None else query.driver(stop)
    runs.append(driver.run)
    with suppress(SinkError, LeaseLost, ClientError, Crash):
        await driver.write()


async def _recover(query: Query, run: str | None) -> None:
    with suppress(SinkError, LeaseLost, ClientError):
        await query.recover(run)


def test_names_of_sinks_do_not_run_into_each_other() -> None:
    plain, tricky = Sink("spark", "a"), Sink("spark", "a.t.x")
    name = tricky.task_id("run-id-0", 3, 1, 0, "r")
    assert not re.fullmatch(plain.pattern(), name)
    assert re.fullmatch(tricky.pattern(), name)
    assert task_of(name) == TaskName(tricky.name, "run-id-0", 3, 1, 0)
    assert task_of(tricky.ledger_id) is None
    assert sink_of(tricky.name) == tricky
