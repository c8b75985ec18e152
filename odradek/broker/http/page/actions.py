"""The changes that the page can make if `odradek.http.actions` is true. Any Kafka client could send the same requests.

Each action receives the fields of its JSON body, and returns a description of the change. If the broker refuses the
change, the action raises KafkaError with the broker's error code.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.http.page.record_grammar import FIELDS as RECORD_FIELDS
from odradek.broker.http.page.record_grammar import parse_record
from odradek.broker.http.page.record_writing import chosen_partitions_of, partition_count
from odradek.broker.http.page.record_writing import produce as produce_records
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse

if TYPE_CHECKING:
    from odradek.broker.http.page.served import View
    from odradek.broker.in_process.client import Ask


class Fields:
    """The JSON body of an action. Its methods raise KafkaError (INVALID_REQUEST) for missing, mistyped or unknown
    fields."""

    def __init__(self, body: object, allowed: frozenset[str]) -> None:
        if not isinstance(body, Mapping):
            raise invalid_request("the body must be a JSON object")
        if unknown := sorted(set(body) - allowed):
            raise invalid_request(f"there is no field {unknown[0]}; the fields are {', '.join(sorted(allowed))}")
        self._body: Mapping[str, object] = body

    def __contains__(self, name: str) -> bool:
        return self._body.get(name) is not None

    def text(self, name: str) -> str:
        found = self._body.get(name)
        if not isinstance(found, str) or not found:
            raise invalid_request(f"{name} must be a non-empty string")
        return found

    def without(self, name: str) -> Mapping[str, object]:
        """Returns all fields except `name`."""
        return {each: value for each, value in self._body.items() if each != name}

    def number(self, name: str, *, least: int, default: int | None = None) -> int:
        found = self._body.get(name)
        if found is None and default is not None:
            return default
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found < 2**63:
            raise invalid_request(f"{name} must be a whole number of at least {least}")
        return found

    def any_text(self, name: str) -> str:
        """Returns the value of a string field, which may be empty."""
        found = self._body.get(name)
        if not isinstance(found, str):
            raise invalid_request(f"{name} must be a string")
        return found

    def decimal(self, name: str) -> float:
        found = self._body.get(name)
        if not isinstance(found, int | float) or isinstance(found, bool) or not math.isfinite(found):
            raise invalid_request(f"{name} must be a number")
        return float(found)

    def texts(self, name: str) -> Mapping[str, str]:
        """Returns a field that is an object with string values. Returns an empty object if the field is missing."""
        found = self._body.get(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
            raise invalid_request(f"{name} must be an object whose values are strings")
        return found


def invalid_request(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, words)


TIMEOUT_MS = 30_000
BEFORE_TWO_PHASE_COMMIT = 5  # newest version of InitProducerId without two-phase commit
ONGOING = "Ongoing"
NO_TIMEOUT = frozenset({-1, 2**31 - 1})  # timeouts that mark a transaction as part of a two-phase commit
BROKER_DEFAULT = -1
RETRY_S = 0.02
RETRIES = 1000


@dataclass(frozen=True, slots=True)
class PageAction:
    """An action that the page offers.

    fields  names of the fields that the body may have
    hidden  names of the fields whose values must not be logged
    """

    run: Callable[[Ask, Fields], Awaitable[View]]
    fields: frozenset[str]
    hidden: frozenset[str] = frozenset()


def check(code: int, words: str | None = None) -> None:
    """Raises KafkaError unless the code is NONE."""
    if code != ErrorCode.NONE.value:
        error = ErrorCode(code)
        raise KafkaError(error, words or WORDS.get(error))


async def abort(ask: Ask, fields: Fields) -> View:
    """Aborts an open transaction and fences its producer, as a new producer with the same transactional id would.
    Refuses to abort a transaction that is part of a two-phase commit."""
    found = await describe_transaction(ask, fields.text("transactional_id"))
    name = found.transactional_id
    if found.transaction_state != ONGOING:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, f"{name} has no open transaction: its state is {found.transaction_state}."
        )
    if found.transaction_timeout_ms in NO_TIMEOUT:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"The transaction of {name} is part of a two-phase commit, and its external coordinator may already"
            " have decided it. To abort it anyway, use force-terminate.",
        )
    await take_over(ask, name, found.transaction_timeout_ms)
    return {"done": f"The transaction of {name} is aborted, and its producer fenced."}


async def force_terminate(ask: Ask, fields: Fields) -> View:
    """Aborts a transactional id's open transaction, even if it is prepared for a two-phase commit (KIP-939)."""
    found = await describe_transaction(ask, fields.text("transactional_id"))
    name = found.transactional_id
    await take_over(ask, name, TIMEOUT_MS)
    if found.transaction_state == ONGOING:
        return {"done": f"The transaction of {name} is aborted, and its producer fenced."}
    return {"done": f"{name} had no open transaction ({found.transaction_state}); its producer is fenced."}


