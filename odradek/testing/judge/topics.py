"""Identifies topics in requests. Older request versions contain a topic's name, and newer ones its id.

Rules store a `Topic` instead of a name or an id, so that a client can switch between names and ids at any time.
Responses show which id belongs to which name. A topic that was deleted and created again is a different `Topic`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeVar

from odradek.protocol.struct import ZERO_UUID

K = TypeVar("K")
V = TypeVar("V")
MAX_TOPICS: Final = 20_000


@dataclass(slots=True, eq=False)
class Topic:
    """One topic. A topic that was deleted and created again is a different topic, even if it has the same name.

    name        "" until its name is seen
    topic_id    zero until its id is seen
    is_later    whether an earlier topic of this name was deleted. A producer that knows only names may then continue
                the earlier topic's sequences.
    is_joined   whether requests used both its name and its id before a response showed that they belong together. The
                order of these requests is then unknown.
    is_deleted  whether a response confirmed its deletion. A later response that still lists the topic is stale.
    """

    name: str = ""
    topic_id: bytes = ZERO_UUID
    is_later: bool = False
    is_joined: bool = False
    is_deleted: bool = False

    def __str__(self) -> str:
        return self.name or self.topic_id.hex()


class Topics:
    """The topics in requests, and the names and ids of other topics in responses. Each map keeps at most `most` entries
    and drops the least recently used one."""

    def __init__(self, most: int = MAX_TOPICS) -> None:
        self._most = most
        self._by_name: OrderedDict[str, Topic] = OrderedDict()
        self._by_id: OrderedDict[bytes, Topic] = OrderedDict()
        self._deleted: OrderedDict[str, None] = OrderedDict()  # names of deleted topics that have occurred in requests
        # These maps are separate from the maps above, because one response may list all topics of a cluster, which
        # would displace the topics that clients use.
        self._name_of_id: OrderedDict[bytes, str] = OrderedDict()
        self._id_of_name: OrderedDict[str, bytes] = OrderedDict()

    def find(self, name: str | None, topic_id: bytes) -> Topic:
        """Returns a request's topic, found by its name, or by its id if `name` is empty. Creates the `Topic` on first
        use."""
        if name:
            topic = _used(self._by_name, name)
            if topic is None:
                topic = Topic(name, is_later=name in self._deleted)
                self._put(self._by_name, name, topic)
                self.link(name, self._id_of_name.get(name, ZERO_UUID))
            return self._by_name[name]
        topic = _used(self._by_id, topic_id)
        if topic is None:
            topic = Topic(topic_id=topic_id)
            self._put(self._by_id, topic_id, topic)
            self.link(self._name_of_id.get(topic_id, ""), topic_id)
        return self._by_id[topic_id]

    def name_of(self, topic_id: bytes) -> str:
        """Returns the name that a response gave for a topic id, or "" if no response has given one."""
        topic = self._by_id.get(topic_id)
        return self._name_of_id.get(topic_id, "") if topic is None else topic.name

    def link(self, name: str, topic_id: bytes) -> None:
        """Records that a response gave this id for the topic with this name."""
        if not name or topic_id == ZERO_UUID:
            return
        named, identified = self._by_name.get(name), self._by_id.get(topic_id)
        if named is None and identified is None:
            self._put(self._name_of_id, topic_id, name)
            self._put(self._id_of_name, name, topic_id)
        elif named is None:
            assert identified is not None
            if not identified.is_deleted:
                identified.name = name
                identified.is_later = identified.is_later or name in self._deleted
                self._put(self._by_name, name, identified)
        elif identified is None:
            if named.topic_id == ZERO_UUID:
                named.topic_id = topic_id
            else:
                named = Topic(name, topic_id, is_later=True)
                self._put(self._by_name, name, named)
            self._put(self._by_id, topic_id, named)
        elif identified is not named and not identified.is_deleted:
            if named.topic_id == ZERO_UUID:
                identified = Topic(name, topic_id, is_later=True, is_joined=True)
                self._put(self._by_id, topic_id, identified)
            identified.name = name
            self._put(self._by_name, name, identified)

    def delete(self, name: str) -> None:
        """Records that the topic with this name was deleted. Later requests with this name refer to a different
        topic."""
        topic = self._by_name.pop(name, None)
        if topic is not None:
            topic.is_deleted = True
            self._put(self._deleted, name, None)
        self._name_of_id.pop(self._id_of_name.pop(name, ZERO_UUID), None)

    def _put(self, into: OrderedDict[K, V], key: K, value: V) -> None:
        into[key] = value
        into.move_to_end(key)
        if len(into) > self._most:
            into.popitem(last=False)


def _used(found: OrderedDict[K, V], key: K) -> V | None:
    value = found.get(key)
    if value is not None:
        found.move_to_end(key)
    return value
