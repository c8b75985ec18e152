"""Extracts topic ids, and the names of deleted topics, from responses."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.testing.judge.exchanges import Exchange
from odradek.testing.judge.topics import Topics


def note_topics(exchange: Exchange, topics: Topics) -> None:
    """Records which topic names and ids belong together according to a response, and which topics the response confirms
    as deleted."""
    if isinstance(exchange.request, DeleteTopicsRequest) and isinstance(exchange.answer, DeleteTopicsResponse):
        for each in exchange.answer.responses:
            if not each.error_code:
                topics.delete(each.name or topics.name_of(each.topic_id))
    for name, topic_id in _topic_ids(exchange):
        topics.link(name, topic_id)


def _topic_ids(exchange: Exchange) -> Iterator[tuple[str, bytes]]:
    answer = exchange.answer
    if isinstance(answer, MetadataResponse | DescribeTopicPartitionsResponse | CreateTopicsResponse):
        for topic in answer.topics:
            if not topic.error_code and topic.name:
                yield topic.name, topic.topic_id