async def describe_transaction(ask: Ask, name: str) -> TransactionState:
    answer = await ask(DescribeTransactionsRequest(transactional_ids=[name]), DescribeTransactionsResponse)
    (found,) = answer.transaction_states
    check(found.error_code)
    return found


async def take_over(ask: Ask, name: str, timeout_ms: int) -> None:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    for _ in range(RETRIES):
        answer = await ask(request, InitProducerIdResponse, max_version=BEFORE_TWO_PHASE_COMMIT)
        # CONCURRENT_TRANSACTIONS means that the abort is not complete yet.
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS.value:
            check(answer.error_code)
            return
        await asyncio.sleep(RETRY_S)
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The abort is decided; its markers are still being written.")


async def delete_records(ask: Ask, fields: Fields) -> View:
    """Deletes the records below `before_offset`; -1 deletes all records below the high watermark."""
    topic, index = fields.text("topic"), fields.number("partition", least=0)
    requested = DeleteRecordsPartition(partition_index=index, offset=fields.number("before_offset", least=-1))
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[requested])], timeout_ms=TIMEOUT_MS
    )
    answer = await ask(request, DeleteRecordsResponse)
    ((found,),) = (of.partitions for of in answer.topics)
    check(found.error_code)
    return {
        "done": f"The records of {topic}-{index} before offset {found.low_watermark} are deleted.",
        "log_start_offset": found.low_watermark,
    }


async def create_topic(ask: Ask, fields: Fields) -> View:
    """Creates a topic.

    `partitions` and `replication_factor` default to the broker's settings. The values in `configs` are strings.
    """
    topic = CreatableTopic(
        name=fields.text("topic"),
        num_partitions=fields.number("partitions", least=1, default=BROKER_DEFAULT),
        replication_factor=fields.number("replication_factor", least=1, default=BROKER_DEFAULT),
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in fields.texts("configs").items()],
    )
    answer = await ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
    (found,) = answer.topics
    check(found.error_code, found.error_message)
    return {"done": f"The topic {found.name} is created.", "partitions": found.num_partitions}


async def add_partitions(ask: Ask, fields: Fields) -> View:
    """Increases a topic's number of partitions to `partitions`."""
    topic, count = fields.text("topic"), fields.number("partitions", least=1)
    named = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[named], timeout_ms=TIMEOUT_MS)
    (found,) = (await ask(request, CreatePartitionsResponse)).results
    check(found.error_code, found.error_message)
    return {"done": f"The topic {topic} has {count} partitions."}


TOPIC = 2  # resource type of a topic in IncrementalAlterConfigs
SET, DELETE = 0, 1


async def alter_topic(ask: Ask, fields: Fields) -> View:
    """Changes settings of a topic. `configs` contains new values as strings. `reset` names a setting to reset to its
    default."""
    topic, values = fields.text("topic"), fields.texts("configs")
    changes = [AlterableConfig(name=name, config_operation=SET, value=value) for name, value in values.items()]
    if "reset" in fields:
        changes.append(AlterableConfig(name=fields.text("reset"), config_operation=DELETE, value=None))
    if not changes:
        raise invalid_request("give at least one of the fields configs and reset")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=changes)
    answer = await ask(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)
    (found,) = answer.responses
    check(found.error_code, found.error_message)
    return {"done": f"The settings of {topic} are changed."}


