"""A job's inputs: topics of a cluster, or a directory of logs. Independent of Spark.

| text | input |
|---|---|
| `kafka://HOST:PORT/TOPIC` | a topic of a running cluster; multiple brokers are separated by commas |
| `kafka://HOST:PORT` | the topics that are named separately |
| `DIR` | a data directory, a folder of topic directories, or one `TOPIC-0`; topics may be named separately |
| `DIR/TOPIC` | one topic of a data directory |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.files.offline.directories import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEME = "kafka://"


class InputError(ValueError):
    """The input does not exist or has no records. The message explains how to correct it."""


@dataclass(frozen=True, slots=True)
class Input:
    """A job's input. Either `bootstrap_servers` or `path` is set. Without `topics`, all topics of the directory are
    read."""

    text: str
    bootstrap_servers: str | None = None
    path: Path | None = None
    topics: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    @property
    def is_directory(self) -> bool:
        return self.path is not None

    def source_options(self) -> dict[str, str]:
        """Returns the options for `format("odradek")`."""
        found = dict(self.options)
        if self.bootstrap_servers is not None:
            found["kafka.bootstrap.servers"] = self.bootstrap_servers
        if self.path is not None:
            found["path"] = str(self.path)
        if self.topics:
            found["subscribe"] = ",".join(self.topics)
        return found

    def with_options(self, **options: str) -> Input:
        return replace(self, options=self.options | options)

    def frame(self, spark: SparkSession, schema: str | None = None) -> DataFrame:
        """Loads the records. `schema` limits which columns are read."""
        reader = spark.read.format("odradek").options(**self.source_options())
        return (reader if schema is None else reader.schema(schema)).load()


def input_of(text: str, topics: Iterable[str] = ()) -> Input:
    """Parses an input as the user typed it. Looks for directories, but does not contact a cluster. Raises InputError.

    text    one of the forms in this module's table
    topics  the topics to read, if `text` does not name them
    """
    requested = tuple(topics)
    if text.startswith(SCHEME):
        return _of_a_cluster(text, requested)
    if "://" in text:
        raise InputError(f"{text} cannot be read: give {SCHEME}HOST:PORT/TOPIC, or a mounted directory")
    path = Path(text).expanduser()
    if path.is_dir():
        return _of_a_directory(text, path, requested)
    if path.exists():
        raise InputError(f"{text} is a file: give the data directory, or the directory of a topic's partition")
    parent, topic = path.parent, path.name
    if parent.is_dir():
        found = topics_in(parent)
        if topic in found:
            if requested and requested != (topic,):
                raise InputError(
                    f"{text} already contains a topic, and --topic {', '.join(requested)} was also given; give only"
                    " one of the two"
                )
            return Input(text, path=parent.resolve(), topics=(topic,))
        if found:
            raise InputError(f"there is no topic {topic!r} in {parent}; the topics are {_some(found)}")
    raise InputError(f"{text}: there is no such directory")


def one_topic(source: Input) -> Input:
    """Returns the input restricted to its only topic. Raises InputError unless the input has exactly one topic."""
    topics = source.topics
    if not topics and source.path is not None:
        topics = tuple(topics_in(source.path))
    if len(topics) != 1:
        named = f"; the topics are {_some(topics)}" if topics else ""
        raise InputError(f"{source}: give one topic, as in {str(source).rstrip('/')}/TOPIC{named}")
    return replace(source, topics=topics)


def topics_in(path: Path) -> list[str]:
    """Returns the topics that have partitions in a directory. `path` may also be the directory of a single
    partition."""
    own = partition_of(path.resolve())
    if own is not None:
        return [own[0]]
    return sorted({found[0] for each in path.iterdir() if each.is_dir() and (found := partition_of(each))})


def _of_a_cluster(text: str, requested: tuple[str, ...]) -> Input:
    servers, _, topic = text.removeprefix(SCHEME).partition("/")
    if not all(re.fullmatch(r"(\[[^\]]+\]|[^:\s]+):\d+", each) for each in servers.split(",")):
        raise InputError(f"{text} does not have the form {SCHEME}HOST:PORT/TOPIC")
    topics = tuple(each for each in topic.split(",") if each)
    if topics and requested and topics != requested:
        raise InputError(
            f"{text} already contains a topic, and --topic {', '.join(requested)} was also given; give only one of"
            " the two"
        )
    topics = topics or requested
    if not topics:
        raise InputError(f"{text}: give a topic, as in {text.rstrip('/')}/TOPIC")
    return Input(text, bootstrap_servers=servers, topics=topics)


def _of_a_directory(text: str, path: Path, requested: tuple[str, ...]) -> Input:
    found = topics_in(path)
    if not found:
        raise InputError(f"{text}: this directory contains no logs (TOPIC-0/00000000000000000000.log)")
    missing = [each for each in requested if each not in found]
    if missing:
        raise InputError(f"there is no topic {', '.join(missing)} in {text}; the topics are {_some(found)}")
    return Input(text, path=path.resolve(), topics=requested)


def _some(topics: Iterable[str], most: int = 10) -> str:
    names = list(topics)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
