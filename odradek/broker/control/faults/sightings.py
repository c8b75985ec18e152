"""Finds the groups, transactional ids, producer ids and partitions named in a request, for rules to match. All
functions of this module are pure.

Fields are found by name, because Kafka's messages use names consistently. For example, a group's id is always called
GroupId.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct as Packing
from typing import Final

from odradek.protocol.struct import Struct

NAMED: Final = {"transactional_id": "transactional_id", "group_id": "group", "producer_id": "producer_id"}
TOPICS: Final = frozenset({"topics", "topic_data", "topic_partitions", "share_topics"})
TOPIC_NAMES: Final = frozenset({"topic", "topic_name", "name"})
PARTITIONS: Final = frozenset({"partition", "partition_index", "index", "partition_id"})
PRODUCER_ID: Final = Packing(">q")
PRODUCER_ID_AT: Final = 43  # position of the producer id in a record batch


def named_in(request: Struct) -> dict[str, set[object]]:
    found: dict[str, set[object]] = {}
    for struct in structs(request):
        for name in type(struct).__slots__:
            if name in NAMED:
                found.setdefault(NAMED[name], set()).add(getattr(struct, name))
            elif name == "records":
                found.setdefault("producer_id", set()).update(_producer_id_of(getattr(struct, name)))
    return found


def _producer_id_of(records: object) -> Iterator[int]:
    if isinstance(records, bytes | bytearray | memoryview) and len(records) >= PRODUCER_ID_AT + PRODUCER_ID.size:
        yield PRODUCER_ID.unpack_from(records, PRODUCER_ID_AT)[0]


def structs(value: object) -> Iterator[Struct]:
    """Yields a struct and all structs inside it."""
    if isinstance(value, Struct):
        yield value
        for name in type(value).__slots__:
            yield from structs(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from structs(each)


def places_in(request: Struct, topic_named: Callable[[bytes], str | None]) -> set[tuple[str, int | None]]:
    """Returns the topics and partitions named in a request, as pairs. The pair (topic, None) stands for the entire
    topic.

    topic_named  returns the name of the topic with this id, or None
    """
    found: set[tuple[str, int | None]] = set()
    for struct in structs(request):
        for name in type(struct).__slots__:
            value = getattr(struct, name)
            if name in TOPICS and isinstance(value, list):
                for element in value:
                    found.update(_places(element, topic_named))
    return found


def _places(element: object, topic_named: Callable[[bytes], str | None]) -> Iterator[tuple[str, int | None]]:
    if isinstance(element, str):
        yield element, None
    if not isinstance(element, Struct):
        return
    topic = None
    for name in type(element).__slots__:
        value = getattr(element, name)
        if name in TOPIC_NAMES and isinstance(value, str) and value:
            topic = value
        elif name == "topic_id" and isinstance(value, bytes):
            topic = topic or topic_named(value)
    if topic is None:
        return
    yield topic, None
    for name in type(element).__slots__:
        value = getattr(element, name)
        for each in value if isinstance(value, list) else ():
            if isinstance(each, int):
                yield topic, each
            elif isinstance(each, Struct):
                yield from ((topic, getattr(each, at)) for at in PARTITIONS.intersection(type(each).__slots__))
