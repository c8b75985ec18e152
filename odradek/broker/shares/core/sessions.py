"""Share sessions. A session contains the partitions that a member fetches from this broker, and an epoch that counts
the member's requests.

    epoch   ShareFetch                                     ShareAcknowledge
    0       a new session; an existing one is replaced     refused
    n > 0   the next request of the session                the next request of the session
    -1      acknowledge, then end the session              acknowledge, then end the session

The epoch advances before the request is processed, so it advances even if the request then fails for all partitions. It
does not advance if this module refuses the request. Source: docs/spec/share-groups.md#s1-10, #s1-12 F10.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicIdPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
MAX_PARTITIONS = 100_000  # total for all sessions; Kafka has no such limit


class SessionKey(NamedTuple):
    """The key of a share session. A member has one session with each node (`node_id`) that leads partitions that the
    member reads."""

    group_id: str
    member_id: str
    node_id: int


class ShareSession:
    """A member's share session with one node.

    must_list  partitions that the next response must contain even if there is nothing to report, because they were just
               added or because the last response reported an error for them
    """

    __slots__ = ("connection", "epoch", "key", "must_list", "partitions")

    def __init__(self, key: SessionKey, connection: Hashable) -> None:
        self.key = key
        self.connection = connection
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicIdPartition, None] = {}
        self.must_list: set[TopicIdPartition] = set()

    def in_turn(self) -> list[TopicIdPartition]:
        """Returns the session's partitions, rotated so that each request begins with a different partition."""
        partitions = list(self.partitions)
        start = self.epoch % len(partitions) if partitions else 0
        return partitions[start:] + partitions[:start]

    def takes_notice(self, partition: TopicIdPartition, *, has_news: bool, has_error: bool) -> bool:
        """Returns whether the response must contain this partition and updates `must_list` accordingly."""
        listed = has_news or has_error or partition in self.must_list
        if has_error:
            self.must_list.add(partition)
        elif listed:
            self.must_list.discard(partition)
        return listed

    def _update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        for partition in added:
            if partition not in self.partitions:
                self.partitions[partition] = None
                self.must_list.add(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)
            self.must_list.discard(partition)

    def _count(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class ShareSessions:
    """All share sessions of this broker."""

    def __init__(self, max_sessions: int, max_partitions: int = MAX_PARTITIONS) -> None:
        self._max_partitions = max_partitions
        self._max_sessions = max_sessions
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        requested: Sequence[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        connection: Hashable,
    ) -> ShareSession:
        """Returns the session of a ShareFetch request, and creates, updates or replaces it if necessary. If the
        request's epoch is the final one, the caller must end the session.

        raises  SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH; SHARE_SESSION_LIMIT_REACHED if the broker already
                has the maximum number of sessions (docs/spec/share-groups.md#s1-10, S7), or if all sessions together
                would have too many partitions (a limit that Kafka does not have)
        """
        if epoch == FINAL_EPOCH:
            return self._require(key)
        if epoch == INITIAL_EPOCH:
            if key not in self._sessions and len(self._sessions) >= self._max_sessions:
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            session = self._sessions[key] = ShareSession(key, connection)
        else:
            session = self._require_epoch(key, epoch)
        known_before = len(session.partitions)
        session._update(requested, forgotten)
        if len(session.partitions) > known_before and self._count_partitions() > self._max_partitions:
            del self._sessions[key]
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session._count()
        return session

    def _count_partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def acknowledge(self, key: SessionKey, epoch: int) -> ShareSession:
        """Returns the session of a ShareAcknowledge request.

        raises  SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH"""
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            return self._require(key)
        session = self._require_epoch(key, epoch)
        session._count()
        return session

    def end(self, session: ShareSession) -> bool:
        """Ends the session. Returns False if it has already been ended or replaced."""
        if self._sessions.get(session.key) is not session:
            return False
        del self._sessions[session.key]
        return True

    def is_open(self, session: ShareSession) -> bool:
        return self._sessions.get(session.key) is session

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        return [session for session in self._sessions.values() if session.connection == connection]

    def fetches(self, key: SessionKey, partition: TopicIdPartition) -> bool:
        """Returns whether the session with this key exists and contains the partition."""
        session = self._sessions.get(key)
        return session is not None and partition in session.partitions

    def has_group(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self._sessions)

    def clear(self) -> None:
        self._sessions.clear()

    def _require(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _require_epoch(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._require(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session
