"""The responses of the APIs of share groups that have no error code for the whole of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import response_class
from odradek.protocol.struct import Message


def _describe(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse

    return ShareGroupDescribeResponse(
        groups=[DescribedGroup(group_id=each, error_code=code, error_message=message) for each in request.group_ids]
    )


def _describe_offsets(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.describe_share_group_offsets_response import (
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
    )

    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id, error_code=code, error_message=message)
            for each in request.groups
        ]
    )


def _of_state(api_key: ApiKey, topic_result: str) -> Callable[[Any, int, int, str | None], Message]:
    """The five requests to the share coordinator: a result for each partition."""

    def reply(request: Any, version: int, code: int, message: str | None) -> Message:
        module = import_module(f"odradek.protocol.messages.{api_key.name.lower()}_response")
        response: Any = response_class(api_key.value)
        return response(  # type: ignore[no-any-return]
            results=[
                getattr(module, topic_result)(
                    topic_id=topic.topic_id,
                    partitions=[
                        module.PartitionResult(partition=each.partition, error_code=code, error_message=message)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return reply


SHARE_ERROR_REPLIES: Mapping[ApiKey, Callable[[Any, int, int, str | None], Message]] = {
    ApiKey.SHARE_GROUP_DESCRIBE: _describe,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _describe_offsets,
    **{
        api_key: _of_state(api_key, topic_result)
        for api_key, topic_result in (
            (ApiKey.INITIALIZE_SHARE_GROUP_STATE, "InitializeStateResult"),
            (ApiKey.READ_SHARE_GROUP_STATE, "ReadStateResult"),
            (ApiKey.WRITE_SHARE_GROUP_STATE, "WriteStateResult"),
            (ApiKey.DELETE_SHARE_GROUP_STATE, "DeleteStateResult"),
            (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "ReadStateSummaryResult"),
        )
    },
}
