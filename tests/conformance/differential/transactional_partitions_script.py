"""Scripts for transactions in partitions and groups: Produce, Fetch, ListOffsets, TxnOffsetCommit, WriteTxnMarkers and
DescribeProducers. `level` is the transaction.version of both brokers."""

from typing import Any

from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
from odradek.protocol.messages.describe_producers_request import TopicRequest as ProducersOf
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.struct import ZERO_UUID
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.records_script import BASE_MS, NOBODY, batch, everything
from tests.conformance.differential.transactional_client import Client
from tests.conformance.differential.transactions_script import LevelScript, wait_for_coordinators

COMMITTED = 1  # the isolation level read_committed
FIRST_VERSION = {0: 3, 1: 4, 2: 2}  # by API key: the first version with transactions


def produce(talk: Talk, version: int, level: int) -> None:
    name = f"tx-produce-{version}-{level}"
    topic_id = talk.make_topic(name, 4)
    client = Client(talk, name).init()

    def ask(label: str, records: bytes | None = None, partition: int = 0, of: str = name, **more: Any) -> None:
        data = client.records(of, b"v", partition=partition) if records is None else records
        id_ = (topic_id if of == name else NOBODY) if version >= 13 else None
        request = client.produce_request(of, data, partition=partition, topic_id=id_, **more)
        talk.ask(label, request, version)
        talk.ask(f"state after: {label}", DescribeTransactionsRequest(transactional_ids=[name]), 0)

    ask("not added")
    client.init().begin(name, 0)
    ask("added")
    ask("added, the next")
    ask("another partition, not added", partition=1)
    ask("without transactional id", client.records(name, b"v", partition=0), transactional_id=None)
    ask("with another transactional id", client.records(name, b"v", partition=2), 2, transactional_id=f"{name}-other")
    ask("of an older epoch", client.records(name, b"v", producer_epoch=client.epoch - 1))
    ask("of a future epoch", client.records(name, b"v", producer_epoch=client.epoch + 1))
    ask("of another producer", client.records(name, b"v", producer_id=client.producer_id + 1_000_000), 3)
    ask("a batch that is not transactional", client.records(name, b"v", is_transactional=False))
    ask("a batch without producer", batch(b"plain"))
    ask("a partition that does not exist", client.records(name, b"v"), 9)
    client.init()
    ask("after the abort, not added")
    client.init().begin(name, 0, 2)
    ask("does not begin at sequence 0", client.records(name, b"v", partition=2, base_sequence=7), 2)
    ask("begins at 0", client.records(name, b"v", partition=2, base_sequence=0), 2)
    ask("a duplicate", client.records(name, b"v", partition=2, base_sequence=0), 2)
    client.end()
    ask("after the commit", client.records(name, b"v", partition=2, base_sequence=1), 2)
    client.init().begin(name, 3).end(commit=True)
    ask("a duplicate of what nobody sent", client.records(name, b"v", partition=3), 3)
    client.init()
    for partition in range(4):
        everything(talk, name, topic_id, partition)
    if version < 13:  # Requests of these versions identify topics by name.
        request = client.produce_request("__consumer_offsets", client.records("__consumer_offsets", b"v"))
        talk.ask("the offsets", request, version)


def read(talk: Talk, version: int, level: int) -> None:
    """Fetches a log with transactions from each of its offsets, at several isolation levels."""
    name = f"tx-fetch-{version}-{level}"
    topic_id = talk.make_topic(name)
    prepare(talk, name)

    def ask(label: str, offset: int, isolation: int = COMMITTED, limit: int = 1_000_000) -> None:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
        topic = FetchTopic(topic_id=topic_id) if version >= 13 else FetchTopic(topic=name)
        topic.partitions = [part]
        request = FetchRequest(max_wait_ms=1, min_bytes=0, max_bytes=50_000_000, isolation_level=isolation)
        request.topics = [topic]
        talk.ask(label, request, version)

    for offset in range(16):
        ask(f"committed from {offset}", offset)
    ask("all", 0, isolation=0)
    ask("committed, little", 0, limit=150)
    ask("committed, little more", 2, limit=300)
    ask("an unknown isolation level", 0, isolation=2)


