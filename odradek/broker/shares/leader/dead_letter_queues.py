"""Copies the records that leaders have stored as ARCHIVING into the dead-letter queues of their share groups
(KIP-1191).

    leader: stored as ARCHIVING → here: read, write into the queue → leader: stored as ARCHIVED

Copies are best effort. If a copy cannot be written, the record becomes ARCHIVED without a copy and is counted and
logged. If the broker crashes between the two stored states, the copy may be written twice, because the next leader
finds the records still ARCHIVING. No request waits for a copy. Share partitions take turns, and each turn copies at
most `RECORDS_PER_TURN` records, so that a large number of rejected records does not delay clients. Source:
docs/spec/dead-letter-queues.md.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from odradek.broker.configuration.topic_settings import DEAD_LETTER_GROUP_ENABLE, TOPIC_SETTINGS
from odradek.broker.runtime.waiting import Deferred, sleep, start_coroutine
from odradek.broker.shares.core.dead_letters import (
    NO_CONTENT,
    QUEUE_CONFIGS,
    Content,
    DeadLetter,
    QueueRules,
    Source,
    UnusableQueue,
    batches_within,
    check_queue,
    copy_of,
    subtract_letters,
)
from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.state import (
    UNDECIDED_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    StateBatch,
)
from odradek.broker.shares.core.tables import RecordState
from odradek.broker.shares.leader.live_partition import LiveSharePartition, SharePartitionPhase
from odradek.protocol.batch_header import batches, crc_ok
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.records import NewRecord, build_batch, records_of
from odradek.storage.log import Origin

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.topics import NewTopic, TopicResult
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.runtime.workers import JobResult, Workers
    from odradek.broker.shares.leader.group_settings import ShareGroupSettings
    from odradek.storage.log import Log

log = logging.getLogger("odradek.shares")

RECORDS_PER_TURN: Final = 100
READ_BYTES: Final = 1024 * 1024  # number of bytes per read from the source log
PRODUCE_VERSION: Final = 13  # copies are validated like the records of a Produce request with this version
ATTEMPTS: Final = 5
FIRST_RETRY_MS: Final = 1_000  # pause before the first retry; doubled for each later retry
RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
COMPLAINT_MS: Final = 60_000  # minimum time between two log messages with the same group and reason
# Maximum number of remembered log messages. A message is only suppressed while it is remembered.
MAX_REMEMBERED_MESSAGES: Final = 1_000

T = TypeVar("T")


class TopicMaker(Protocol):
    def create(self, topics: Sequence[NewTopic]) -> Deferred[list[TopicResult]]: ...


class PartitionRegistry(Protocol):
    def get(self, topic: str, index: int) -> Partition: ...


@dataclass(slots=True)
class DeadLetterCounts:
    """The counters of one share group since this broker process started.

    records          copies written
    writes           batches of copies that the broker tried to write
    failed_writes    batches that could not be written, even after retries
    uncopied         records that were archived without a copy
    """

    records: int = 0
    writes: int = 0
    failed_writes: int = 0
    uncopied: int = 0


class _CopyJob:
    """One share partition's queued dead letters. Each state epoch has a separate job.

    waiting    letters that have not been copied yet
    under_way  letters that are being copied
    """

    __slots__ = ("key", "leader_epoch", "owner", "partition", "state_epoch", "under_way", "waiting")

    def __init__(self, owner: LiveSharePartition) -> None:
        self.key = owner.key
        self.partition = owner.partition
        self.state_epoch = owner.state_epoch
        self.leader_epoch = owner.leader_epoch
        self.owner = owner
        self.waiting: deque[DeadLetter] = deque()
        self.under_way: Sequence[DeadLetter] = ()

    def add(self, owner: LiveSharePartition, letters: Sequence[DeadLetter]) -> None:
        """Queues letters. If the share partition has been loaded again, letters that are already queued or being copied
        are ignored."""
        if owner is not self.owner:
            self.owner, self.partition, self.leader_epoch = owner, owner.partition, owner.leader_epoch
            letters = subtract_letters(letters, (*self.waiting, *self.under_way))
        self.waiting.extend(letters)

    def next_batch(self) -> Sequence[DeadLetter]:
        """Removes and returns the next letters from the queue. They are copied and archived together."""
        together = [self.waiting.popleft()]
        count = together[0].record_count
        while self.waiting and count + self.waiting[0].record_count <= RECORDS_PER_TURN:
            together.append(self.waiting.popleft())
            count += together[-1].record_count
        return together


class _Contents(NamedTuple):
    """The keys and values read for the offsets from `first_offset` to `last_offset`. Records that could not be read are
    missing."""

    first_offset: int
    last_offset: int
    by_offset: Mapping[int, Content]


NOTHING_READ: Final = _Contents(0, -1, {})


class DeadLetterQueues:
    def __init__(
        self,
        image: MetadataImage,
        settings: ShareGroupSettings,
        clock: Clock,
        timers: Timers,
        workers: Workers,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        rules: Callable[[], QueueRules],
        partitions: PartitionRegistry,
        topics: TopicMaker,
        persister: Persister,
        must_sync: Callable[[SharePartitionKey], bool],
        find: Callable[[SharePartitionKey], LiveSharePartition | None],
    ) -> None:
        """Creates the dead-letter queues of one broker.

        must_sync  returns whether state writes of a share partition wait for an fdatasync; if they do, the copies also
                   wait
        find       returns the share partition with this key if it is in memory
        """
        self._image = image
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._workers = workers
        self._call_soon = call_soon
        self._rules = rules
        self._partitions = partitions
        self._topics = topics
        self._persister = persister
        self._must_sync = must_sync
        self._find = find
        self._copying: dict[tuple[SharePartitionKey, int], _CopyJob] = {}
        self._turns: deque[Deferred[None]] = deque()
        self._is_stopped = False
        # Group id and reason → the time of the last log message, and the number of uncopied records since then.
        self._complaints: dict[tuple[str, str], tuple[int, int]] = {}
        self.counts: dict[str, DeadLetterCounts] = {}  # by group id

    def copy_letters(self, live: LiveSharePartition, letters: Sequence[DeadLetter]) -> None:
        """Starts copying these records, which must already be stored as ARCHIVING. They are archived afterwards."""
        if self._is_stopped:
            return
        life = live.key, live.state_epoch
        copying = self._copying.get(life)
        if copying is not None:
            copying.add(live, letters)
            return
        copying = self._copying[life] = _CopyJob(live)
        copying.add(live, letters)
        start_coroutine(self._copy_all(copying))

    def forget_group(self, group_id: str) -> None:
        """Removes a deleted group's counters."""
        self.counts.pop(group_id, None)

    def stop(self) -> None:
        """Stops copying. Records without a copy remain stored as ARCHIVING and are copied after the broker's next
        start."""
        self._is_stopped = True

    # Taking turns.

    def _wait_for_turn(self) -> Deferred[None]:
        """Waits for the caller's turn. Callers get their turns in order, each in a separate iteration of the event
        loop."""
        turn: Deferred[None] = Deferred()
        self._turns.append(turn)
        if len(self._turns) == 1:
            self._call_soon(self._next_turn)
        return turn

    def _next_turn(self) -> None:
        turn = self._turns[0]
        turn.resolve(None)
        # The turn is removed only after `resolve`, so a turn that `resolve` adds finds the list non-empty and does not
        # schedule another `_next_turn`.
        self._turns.popleft()
        if self._turns:
            self._call_soon(self._next_turn)

    # One share partition.

    async def _copy_all(self, copying: _CopyJob) -> None:
        while copying.waiting:
            letters = copying.under_way = copying.next_batch()
            await self._wait_for_turn()
            if self._is_stopped:
                return
            await self._copy(copying, letters)
            if self._is_stopped:
                return
            await self._archive(copying, letters)
            copying.under_way = ()
        del self._copying[copying.key, copying.state_epoch]

    async def _copy(self, copying: _CopyJob, letters: Sequence[DeadLetter]) -> None:
        """Writes copies of these records. If a write fails, counts and logs the records that have no copy."""
        group_id = copying.key.group_id
        counts = self._counts(group_id)
        before = counts.records
        try:
            await self._write_copies(copying, letters, counts)
        except KafkaError as error:
            reason = error.message or error.code.name
        except Exception:
            log.exception("dead letters of %s could not be copied. This is a bug", copying.key)
            reason = "see the error above"
        else:
            return
        if not self._is_stopped:
            uncopied = sum(each.record_count for each in letters) - (counts.records - before)
            counts.uncopied += uncopied
            self._warn_uncopied(group_id, reason, uncopied)

    async def _write_copies(self, copying: _CopyJob, letters: Sequence[DeadLetter], counts: DeadLetterCounts) -> None:
        key = copying.key
        name = self._settings.dead_letter_topic(key.group_id)
        self._check(name)
        topic = self._image.topics_by_id.get(key.topic_id)
        source = Source(id_text(key.topic_id) if topic is None else topic.name, key.partition, key.group_id)
        is_copied_whole = self._settings.copies_dead_letters(key.group_id)
        last_of_all = letters[-1].last_offset
        contents = NOTHING_READ
        copies: list[NewRecord] = []
        for letter in letters:
            # The records of a whole tracked batch are read together, so none of them are read if the first has been
            # deleted.
            is_below_log_start = letter.is_whole and letter.first_offset < copying.partition.log.log_start_offset
            for offset in range(letter.first_offset, letter.last_offset + 1):
                content = NO_CONTENT
                if is_copied_whole and not is_below_log_start:
                    if not contents.first_offset <= offset <= contents.last_offset:
                        contents = await self._read(copying.partition, offset, max(letter.last_offset, last_of_all))
                    content = contents.by_offset.get(offset, NO_CONTENT)
                copies.append(copy_of(source, offset, letter, content, self._clock.now_ms()))
                if len(copies) >= RECORDS_PER_TURN or offset == contents.last_offset:
                    await self._write(name, key.partition, copies, key, counts)
                    copies = []
                    await self._wait_for_turn()
        await self._write(name, key.partition, copies, key, counts)

    async def _archive(self, copying: _CopyJob, letters: Sequence[DeadLetter]) -> None:
        """Stores the records as ARCHIVED: through the share partition if it is in memory, otherwise directly in the
        share coordinator."""
        live = self._find(copying.key)
        if live is not None and live.phase is SharePartitionPhase.LOADING:
            try:
                await live.when_loaded()
            except KafkaError:
                live = None
        if live is not None and live.phase is SharePartitionPhase.ACTIVE and live.state_epoch == copying.state_epoch:
            live.archive_copied(letters)
            return
        archived = [
            StateBatch(each.first_offset, each.last_offset, RecordState.ARCHIVED.value, each.delivery_count)
            for each in letters
        ]
        write = StateWrite(UNDECIDED_START_OFFSET, UNKNOWN_COUNT, archived)
        answer = self._persister.write(copying.key, copying.state_epoch, copying.leader_epoch, write)
        answer.when_done(partial(_log_unstored_archive, copying.key))

    # Reading the source.

    async def _read(self, partition: Partition, first_offset: int, last_offset: int) -> _Contents:
        """Reads keys and values in a worker thread. The result covers `first_offset`, but may end before
        `last_offset`."""
        return await self._in_thread(partial(read_contents, partition.log, first_offset, last_offset))

    async def _in_thread(self, job: Callable[[], T]) -> T:
        done: Deferred[JobResult[T]] = Deferred()
        self._workers.run(job, done.resolve)
        return (await done).result()

    # Writing the copies.

    async def _write(
        self,
        name: str,
        source_index: int,
        copies: Sequence[NewRecord],
        key: SharePartitionKey,
        counts: DeadLetterCounts,
    ) -> None:
        if not copies:
            return
        max_bytes = (await self._queue_partition(name, source_index)).log.config.max_message_bytes
        cut: Iterator[list[NewRecord]] = batches_within(copies, max_bytes)
        while True:
            try:
                batch = next(cut, None)
            except KafkaError:
                counts.writes += 1
                counts.failed_writes += 1
                raise
            if batch is None:
                return
            await self._write_batch(name, source_index, batch, key, counts)

    async def _write_batch(
        self, name: str, source_index: int, batch: Sequence[NewRecord], key: SharePartitionKey, counts: DeadLetterCounts
    ) -> None:
        """Writes one batch of copies. Retries if the error could be temporary."""
        counts.writes += 1
        for attempt in range(ATTEMPTS):
            partition = await self._queue_partition(name, source_index)
            try:
                await self._append(partition, batch, must_sync=self._must_sync(key))
            except KafkaError as error:
                if error.code not in RETRIABLE or attempt == ATTEMPTS - 1:
                    counts.failed_writes += 1
                    raise
                await sleep(self._timers, FIRST_RETRY_MS << attempt)
            else:
                counts.records += len(batch)
                return

    async def _append(self, partition: Partition, batch: Sequence[NewRecord], *, must_sync: bool) -> None:
        """Appends one batch and waits until it is as durable as the settings of the queue and the share partition's
        state require."""
        # The module is imported here because few brokers copy dead letters.
        from odradek.storage.validation import check_produced, is_cheap

        if self._is_stopped:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
        now_ms, records, rules = self._clock.now_ms(), build_batch(batch), partition.rules
        check = partial(check_produced, records, rules, now_ms, PRODUCE_VERSION)
        accepted = check() if is_cheap(records, rules) else await self._in_thread(check)
        if partition.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        written: Deferred[None] = Deferred()
        appended = partition.append(
            accepted.batch,
            origin=Origin.CLIENT,
            now_ms=now_ms,
            on_done=partial(_resolve_or_fail, written),
            header=accepted.header,
        )
        await written
        if must_sync:
            durable: Deferred[None] = Deferred()
            partition.when_durable(appended.last_offset + 1, partial(_resolve_or_fail, durable), must_sync=True)
            await durable

    # The queue.

    def _check(self, name: str) -> None:
        """Raises UnusableQueue unless the broker may write to the topic, or may create it and then write to it."""
        if not self._image.has_dead_letter_queues:
            raise UnusableQueue("share.version is below 2")
        is_marked: bool | None = None
        if name in self._image.topics:
            text = self._image.topic_configs(name).get(DEAD_LETTER_GROUP_ENABLE)
            is_marked = TOPIC_SETTINGS[DEAD_LETTER_GROUP_ENABLE].parse("false" if text is None else text) is True
        check_queue(name, is_marked, self._rules())

    async def _queue_partition(self, name: str, source_index: int) -> Partition:
        """Returns the queue's partition for copies from this source partition. Creates the topic if it does not exist
        and may be created.

        Raises UnusableQueue, or an error from the partition registry.
        """
        for attempt in range(ATTEMPTS):
            self._check(name)
            topic = self._image.topics.get(name)
            if topic is not None:
                return self._partitions.get(name, source_index % len(topic.partitions))
            try:
                await self._create(name)
            except KafkaError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    continue  # another request has created the topic
                if error.code not in RETRIABLE:
                    raise UnusableQueue(f"the topic {name!r} cannot be created: {error}") from None
                await sleep(self._timers, FIRST_RETRY_MS << attempt)
        raise UnusableQueue(f"the topic {name!r} cannot be created: {ATTEMPTS} attempts have failed")

    async def _create(self, name: str) -> None:
        # The class is imported here for the reason given in odradek.broker.metadata.topic_creation.
        from odradek.broker.metadata.topics import NewTopic

        (result,) = await self._topics.create([NewTopic(name, configs=QUEUE_CONFIGS)])
        if result.error is not None:
            raise result.error
        log.info("created the dead-letter topic %r", name)

    # Reporting.

    def _counts(self, group_id: str) -> DeadLetterCounts:
        counts = self.counts.get(group_id)
        if counts is None:
            counts = self.counts[group_id] = DeadLetterCounts()
        return counts

    def _warn_uncopied(self, group_id: str, reason: str, uncopied: int) -> None:
        """Logs that records were archived without a copy, at most once a minute for the same group and reason."""
        now_ms = self._clock.now_ms()
        logged_ms, since = self._complaints.get((group_id, reason), (now_ms - COMPLAINT_MS, 0))
        uncopied += since
        if now_ms - logged_ms < COMPLAINT_MS:
            self._complaints[group_id, reason] = logged_ms, uncopied
            return
        if len(self._complaints) >= MAX_REMEMBERED_MESSAGES:
            self._complaints.clear()
        self._complaints[group_id, reason] = now_ms, 0
        log.error(
            "%d records of the share group %r were archived without a copy in its dead-letter queue: %s",
            uncopied,
            group_id,
            reason,
        )


