"""Scripts with transactional requests whose lists name an item twice, or that contain several errors."""

from typing import Any

from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
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
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.repeated_script import TWICE, Asker
from tests.conformance.differential.transactional_client import Client, partitions_of
from tests.conformance.differential.transactions_script import LevelScript


def add_partitions_twice(talk: Talk, version: int, level: int) -> None:
    name = f"add-twice-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic, 2)
    ask = Asker(talk, version)
    for label, split in TWICE.items():
        client = Client(talk, f"{name}-{label}").init()
        named = [partitions_of(topic, *partitions) for partitions in split]
        ask(f"{label}, one does not exist", client.add_request(*named, partitions_of(topic, 9, 9), version=version))
        ask(label, client.add_request(*named, version=version))
        talk.ask("state", DescribeTransactionsRequest(transactional_ids=[client.id]), 0)
        ask(f"{label}, by a stranger", client.add_request(*named, version=version, producer_epoch=77))
        if version >= 4:
            ask(f"{label}, to verify", client.add_request(*named, version=version, verify_only=True))


def txn_offset_commit_twice(talk: Talk, version: int, level: int) -> None:
    name = f"txn-offsets-twice-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic, 2)
    ask = Asker(talk, version)

    def commit_topic(*indexes: int, first: int, of: str = topic, note: str = "") -> TxnOffsetCommitRequestTopic:
        return TxnOffsetCommitRequestTopic(
            name=of,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=first + at, committed_metadata=note
                )
                for at, index in enumerate(indexes)
            ],
        )

    def request(client: Client, *topics: TxnOffsetCommitRequestTopic, **more: Any) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(**(client.pair | {"group_id": client.id, "topics": list(topics)} | more))

    for label, split in TWICE.items():
        client = Client(talk, f"{name}-{label}").init().begin_offsets(f"{name}-{label}")
        topics = [commit_topic(*partitions, first=10 * (1 + entry)) for entry, partitions in enumerate(split)]
        ask(label, request(client, *topics))
        for what, other in {
            "topic": commit_topic(0, first=1, of="nobody-made-this"),
            "partition": commit_topic(9, first=1),
            "long note": commit_topic(1, first=1, note="x" * 5000),
        }.items():
            ask(f"{label}, and twice a {what} that is refused", request(client, other, *topics, other))
            ask(f"{label}, and a {what}, by a stranger", request(client, other, *topics, other, producer_epoch=77))
        client.end()
        group = OffsetFetchRequestGroup(
            group_id=client.id, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        )
        talk.ask("then", OffsetFetchRequest(groups=[group]), 9)
    client = Client(talk, f"{name}-wrong").init().begin_offsets(f"{name}-wrong")
    for label, entry in {
        "good": commit_topic(0, first=1),
        "unknown": commit_topic(0, first=1, of="nobody-made-this"),
        "long": commit_topic(0, first=1, note="x" * 5000),
        "unknown and good": commit_topic(0, 9, first=1),
    }.items():
        ask(f"{label}, by a stranger", request(client, entry, producer_epoch=77))
        ask(f"{label}, of no group", request(client, entry, group_id=""))
        if version >= 3:
            ask(f"{label}, of no member", request(client, entry, member_id="nobody", generation_id_or_member_epoch=3))
            ask(
                f"{label}, of neither",
                request(client, entry, member_id="nobody", generation_id_or_member_epoch=3, producer_epoch=77),
            )


def write_txn_markers_twice(talk: Talk, version: int, level: int) -> None:
    name = f"markers-twice-{version}-{level}"
    topic = f"{name}-topic"
    talk.make_topic(topic, 2)
    client = Client(talk, name).init()
    ask = Asker(talk, version)

    def marker(*split: Any, **more: Any) -> WritableTxnMarker:
        fields: dict[str, Any] = {
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch,
            "transaction_result": False,
            "coordinator_epoch": 5,
            "topics": [WritableTxnMarkerTopic(name=topic, partition_indexes=list(each)) for each in split],
        }
        return WritableTxnMarker(**(fields | more))

    for label, split in TWICE.items():
        ask(label, WriteTxnMarkersRequest(markers=[marker(*split)]))
    ask("a producer twice", WriteTxnMarkersRequest(markers=[marker([0]), marker([1])]))
    ask(
        "an older coordinator behind it",
        WriteTxnMarkersRequest(markers=[marker([0]), marker([0], coordinator_epoch=1)]),
    )


SCRIPTS: dict[LevelScript, int] = {
    add_partitions_twice: 24,
    write_txn_markers_twice: 27,
    txn_offset_commit_twice: 28,
}
