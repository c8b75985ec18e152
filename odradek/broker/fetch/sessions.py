"""Incremental fetch sessions (KIP-227): a consumer sends its partitions once, and then only the changes.

`FetchSessions` owns every session; only `start_fetch` and the `finish` of a fetch change a session. A session's epoch
counts its fetches, so that lost and repeated responses can be detected. If there is no room for a session, the client
receives session id 0 and continues with full fetches.

    session id  epoch     meaning
    0           0         full fetch that requests a session
    any         -1        full fetch without a session; ends the given session
    n           0         full fetch that ends session n and requests a new session
    n           e > 0     incremental fetch number e of session n

Source: KIP-227. The broker chooses the partitions to send and the sessions to evict in the same way as Kafka 4.3.1.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from sys import getsizeof
from typing import Final, Protocol

from odradek.protocol.errors import ErrorCode, KafkaError

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
MAX_SESSION_ID: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
MAX_BYTES: Final = 64 * 1024 * 1024  # total for all sessions; Kafka has no such limit
PARTITION_BYTES: Final = 450  # memory used by a partition, excluding its topic's name of up to 128 KiB

PartitionKey = tuple[str | bytes, int]


class NamedBy(Enum):
    """How a session identifies its topics: by name in Fetch up to v12, by id in v13 and later."""

    TOPIC_NAME = 0
    TOPIC_ID = 1


class FetchPartition:
    """A partition as requested by a consumer, with the values that the session last sent for it.

    `topic` is the topic's name, or the 16 bytes of its id. The `sent_…` values are -1 until the session has sent a
    value. `known_name` is the name of a topic that is requested by id, and is set once the topic has been found. It
    distinguishes a deleted topic from an id that never existed, so that the client receives the right error.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "known_name",
        "last_fetched_epoch",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(
        self,
        topic: str | bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int | None = None,
        last_fetched_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.known_name: str | None = None
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    @property
    def key(self) -> PartitionKey:
        return (self.topic, self.index)

    @property
    def size_bytes(self) -> int:
        """Upper bound on the memory that this partition uses. Partitions of the same topic may share the topic's
        name."""
        return PARTITION_BYTES + getsizeof(self.topic)

    def update(self, requested: "FetchPartition") -> None:
        """Replaces the requested values with the values of a new request and keeps the sent values."""
        self.fetch_offset = requested.fetch_offset
        self.max_bytes = requested.max_bytes
        self.current_leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch


class AnsweredPartition(Protocol):
    """The part of a partition's answer that a session needs."""

    @property
    def error_code(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def has_diverging_epoch(self) -> bool: ...


@dataclass(slots=True)
class FetchSession:
    session_id: int
    named_by: NamedBy
    created_ms: int
    last_used_ms: int
    epoch: int
    partitions: dict[PartitionKey, FetchPartition]
    size_bytes: int


class Fetch:
    """One fetch, from request to response. The caller reads each of `partitions` and passes the results to `finish`,
    which selects the results to send."""

    __slots__ = ("partitions",)

    def __init__(self, partitions: Sequence[FetchPartition]) -> None:
        self.partitions = partitions

    def finish(self, answers: Sequence[AnsweredPartition | None], now_ms: int) -> "FinishedFetch":
        """Selects the answers to send, and records them as sent. `answers[i]` belongs to `partitions[i]` and is None if
        nothing has changed since the session's last response."""
        raise NotImplementedError

    def preview(self, answers: Sequence[AnsweredPartition | None]) -> "FinishedFetch":
        """Returns the same result as `finish`, except for the id of a new session, but does not record the answers as
        sent."""
        return FinishedFetch(ErrorCode.NONE, NO_SESSION_ID, range(len(answers)))


@dataclass(frozen=True, slots=True)
class FinishedFetch:
    """The result of `Fetch.finish`. `sent` contains the indexes in `Fetch.partitions` of the partitions to include in
    the response, in order."""

    error_code: ErrorCode
    session_id: int
    sent: Sequence[int]


class SessionlessFetch(Fetch):
    __slots__ = ()

    def finish(self, answers: Sequence[AnsweredPartition | None], now_ms: int) -> FinishedFetch:
        return FinishedFetch(ErrorCode.NONE, NO_SESSION_ID, range(len(answers)))


class FullFetch(Fetch):
    """A fetch whose response contains all partitions. If a session is requested, it is created when the response is
    ready."""

    __slots__ = ("_named_by", "_sessions")

    def __init__(self, sessions: "FetchSessions", partitions: Sequence[FetchPartition], named_by: NamedBy) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._named_by = named_by

    def finish(self, answers: Sequence[AnsweredPartition | None], now_ms: int) -> FinishedFetch:
        session_id = self._sessions.maybe_create(self.partitions, answers, self._named_by, now_ms)
        return FinishedFetch(ErrorCode.NONE, session_id, range(len(answers)))


class IncrementalFetch(Fetch):
    """A fetch whose response contains only changes. Partitions that have returned records move to the end of the
    session, so that the next fetch begins with the other partitions."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        super().__init__(tuple(session.partitions.values()))
        self._session = session
        self._epoch = session.epoch

    def preview(self, answers: Sequence[AnsweredPartition | None]) -> FinishedFetch:
        session = self._session
        if session.epoch != self._epoch:
            return FinishedFetch(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, ())
        sent = [
            position
            for position, (partition, answer) in enumerate(zip(self.partitions, answers, strict=True))
            if answer is not None and has_changes(partition, answer)
        ]
        return FinishedFetch(ErrorCode.NONE, session.session_id, sent)

    def finish(self, answers: Sequence[AnsweredPartition | None], now_ms: int) -> FinishedFetch:
        session = self._session
        if session.epoch != self._epoch:  # another request in this session arrived while this request was parked
            return FinishedFetch(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, ())
        sent = []
        for position, (partition, answer) in enumerate(zip(self.partitions, answers, strict=True)):
            if answer is None or not take_changes(partition, answer):
                continue
            sent.append(position)
            if answer.size_bytes > 0:
                key = partition.key
                del session.partitions[key]
                session.partitions[key] = partition
        return FinishedFetch(ErrorCode.NONE, session.session_id, sent)


def has_changes(partition: FetchPartition, answer: AnsweredPartition) -> bool:
    """Returns whether an incremental response must contain this partition."""
    return (
        answer.size_bytes > 0
        or answer.high_watermark != partition.sent_high_watermark
        or answer.log_start_offset != partition.sent_log_start_offset
        or answer.error_code != ErrorCode.NONE.value
        or answer.has_diverging_epoch
    )


def take_changes(partition: FetchPartition, answer: AnsweredPartition) -> bool:
    """Returns whether an incremental response must contain this partition. If so, records the values in the answer as
    sent."""
    must_send = answer.size_bytes > 0
    if answer.high_watermark != partition.sent_high_watermark:
        partition.sent_high_watermark = answer.high_watermark
        must_send = True
    if answer.log_start_offset != partition.sent_log_start_offset:
        partition.sent_log_start_offset = answer.log_start_offset
        must_send = True
    if answer.error_code != ErrorCode.NONE.value or answer.has_diverging_epoch:
        partition.sent_high_watermark = -1  # so that the partition is sent again once it has no error
        must_send = True
    return must_send


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_EPOCH else epoch + 1


class FetchSessions:
    """All fetch sessions of this broker: at most `max_sessions` sessions, using at most `max_bytes` in total.

    `new_session_id` returns a random number from 1 to MAX_SESSION_ID, and is called again if that id is already in use.
    """

    def __init__(
        self,
        max_sessions: int,
        new_session_id: Callable[[], int],
        eviction_ms: int = EVICTION_MS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._max_sessions = max_sessions
        self._new_session_id = new_session_id
        self._eviction_ms = eviction_ms
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        """Iterates over the sessions, the least recently used first."""
        return iter(self._sessions.values())

    def start_fetch(
        self,
        session_id: int,
        epoch: int,
        requested: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey],
        named_by: NamedBy,
        now_ms: int,
    ) -> Fetch:
        """Begins a fetch of the partitions in the request and, for an incremental fetch, in its session.

        raises  FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id)
            if epoch == FINAL_EPOCH:
                return SessionlessFetch(requested)
            return FullFetch(self, requested, named_by)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.named_by is not named_by:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._end(session_id)
        for partition in requested:
            stored = session.partitions.setdefault(partition.key, partition)
            if stored is partition:
                session.size_bytes += partition.size_bytes
            else:
                stored.update(partition)
        for key in forgotten:
            removed = session.partitions.pop(key, None)
            if removed is not None:
                session.size_bytes -= removed.size_bytes
        if not session.partitions:
            return SessionlessFetch(requested)
        if self._held_bytes + session.size_bytes > self._max_bytes:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)  # the consumer continues with full fetches
        self._add_session(session)
        session.last_used_ms = now_ms
        session.epoch = next_epoch(epoch)
        return IncrementalFetch(session)

    def maybe_create(
        self,
        partitions: Sequence[FetchPartition],
        answers: Sequence[AnsweredPartition | None],
        named_by: NamedBy,
        now_ms: int,
    ) -> int:
        """Creates a session with these partitions. Returns the session's id, or NO_SESSION_ID if there is no room for
        the session."""
        by_key = {partition.key: partition for partition in partitions}
        size_bytes = sum([partition.size_bytes for partition in by_key.values()])
        if size_bytes > self._max_bytes:
            return NO_SESSION_ID
        while self._held_bytes + size_bytes > self._max_bytes:
            if not self._evict_for(len(partitions), now_ms):
                return NO_SESSION_ID
        if len(self._sessions) >= self._max_sessions and not self._evict_for(len(partitions), now_ms):
            return NO_SESSION_ID
        session_id = self._new_session_id()
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._new_session_id()
        for partition, answer in zip(partitions, answers, strict=True):
            assert answer is not None, "the first response of a session has an answer for every partition"
            partition.sent_high_watermark = answer.high_watermark
            partition.sent_log_start_offset = answer.log_start_offset
        self._add_session(FetchSession(session_id, named_by, now_ms, now_ms, 1, by_key, size_bytes))
        return session_id

    def _add_session(self, session: FetchSession) -> None:
        self._sessions[session.session_id] = session
        self._held_bytes += session.size_bytes

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._held_bytes -= session.size_bytes

    def _evict_for(self, partition_count: int, now_ms: int) -> bool:
        """Makes room for a session with this many partitions. Evicts an idle session if there is one. Otherwise evicts
        the smallest old session, provided that it is smaller than the new session. Returns whether a session was
        evicted.

        Sessions younger than the eviction time are kept, so that consumers do not repeatedly evict each other's
        sessions.
        """
        if not self._sessions:
            return False
        least_recent = next(iter(self._sessions.values()))
        if now_ms - least_recent.last_used_ms > self._eviction_ms:
            self._end(least_recent.session_id)
            return True
        settled = [s for s in self._sessions.values() if now_ms - s.created_ms > self._eviction_ms]
        if not settled:
            return False
        smallest = min(settled, key=lambda session: (len(session.partitions), session.session_id))
        if len(smallest.partitions) >= partition_count:
            return False
        self._end(smallest.session_id)
        return True