def prepare(talk: Talk, topic: str) -> None:
    """Writes a committed transaction, an aborted one, two interleaved ones, a non-transactional record, and an open
    transaction followed by another non-transactional record."""
    one, two = Client(talk, f"{topic}-one").init(), Client(talk, f"{topic}-two").init()
    one.begin(topic).send(topic, b"committed", b"too").end()
    one.init().begin(topic).send(topic, b"aborted").end(commit=False)
    one.init().begin(topic).send(topic, b"interleaved, aborted")
    two.begin(topic).send(topic, b"interleaved, committed")
    one.end(commit=False)
    two.end()
    talk.quietly(one.produce_request(topic, batch(b"plain"), transactional_id=None), 11)
    two.init().begin(topic).send(topic, b"open")
    talk.quietly(one.produce_request(topic, batch(b"behind it"), transactional_id=None), 11)


def list_offsets(talk: Talk, version: int, level: int) -> None:
    name = f"tx-offsets-{version}-{level}"
    talk.make_topic(name)
    prepare(talk, name)
    for isolation in (0, COMMITTED, 2):
        for timestamp in (-1, -2, -3, -4, -5, -6, 0, BASE_MS, BASE_MS + 1, BASE_MS + 1000, 4_000_000_000_000):
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topics = [ListOffsetsTopic(name=name, partitions=[part])]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
            talk.ask(f"isolation {isolation}, at {timestamp}", request, version)


def describe_producers(talk: Talk, version: int, level: int) -> None:
    name = f"tx-producers-{version}-{level}"
    talk.make_topic(name)
    client = Client(talk, name).init()
    request = DescribeProducersRequest(topics=[ProducersOf(name=name, partition_indexes=[0])])
    client.begin(name)
    talk.ask("added only", request, version)
    client.send(name, b"v")
    talk.ask("open", request, version)
    client.end()
    talk.ask("committed", request, version)
    client.init().begin(name).send(name, b"v")
    talk.ask("open again", request, version)
    client.end(commit=False)
    talk.ask("aborted", request, version)


def write_txn_markers(talk: Talk, version: int, level: int) -> None:
    name = f"tx-markers-{version}-{level}"
    topic_id = talk.make_topic(name, 4)
    client = Client(talk, name).init()

    def marker(*partitions: int, of: str = name, commit: bool = True, **more: Any) -> WritableTxnMarker:
        fields: dict[str, Any] = {
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch,
            "coordinator_epoch": 0,
            "transaction_result": commit,
            "topics": [WritableTxnMarkerTopic(name=of, partition_indexes=list(partitions or (0,)))],
        }
        return WritableTxnMarker(**(fields | more))

    def ask(label: str, *markers: WritableTxnMarker) -> None:
        talk.ask(label, WriteTxnMarkersRequest(markers=list(markers)), version)

    ask("none")
    ask("of nothing that is open", marker())
    ask("of an unknown topic", marker(of="nobody-made-this"))
    ask("of an unknown partition", marker(9))
    ask("of a producer that nobody knows", marker(1, producer_id=client.producer_id + 1_000_000, producer_epoch=3))
    client.init().begin(name, 0, 2).send(name, b"v").send(name, b"w", partition=2)
    ask("of an older epoch", marker(producer_epoch=client.epoch - 1))
    ask("two partitions, of which one is unknown", marker(2, 9))
    ask("commit", marker())
    ask("the same again", marker())
    ask("abort what is committed", marker(commit=False))
    ask("of a newer epoch", marker(3, producer_epoch=client.epoch + 1))
    ask("of the epoch before that", marker(3))
    ask("of a newer coordinator", marker(3, coordinator_epoch=1000, producer_epoch=client.epoch + 1))
    ask("of an older coordinator", marker(3, coordinator_epoch=999, producer_epoch=client.epoch + 1))
    ask("of a negative epoch", marker(1, producer_epoch=-1))
    ask("of a negative producer id", marker(1, producer_id=-1))
    if version >= 2:
        for transaction_version in (0, 1, 2, 3):
            one = marker(1, transaction_version=transaction_version, producer_epoch=client.epoch + 2)
            ask(f"of transaction version {transaction_version}", one)
            ask(f"of transaction version {transaction_version}, again", one)
    ask("two markers", marker(1, producer_epoch=client.epoch + 3), marker(3, producer_epoch=client.epoch + 3))
    for partition in range(4):
        everything(talk, name, topic_id, partition)


