"""Scripts that delete a topic and create it again while a session, a group or a transaction remembers its name or
id."""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.struct import ZERO_UUID
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.groups_script import wait_for_coordinator
from tests.conformance.differential.records_script import batch
from tests.conformance.differential.share_group_scene import ShareScene
from tests.conformance.differential.transactional_client import Client
from tests.conformance.differential.transactions_script import wait_for_coordinators

FIRST_VERSION_WITH_IDS = {1: 13, 8: 10, 9: 10, 28: 6}  # by API key: the first version with topic ids
PATIENCE_S = 20.0


def create_again(talk: Talk, name: str) -> bytes:
    """Deletes a topic, creates it again, and returns its new id."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=20_000)
    assert talk.quietly(request, 6).responses[0].error_code == 0
    talk.wait_until_gone(name)
    return talk.make_topic(name)


def fetch_session(talk: Talk, version: int) -> None:
    """Continues a fetch session after its topic was deleted and created again.

    A session with topic names continues with the new topic. In a session with topic ids, the response reports the
    changed id.
    """
    name = f"again-fetch-{version}"
    old = talk.make_topic(name)
    by_id = version >= FIRST_VERSION_WITH_IDS[1]

    def ask(label: str, session: int, epoch: int, topic_id: bytes = ZERO_UUID) -> Any:
        topics = [
            FetchTopic(
                topic="" if by_id else name,
                topic_id=topic_id if by_id else ZERO_UUID,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)],
            )
        ]
        request = FetchRequest(
            max_wait_ms=1,
            min_bytes=0,
            max_bytes=50_000_000,
            session_id=session,
            session_epoch=epoch,
            topics=[] if topic_id == ZERO_UUID else topics,
        )
        return talk.ask(label, request, version)

    session = ask("begins", 0, 0, old).session_id
    new = create_again(talk, name)
    ask("created again", session, 1)
    ask("still", session, 2)
    ask("names the old one", session, 3, old)
    ask("a new session for the old one", 0, 0, old)
    ask("a new session for the new one", 0, 0, new)


def group_offsets(talk: Talk, version: int) -> None:
    """Fetches offsets committed before the topic was deleted and created again (OffsetFetch)."""
    name = f"again-offsets-{version}"
    wait_for_coordinator(talk)
    old = talk.make_topic(name)

    def commit(label: str, topic_id: bytes) -> None:
        by_id = version >= FIRST_VERSION_WITH_IDS[8]
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topic = OffsetCommitRequestTopic(
            name="" if by_id else name, topic_id=topic_id if by_id else ZERO_UUID, partitions=[part]
        )
        talk.ask(label, OffsetCommitRequest(group_id=name, topics=[topic]), 10 if by_id else 9)

    def request(topic_id: bytes) -> OffsetFetchRequest:
        by_id = version >= FIRST_VERSION_WITH_IDS[9]
        topic = OffsetFetchRequestTopics(
            name="" if by_id else name, topic_id=topic_id if by_id else ZERO_UUID, partition_indexes=[0]
        )
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=[topic])])

    commit("commits", old)
    talk.ask("before", request(old), version)
    new = create_again(talk, name)
    deadline = time.monotonic() + PATIENCE_S  # The coordinator removes the offsets a moment after the topic is deleted.
    while talk.quietly(request(new), version).groups[0].topics[0].partitions[0].committed_offset != -1:
        assert time.monotonic() < deadline, "the offset stays"
        time.sleep(0.05)
    talk.ask("the new one", request(new), version)
    talk.ask("the old one", request(old), version)
    commit("commits for the old one", old)
    commit("commits for the new one", new)
    talk.ask("at the end", request(new), version)


def transactional_offsets(talk: Talk, version: int) -> None:
    """Commits offsets in a transaction, with the topic's old and new id (TxnOffsetCommit)."""
    name = f"again-transaction-{version}"
    wait_for_coordinators(talk)
    old = talk.make_topic(name)
    client = Client(talk, name).init().begin_offsets(name)

    def ask(label: str, topic_id: bytes) -> None:
        by_id = version >= FIRST_VERSION_WITH_IDS[28]
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topic = TxnOffsetCommitRequestTopic(
            name="" if by_id else name, topic_id=topic_id if by_id else ZERO_UUID, partitions=[part]
        )
        talk.ask(label, TxnOffsetCommitRequest(group_id=name, topics=[topic], **client.pair), version)

    ask("commits", old)
    new = create_again(talk, name)
    ask("the old one", old)
    ask("the new one", new)
    client.end()


def produced(talk: Talk, version: int) -> None:
    """Produces to the topic with its old and new id."""
    name = f"again-produce-{version}"
    old = talk.make_topic(name)
    client = Client(talk, name)
    new = create_again(talk, name)
    for label, topic_id in (("the old one", old), ("the new one", new)):
        request = client.produce_request(
            name, batch(b"v"), topic_id=topic_id if version >= 13 else None, transactional_id=None
        )
        talk.ask(label, request, version)


def share_session(talk: Talk, version: int) -> None:
    """Fetches and acknowledges records acquired before the topic was deleted and created again."""
    scene = ShareScene(talk, version, "again")
    scene.begin()
    scene.fetch("acquires", "A", 0, max_wait_ms=10_000)
    create_again(talk, scene.topic)
    scene.fetch("again, in the session", "A", 1, topics=[], max_wait_ms=1)
    scene.acknowledge("acknowledges for the old one", "A", 2, (0, 3, [1]))
    scene.fetch("again, by the old id", "A", 3, max_wait_ms=1)
    scene.fetch("again, in a new session", "A", 0, max_wait_ms=1)
    scene.leave()


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    fetch_session: 1,
    group_offsets: 9,
    transactional_offsets: 28,
    produced: 0,
    share_session: 78,
}
LOWEST = {fetch_session: 12, group_offsets: 9, transactional_offsets: 5, produced: 12}