def read_contents(source: Log, first_offset: int, last_offset: int) -> _Contents:
    """Reads the keys and values of records, beginning at `first_offset`, in a single read. Must be called in a worker
    thread.

    Records that were removed or cannot be read are missing from the result; their copies contain only headers.
    """
    found: dict[int, Content] = {}
    reached = first_offset
    try:
        result = source.reader.read_cold(first_offset, max_bytes=READ_BYTES)
        for chunk in result.chunks:
            for position, header in batches(chunk):
                reached = max(reached, header.last_offset)
                if not header.is_control and crc_ok(chunk, position, header.size_bytes):
                    batch = memoryview(chunk)[position : position + header.size_bytes]
                    _read_batch(batch, first_offset, source.max_record_bytes, found)
                if reached >= last_offset:
                    return _Contents(first_offset, last_offset, found)
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        if first_offset < source.log_start_offset:
            return _Contents(first_offset, min(last_offset, source.log_start_offset - 1), found)
        return _Contents(first_offset, last_offset, found)  # the log was truncated after an unclean leader election
    except (OSError, MalformedMessage):
        log.warning("records at offset %d cannot be read for a dead-letter queue", first_offset, exc_info=True)
    return _Contents(first_offset, reached, found)


def _read_batch(batch: memoryview, first_offset: int, max_record_bytes: int, found: dict[int, Content]) -> None:
    try:
        for record in records_of(batch, record_limit_bytes=max_record_bytes):
            if record.offset >= first_offset:
                found[record.offset] = Content(record.key, record.value)
    except MalformedMessage as error:  # damaged, or too large when decompressed
        log.warning("a batch cannot be read for a dead-letter queue: %s", error)


def id_text(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def _resolve_or_fail(answer: Deferred[None], error: KafkaError | None) -> None:
    if error is None:
        answer.resolve(None)
    else:
        answer.fail(error)


def _log_unstored_archive(key: SharePartitionKey, answer: Deferred[bool]) -> None:
    try:
        answer.outcome()
    except KafkaError as error:  # the state epoch has changed, or the next leader will copy the records again
        log.info("dead letters of %s were archived, but their state could not be stored: %s", key, error)
