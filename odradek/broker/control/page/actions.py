"""What the page can change, if `odradek.http.actions` says so. Each action is a request that any client could make.

Each takes the fields of its JSON body, and returns what was done. It raises KafkaError, with the broker's code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.control.page.fields import Fields
from odradek.broker.control.page.reset_offsets import reset_offsets
from odradek.protocol.errors import ErrorCode, KafkaError
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
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from odradek.broker.control.page.in_process import Ask
    from odradek.broker.control.page.json_value import View

TIMEOUT_MS = 30_000
BEFORE_TWO_PHASE_COMMIT = 5  # the newest InitProducerId that does not know of it
ONGOING = "Ongoing"
NO_TIMEOUT = frozenset({-1, 2**31 - 1})  # of a transaction that is part of a two-phase commit
BROKER_DEFAULT = -1
RETRY_S = 0.02
RETRIES = 1000


@dataclass(frozen=True, slots=True)
class Action:
    """fields: what its body may hold."""

    run: Callable[[Ask, Fields], Awaitable[View]]
    fields: frozenset[str]


def check(code: int, words: str | None = None) -> None:
    """Raises KafkaError for any code but NONE."""
    if code != ErrorCode.NONE.value:
        error = ErrorCode(code)
        raise KafkaError(error, words or WORDS.get(error))


async def abort(ask: Ask, fields: Fields) -> View:
    """An ordinary transaction, as a new producer with the same id would: its producer is fenced."""
    found = await described(ask, fields.text("transactional_id"))
    name = found.transactional_id
    if found.transaction_state != ONGOING:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, f"{name} has no open transaction: its state is {found.transaction_state}."
        )
    if found.transaction_timeout_ms in NO_TIMEOUT:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"The transaction of {name} is part of a two-phase commit, which may be decided already: force-terminate"
            " aborts it all the same.",
        )
    await take_over(ask, name, found.transaction_timeout_ms)
    return {"done": f"The transaction of {name} is aborted, and its producer fenced."}


async def force_terminate(ask: Ask, fields: Fields) -> View:
    """Whatever is open, a prepared transaction included (KIP-939)."""
    found = await described(ask, fields.text("transactional_id"))
    name = found.transactional_id
    await take_over(ask, name, TIMEOUT_MS)
    if found.transaction_state == ONGOING:
        return {"done": f"The transaction of {name} is aborted, and its producer fenced."}
    return {"done": f"{name} had no open transaction ({found.transaction_state}); its producer is fenced."}


async def described(ask: Ask, name: str) -> TransactionState:
    answer = await ask(DescribeTransactionsRequest(transactional_ids=[name]), DescribeTransactionsResponse)
    (found,) = answer.transaction_states
    check(found.error_code)
    return found


async def take_over(ask: Ask, name: str, timeout_ms: int) -> None:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    for _ in range(RETRIES):
        answer = await ask(request, InitProducerIdResponse, max_version=BEFORE_TWO_PHASE_COMMIT)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS.value:  # the abort is under way
            check(answer.error_code)
            return
        await asyncio.sleep(RETRY_S)
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The abort is decided; its markers are still being written.")


async def delete_records(ask: Ask, fields: Fields) -> View:
    """`before_offset`: the first that stays; -1 deletes all that is committed."""
    topic, index = fields.text("topic"), fields.number("partition", least=0)
    asked = DeleteRecordsPartition(partition_index=index, offset=fields.number("before_offset", least=-1))
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=TIMEOUT_MS)
    answer = await ask(request, DeleteRecordsResponse)
    ((found,),) = (of.partitions for of in answer.topics)
    check(found.error_code)
    return {
        "done": f"The records of {topic}-{index} before offset {found.low_watermark} are deleted.",
        "log_start_offset": found.low_watermark,
    }


async def create_topic(ask: Ask, fields: Fields) -> View:
    """`partitions` and `replication_factor` are the broker's unless they are given; `configs` are texts."""
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


async def delete_topic(ask: Ask, fields: Fields) -> View:
    name = fields.text("topic")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
    answer = await ask(request, DeleteTopicsResponse)
    (found,) = answer.responses
    check(found.error_code, found.error_message)
    return {"done": f"The topic {name} is deleted with its records."}


WORDS: Mapping[ErrorCode, str] = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The id is not known: it was never used, or it expired.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is not in the log: it is below its start, or above the high watermark.",
    ErrorCode.POLICY_VIOLATION: "The topic is compacted: its cleanup.policy does not delete.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "That is an internal topic.",
    ErrorCode.TOPIC_DELETION_DISABLED: "The broker's delete.topic.enable is false.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "User:ANONYMOUS, as whom the page acts, may not do this.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "User:ANONYMOUS, as whom the page acts, may not do this.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "User:ANONYMOUS, as whom the page acts, may not do this.",
}

Actions: TypeAlias = Mapping[str, Action]
ACTIONS: Actions = {
    "abort": Action(abort, frozenset({"transactional_id"})),
    "force-terminate": Action(force_terminate, frozenset({"transactional_id"})),
    "delete-records": Action(delete_records, frozenset({"topic", "partition", "before_offset"})),
    "reset-offsets": Action(reset_offsets, frozenset({"group", "topic", "partition", "to", "offset", "timestamp"})),
    "create-topic": Action(create_topic, frozenset({"topic", "partitions", "replication_factor", "configs"})),
    "delete-topic": Action(delete_topic, frozenset({"topic"})),
}