CONTENT = ("key", "key_base64", "value", "value_base64", "headers")


async def produce(ask: Ask, fields: Fields) -> View:
    """Writes one record, whose fields `record_grammar` describes.

    If the record does not name a partition, its key determines the partition, as in Kafka's clients.
    """
    topic = fields.text("topic")
    sent = parse_record(fields.without("topic"))
    count = 0 if sent.partition is not None else await partition_count(ask, topic, may_create=False)
    (partition,) = chosen_partitions_of([sent], [sent.key.data], count)
    (written,) = await produce_records(ask, topic, [partition], [sent.with_bytes(sent.key.data, sent.value.data)])
    if written.error is not None:
        check(written.error.code.value, written.error.message)
    return {
        "done": f"The record has offset {written.offset} in {topic}-{partition}.",
        "partition": partition,
        "offset": written.offset,
    }


async def delete_topic(ask: Ask, fields: Fields) -> View:
    name = fields.text("topic")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
    answer = await ask(request, DeleteTopicsResponse)
    (found,) = answer.responses
    check(found.error_code, found.error_message)
    return {"done": f"The topic {name} is deleted with its records."}


WORDS: Mapping[ErrorCode, str] = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "This transactional id is unknown: it was never used, or it has expired.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is not in the log: it is below the log start offset, or above the"
    " high watermark.",
    ErrorCode.POLICY_VIOLATION: "The cleanup.policy of the topic lacks delete, so its records cannot be deleted.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "This is an internal topic.",
    ErrorCode.TOPIC_DELETION_DISABLED: "The broker's delete.topic.enable is false.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "The page acts as User:ANONYMOUS, which may not do this.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "The page acts as User:ANONYMOUS, which may not do this.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "The page acts as User:ANONYMOUS, which may not do this.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "The page acts as User:ANONYMOUS, which may not do this.",
    ErrorCode.SECURITY_DISABLED: "The broker has no authorizer. To use ACLs, set authorizer.class.name.",
}


SHARE = "share"
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
BY_NAME = 9  # newest version of OffsetCommit that has topic names instead of ids
LATEST, EARLIEST = -1, -2  # special timestamps in ListOffsets requests
NAMED: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}
NOT_FOUND = -1
GROUPS = 0  # FindCoordinator's key type for groups
NOT_YET = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE.value, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value})


Offsets = Mapping[int, int]  # offsets by partition


async def reset_offsets(ask: Ask, fields: Fields) -> View:
    """Resets a group's offsets in a topic. Offsets outside the log are moved to its start or end.

    Needs `group`, `topic`, and one of `to` (earliest or latest), `offset` and `timestamp`. A timestamp, in ms, selects
    the first record at that time or later, or the end of the log if there is no such record. If `partition` is missing,
    all partitions of the topic are reset. Like Kafka's tool, this action creates the group if it does not exist.
    """
    group, topic = fields.text("group"), fields.text("topic")
    if sum(name in fields for name in ("to", "offset", "timestamp")) != 1:
        raise invalid_request("give exactly one of the fields to, offset and timestamp")
    partitions = await partitions_of(ask, topic)
    if "partition" in fields:
        partitions = [index for index in partitions if index == fields.number("partition", least=0)]
    if not partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no such partition.")
    targets = await destinations(ask, fields, topic, partitions)
    found = await find_listed_group(ask, group)
    if found is not None and found.group_state not in WITHOUT_MEMBERS:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group} has members ({found.group_state}): stop them first.")
    if found is not None and found.group_type == SHARE:
        if "offset" in fields:
            raise invalid_request(
                f"{group} is a share group, which has no committed offsets: instead of offset, give timestamp, or"
                " to with earliest or latest"
            )
        await alter(ask, group, topic, targets)
    else:
        await commit(ask, group, topic, targets)
    return {
        "done": f"{group} resumes in {topic} at "
        + ", ".join(f"offset {offset} of partition {index}" for index, offset in targets.items())
        + ".",
        "offsets": {str(index): offset for index, offset in targets.items()},
    }


