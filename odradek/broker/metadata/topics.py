"""Decides on CreateTopics, CreatePartitions and DeleteTopics requests based on the metadata image, with Kafka's error
codes and messages.

Each function reads the image and returns the records for a change without applying them. All replicas are on this node,
which is identified by `Node`, and on the nodes that share its log. Source: Kafka 4.3.1's responses to the requests in
tests/spec.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.configuration.topic_settings import validate_topic_settings
from odradek.broker.metadata.image import MetadataImage, Node, TopicImage
from odradek.broker.metadata.records import MAX_RECORDS, Decision, require_one_batch
from odradek.broker.metadata.topic_names import check_topic_name, collision_key
from odradek.broker.runtime.slices import Steps
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import CLUSTER_METADATA

R = TypeVar("R")

MAX_PARTITIONS = 10_000  # maximum number of partitions in one request


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. None means the broker's default.

    assignments  pairs of partition index and broker ids; empty if the broker chooses the replicas
    configs      pairs of name and value; the last value of a repeated name is used
    """

    name: str
    partition_count: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result for one topic. `error` is None on success. The other fields are only valid on success."""

    name: str
    error: KafkaError | None = None
    topic_id: bytes = bytes(16)
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    partition_count: int
    replication_factor: int


def unlimited(partitions: int) -> None:
    """Accepts any number of partitions. Used as `charge` if no quota applies."""


def create_topics(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    *,
    node: Node,
    defaults: TopicDefaults,
    new_topic_id: Callable[[], bytes],
    charge: Callable[[int], None] = unlimited,
    rules: KafkaRules = NEWEST,
) -> Steps[Decision[list[TopicResult]]]:
    """Creates topics. Each topic is decided separately, so a refused topic does not affect the others.

    `charge` is called with the partition count of each topic that passes all other checks. It raises KafkaError to
    refuse the topic. Settings that the release of `rules` does not have are refused. The results are in the order of
    `topics`, followed by repeated and prohibited names. Raises POLICY_VIOLATION if the request has too many partitions
    or needs too many records. As in Kafka, this error refuses the whole request.
    """
    names = [topic.name for topic in topics]
    repeated = _duplicates(names)
    requested = [topic for topic in topics if topic.name not in repeated and topic.name != CLUSTER_METADATA]
    if sum(_asked_partitions(topic, defaults) for topic in requested) > MAX_PARTITIONS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    records: list[Message] = []
    results: list[TopicResult] = []
    for topic in requested:
        yield
        try:
            result, topic_records = _create(image, topic, node, defaults, new_topic_id, rules)
            charge(result.partition_count)
        except KafkaError as error:
            result, topic_records = TopicResult(topic.name, error.with_traceback(None)), []
        results.append(result)
        records += topic_records
        require_one_batch(records)
    for name in dict.fromkeys(names):
        if name == CLUSTER_METADATA:
            what = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            results.append(TopicResult(name, KafkaError(ErrorCode.INVALID_REQUEST, what)))
        elif name in repeated:
            results.append(TopicResult(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
    return Decision(results, tuple(records))


def _duplicates(values: Iterable[R]) -> set[R]:
    return {value for value, count in Counter(values).items() if count > 1}


def _asked_partitions(topic: NewTopic, defaults: TopicDefaults) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return max(0, defaults.partition_count if topic.partition_count is None else topic.partition_count)


def _create(
    image: MetadataImage,
    topic: NewTopic,
    node: Node,
    defaults: TopicDefaults,
    new_topic_id: Callable[[], bytes],
    rules: KafkaRules,
) -> tuple[TopicResult, list[Message]]:
    try:
        check_topic_name(topic.name)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    twin = image.names_by_collision_key.get(collision_key(topic.name))
    if twin is not None:
        what = f"Topic '{topic.name}' collides with existing topic: {twin}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, what)
    configs = _checked_configs(topic.configs, rules)
    replica_lists = _replica_lists(topic, node, defaults)
    topic_id = new_topic_id()
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=ConfigResourceType.TOPIC.value, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += [_new_partition(topic_id, index, replicas, node) for index, replicas in enumerate(replica_lists)]
    factor = max(len(replica_lists[0]), 1 + len(node.other_ids))
    return TopicResult(topic.name, None, topic_id, len(replica_lists), factor, configs), records


def _checked_configs(given: Iterable[tuple[str, str | None]], rules: KafkaRules) -> dict[str, str]:
    configs: dict[str, str] = {}
    nulls = [name for name, value in given if value is None]
    if nulls:
        what = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, what)
    for name, value in given:
        assert value is not None
        configs[name] = value
    try:
        validate_topic_settings(configs, rules)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return configs


def _replica_lists(topic: NewTopic, node: Node, defaults: TopicDefaults) -> Sequence[Sequence[int]]:
    """Returns the replicas of each partition."""
    if topic.assignments:
        if topic.replication_factor is not None:
            what = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, what)
        if topic.partition_count is not None:
            what = "A manual partition assignment was specified, but numPartitions was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, what)
        by_index: dict[int, Sequence[int]] = {}
        for index, replicas in topic.assignments:
            if index in by_index:
                what = f"Found multiple manual partition assignments for partition {index}"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
            check_replicas(node, replicas)
            by_index[index] = _with_the_rest(node, replicas)
        if sorted(by_index) != list(range(len(by_index))):
            what = "partitions should be a consecutive 0-based integer sequence"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        return [by_index[index] for index in range(len(by_index))]
    factor = defaults.replication_factor if topic.replication_factor is None else topic.replication_factor
    if factor < 1:
        what = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, what)
    count = defaults.partition_count if topic.partition_count is None else topic.partition_count
    if count < 1:
        what = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, what)
    # The log may contain registrations of earlier brokers. Only the current nodes receive replicas.
    most = 1 + len(node.other_ids)
    if factor > most:
        what = (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {most} broker(s) are registered or some brokers have all their log directories "
            "cordoned."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, what)
    return [[node.node_id]] * count


def check_replicas(node: Node, replicas: Sequence[int]) -> None:
    """Checks that a client may place replicas on these brokers. Only current nodes are allowed, even if other brokers
    are registered in the log.

    Raises INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        what = "The manual partition assignment includes an empty replica list."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
    previous: int | None = None
    for broker_id in sorted(replicas):
        if broker_id not in (node.node_id, *node.other_ids):
            what = f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        if broker_id == previous:
            what = f"The manual partition assignment includes the broker {broker_id} more than once."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        previous = broker_id


