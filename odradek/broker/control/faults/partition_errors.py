"""Sets errors on individual partitions by removing or replacing their elements in requests and responses. All functions
of this module are pure.

The error response for the whole request serves as a template, because it contains an element for each partition, built
for the API and version of the request. The template's elements for the chosen partitions replace those of the real
response.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from odradek.broker.control.faults.sightings import PARTITIONS, TOPIC_NAMES
from odradek.protocol.struct import Struct

TopicNamed = Callable[[bytes], str | None]


def leave_out(request: Struct, places: Collection[tuple[str, int | None]], topic_named: TopicNamed) -> None:
    """Removes partitions from a request, and then the topics that have no partitions left."""
    _filter(request, lambda place: place not in places, topic_named)


def keep_only(answer: Struct, places: Collection[tuple[str, int | None]], topic_named: TopicNamed) -> None:
    _filter(answer, lambda place: place in places, topic_named)


def put_in_place(answer: Struct, refused: Struct, topic_named: TopicNamed) -> None:
    """Copies the partitions of `refused` into `answer`. They replace the same partitions in `answer` or are appended if
    `answer` does not have them."""
    for array, below in arrays(refused):
        ours = getattr(answer, array)
        for topic in getattr(refused, array):
            name = topic_of(topic, topic_named)
            same = next((each for each in ours if topic_of(each, topic_named) == name), None)
            if same is None:
                ours.append(topic)
                continue
            partitions = getattr(same, below)
            for partition in getattr(topic, below):
                index = index_of(partition)
                at = next((at for at, each in enumerate(partitions) if index_of(each) == index), len(partitions))
                partitions[at : at + 1] = [partition]


def arrays(message: Struct) -> Iterator[tuple[str, str]]:
    """Yields, for each array of topics, its field name and the field name of the partition array in its elements."""
    for name in type(message).__slots__:
        value = getattr(message, name)
        first = value[0] if isinstance(value, list) and value else None
        if not isinstance(first, Struct) or not {*type(first).__slots__} & (TOPIC_NAMES | {"topic_id"}):
            continue
        for below in type(first).__slots__:
            if any(_holds_partitions(getattr(each, below)) for each in value):
                yield name, below


def topic_of(struct: Any, topic_named: TopicNamed) -> str | None:
    for name in type(struct).__slots__:
        value = getattr(struct, name)
        if name in TOPIC_NAMES and value:
            return str(value)
        if name == "topic_id" and any(value):
            return topic_named(value)
    return None


def index_of(element: object) -> int | None:
    if isinstance(element, int):
        return element
    names = PARTITIONS.intersection(type(element).__slots__) if isinstance(element, Struct) else ()
    return next((getattr(element, name) for name in names), None)


def _holds_partitions(elements: object) -> bool:
    return isinstance(elements, list) and bool(elements) and index_of(elements[0]) is not None


def _filter(message: Struct, is_kept: Callable[[tuple[str, int | None]], bool], topic_named: TopicNamed) -> None:
    for name, below in list(arrays(message)):
        topics = getattr(message, name)
        for topic in topics:
            of = topic_of(topic, topic_named) or ""
            setattr(topic, below, [each for each in getattr(topic, below) if is_kept((of, index_of(each)))])
        setattr(message, name, [topic for topic in topics if getattr(topic, below)])