FIRST_VERSION_WITH_IDS = 6  # first version of TxnOffsetCommit with topic ids


def txn_offset_commit(talk: Talk, version: int, level: int) -> None:
    """Commits offsets in a transaction, including offsets for unknown topics, partitions, groups and members (T1, T2
    and T8 to T10 of docs/spec/kafka-4.4.md#s5-2)."""
    wait_for_coordinators(talk)
    name = f"tx-group-{version}-{level}"
    ids = {name: talk.make_topic(name, 2)}
    client = Client(talk, name).init()

    def ask(label: str, offset: int = 7, of: str = name, partition: int = 0, metadata: str = "m", **more: Any) -> None:
        part = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topic = TxnOffsetCommitRequestTopic(name=of, partitions=[part])
        if version >= FIRST_VERSION_WITH_IDS:
            topic = TxnOffsetCommitRequestTopic(topic_id=ids.get(of, NOBODY), partitions=[part])
        fields = {"group_id": name, "topics": [topic]} | client.pair
        talk.ask(label, TxnOffsetCommitRequest(**(fields | more)), version)
        talk.ask(f"state after: {label}", DescribeTransactionsRequest(transactional_ids=[name]), 0)

    def look(label: str) -> None:
        for is_stable in (False, True):
            fetch_topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1])]
            groups = [OffsetFetchRequestGroup(group_id=name, topics=fetch_topics)]
            talk.ask(f"{label}, stable {is_stable}", OffsetFetchRequest(groups=groups, require_stable=is_stable), 8)

    ask("not added")
    client.init().begin_offsets(name)
    ask("added")
    look("pending")
    ask("the same partition again", 8)
    ask("an unknown topic", of="nobody-made-this")
    ask("an unknown partition", partition=7)
    if version >= FIRST_VERSION_WITH_IDS:
        ids["zero"] = ZERO_UUID
        ask("no topic id", of="zero")
    ask("a negative offset", -1, partition=1)
    ask("too much metadata", metadata="m" * 5000, partition=1)
    ask("no topics", topics=[])
    ask("another group", group_id=f"{name}-other")
    ask("no group", group_id="")
    ask("an unknown transactional id", transactional_id=f"{name}-unknown")
    ask("an empty transactional id", transactional_id="")
    ask("another producer id", producer_id=client.producer_id + 1_000_000)
    ask("an older epoch", producer_epoch=client.epoch - 1)
    ask("a future epoch", producer_epoch=client.epoch + 1)
    if version >= 3:
        ask("an unknown member", member_id="nobody", generation_id_or_member_epoch=1)
        ask("a generation without member", generation_id_or_member_epoch=5)
        ask("an instance without member", group_instance_id="nobody")
    client.end()
    look("committed")
    ask("after the commit", 20)
    look("after the commit")
    client.init().begin_offsets(name)
    ask("to be aborted", 30, partition=1)
    look("pending again")
    client.end(commit=False)
    look("aborted")


SCRIPTS: dict[LevelScript, int] = {
    produce: 0,
    read: 1,
    list_offsets: 2,
    describe_producers: 61,
    write_txn_markers: 27,
    txn_offset_commit: 28,
}