async def destinations(ask: Ask, fields: Fields, topic: str, partitions: list[int]) -> Offsets:
    if "to" in fields:
        name = fields.text("to")
        if name not in NAMED:
            raise invalid_request(f"to must be one of {', '.join(NAMED)}")
        return await offsets_at(ask, topic, partitions, NAMED[name])
    ends = await offsets_at(ask, topic, partitions, LATEST)
    if "timestamp" in fields:
        since = await offsets_at(ask, topic, partitions, fields.number("timestamp", least=0))
        return {index: ends[index] if since[index] == NOT_FOUND else since[index] for index in partitions}
    offset = fields.number("offset", least=0)
    starts = await offsets_at(ask, topic, partitions, EARLIEST)
    return {index: min(max(offset, starts[index]), ends[index]) for index in partitions}


async def partitions_of(ask: Ask, topic: str) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = (await ask(request, MetadataResponse)).topics
    require_none(found.error_code, f"topic {topic}")
    return sorted(each.partition_index for each in found.partitions)


async def find_listed_group(ask: Ask, group: str) -> ListedGroup | None:
    await coordinator_of(ask, group)
    answer = await ask(ListGroupsRequest(), ListGroupsResponse)
    require_none(answer.error_code, "the list of groups")
    return next((each for each in answer.groups if each.group_id == group), None)


async def coordinator_of(ask: Ask, group: str) -> None:
    """Waits until the group has a coordinator. The first FindCoordinator request only creates `__consumer_offsets`, so
    it cannot return a coordinator."""
    request = FindCoordinatorRequest(key_type=GROUPS, coordinator_keys=[group])
    for _ in range(RETRIES):
        (found,) = (await ask(request, FindCoordinatorResponse)).coordinators
        if found.error_code not in NOT_YET:
            break
        await asyncio.sleep(RETRY_S)
    require_none(found.error_code, found.error_message or f"the coordinator of group {group}")


async def offsets_at(ask: Ask, topic: str, partitions: list[int], timestamp: int) -> Offsets:
    requested = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=requested)])
    (answer,) = (await ask(request, ListOffsetsResponse)).topics
    for each in answer.partitions:
        require_none(each.error_code, f"{topic}-{each.partition_index}")
    return {each.partition_index: each.offset for each in answer.partitions}


async def commit(ask: Ask, group: str, topic: str, offsets: Offsets) -> None:
    requested = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=requested)])
    answer = await ask(request, OffsetCommitResponse, max_version=BY_NAME)
    for of in answer.topics:
        for each in of.partitions:
            require_none(each.error_code, f"{topic}-{each.partition_index} of group {group}")


async def alter(ask: Ask, group: str, topic: str, offsets: Offsets) -> None:
    requested = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    named = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=requested)
    answer = await ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[named]), AlterShareGroupOffsetsResponse)
    require_none(answer.error_code, answer.error_message or f"group {group}")
    for of in answer.responses:
        for each in of.partitions:
            require_none(each.error_code, each.error_message or f"{topic}-{each.partition_index} of group {group}")


def require_none(code: int, what: str) -> None:
    """Raises KafkaError with the message `what` unless the code is NONE."""
    if code != ErrorCode.NONE.value:
        raise KafkaError(ErrorCode(code), f"{what}.".replace("..", "."))


ACTIONS: Mapping[str, PageAction] = {
    "abort": PageAction(abort, frozenset({"transactional_id"})),
    "force-terminate": PageAction(force_terminate, frozenset({"transactional_id"})),
    "delete-records": PageAction(delete_records, frozenset({"topic", "partition", "before_offset"})),
    "reset-offsets": PageAction(reset_offsets, frozenset({"group", "topic", "partition", "to", "offset", "timestamp"})),
    "create-topic": PageAction(create_topic, frozenset({"topic", "partitions", "replication_factor", "configs"})),
    "delete-topic": PageAction(delete_topic, frozenset({"topic"})),
    "add-partitions": PageAction(add_partitions, frozenset({"topic", "partitions"})),
    "alter-topic": PageAction(alter_topic, frozenset({"topic", "configs", "reset"})),
    "produce": PageAction(produce, RECORD_FIELDS | {"topic"}, frozenset(CONTENT)),
}