def _with_the_rest(node: Node, replicas: Sequence[int]) -> Sequence[int]:
    """Adds all nodes that share the log to the replicas, because each of them is a replica of every partition."""
    if not node.other_ids:
        return replicas
    return [*replicas, *(one for one in (node.node_id, *node.other_ids) if one not in replicas)]


def _new_partition(topic_id: bytes, index: int, replicas: Sequence[int], node: Node) -> PartitionRecord:
    placed = list(replicas)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=placed,
        isr=placed,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[node.directory_id] * len(replicas),
    )


@dataclass(frozen=True, slots=True)
class PartitionIncrease:
    """A request to add partitions to a topic. `count` is the new total number of partitions. `assignments` contains the
    replicas of each new partition, or is None if the broker chooses them."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def create_partitions(
    image: MetadataImage,
    topics: Sequence[PartitionIncrease],
    *,
    node: Node,
    charge: Callable[[int], None] = unlimited,
    rules: KafkaRules = NEWEST,
) -> Steps[Decision[list[tuple[str, KafkaError | None]]]]:
    """Adds partitions to topics. Each topic is decided separately. Repeated names are refused, and come first in the
    results. `charge` works as in `create_topics`, but is called with the number of added partitions.

    In Kafka 4.4 and later, all other topics are also refused if they request too many new partitions in total
    (docs/spec/kafka-4.4.md#s5-5, O6). Earlier releases refuse only the topics whose records would exceed the limit.
    """
    names = [topic.name for topic in topics]
    repeated = _duplicates(names)
    results: list[tuple[str, KafkaError | None]] = [
        (name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name in dict.fromkeys(names)
        if name in repeated
    ]
    records: list[Message] = []
    total = 0
    for topic in topics:
        yield
        if topic.name in image.topics and topic.name not in repeated:
            total += max(topic.count - len(image.topics[topic.name].partitions), 0)
    is_too_much = rules >= KafkaRules.KAFKA_4_4 and total > MAX_PARTITIONS
    for topic in topics:
        yield
        if topic.name in repeated:
            continue
        try:
            if is_too_much:
                what = "Excessively large number of additional partitions per request."
                raise KafkaError(ErrorCode.POLICY_VIOLATION, what)
            added = _add_partitions(image, topic, node, room=MAX_RECORDS - len(records))
            charge(len(added))
            records += added
        except KafkaError as error:
            results.append((topic.name, error))
        else:
            results.append((topic.name, None))
    return Decision(results, tuple(records))


def _add_partitions(image: MetadataImage, wish: PartitionIncrease, node: Node, room: int) -> list[Message]:
    topic = image.topics.get(wish.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    now = len(topic.partitions)
    if wish.count == now:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if wish.count < now:
        what = f"The topic {wish.name} currently has {now} partition(s); {wish.count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, what)
    added = wish.count - now
    if wish.assignments is not None and len(wish.assignments) != added:
        what = (
            f"Attempted to add {added} additional partition(s), but only {len(wish.assignments)} assignment(s) "
            "were specified."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
    if added > room:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka 4.3.1 returns the same error
    replica_lists: Sequence[Sequence[int]] = [[node.node_id]] * added
    if wish.assignments is not None:
        for replicas in wish.assignments:
            check_replicas(node, replicas)
        replica_lists = [_with_the_rest(node, replicas) for replicas in wish.assignments]
    return [_new_partition(topic.topic_id, now + n, replicas, node) for n, replicas in enumerate(replica_lists)]


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """The result for one topic. `name` is None if the request identifies the topic only by an unknown id. `topic_id` is
    zero if the request identifies the topic only by an unknown name."""

    name: str | None
    topic_id: bytes
    error: KafkaError | None = None


def delete_topics(
    image: MetadataImage,
    wishes: Sequence[tuple[str | None, bytes]],
    *,
    zero_id: bytes = bytes(16),
    charge: Callable[[int], None] = unlimited,
    rules: KafkaRules = NEWEST,
) -> Steps[Decision[list[DeletedTopic]]]:
    """Deletes topics. Each topic is decided separately. Each entry of `wishes` must have either a name or an id. The
    other field is None or zero. Refused topics come first in the results.

    charge  see `create_topics`
    """
    refused: list[DeletedTopic] = []
    chosen: dict[bytes, DeletedTopic] = {}
    names = [name for name, topic_id in wishes if name is not None and topic_id == zero_id]
    ids = [topic_id for name, topic_id in wishes if name is None and topic_id != zero_id]

    def refuse(name: str | None, topic_id: bytes, code: ErrorCode, what: str | None) -> None:
        refused.append(DeletedTopic(name, topic_id, KafkaError(code, what)))

    for name, topic_id in wishes:
        yield
        if name is None and topic_id == zero_id:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif name is not None and topic_id != zero_id:
            refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    repeated_names, repeated_ids = _duplicates(names), _duplicates(ids)
    given_ids, used = set(ids), set()
    for name in dict.fromkeys(names):
        yield
        topic = image.topics.get(name)
        if name in repeated_names:
            refuse(name, zero_id, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif topic is None:
            what = "This server does not host this topic-partition."
            refuse(name, zero_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        elif topic.topic_id in given_ids:
            what = "The provided topic name maps to an ID that was already supplied."
            refuse(name, topic.topic_id, ErrorCode.INVALID_REQUEST, what)
            used.add(topic.topic_id)
        else:
            chosen[topic.topic_id] = DeletedTopic(name, topic.topic_id)
    for topic_id in dict.fromkeys(ids):
        yield
        topic_image: TopicImage | None = image.topics_by_id.get(topic_id)
        if topic_id in repeated_ids:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif topic_image is None:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        elif topic_id not in used:
            chosen[topic_id] = DeletedTopic(topic_image.name, topic_id)
    for topic_id, deleted in chosen.items():
        yield
        try:
            charge(len(image.topics_by_id[topic_id].partitions))
        except KafkaError as error:
            chosen[topic_id] = replace(deleted, error=error)
    records = tuple(RemoveTopicRecord(topic_id=topic_id) for topic_id, each in chosen.items() if each.error is None)
    return Decision([*refused, *chosen.values()], records)
