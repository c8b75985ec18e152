"""Tests that requests leave no reference cycles, so that their memory is freed immediately.

The garbage collector rarely runs in a broker that is serving clients. A cycle around a request would keep its frame,
perhaps a megabyte, for a long time.
"""

import gc
from collections.abc import Callable

import pytest

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records import Compression, NewRecord, build_batch
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk
from tests.support.peer import Peer, server_around
from tests.support.txn_share_broker import ACCEPT, TxnShareBroker

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 9, 12, 6, 12  # request versions


class Scene(BrokerScene):
    def __init__(self) -> None:
        self.disk = FakeDisk()
        super().__init__(self.disk, "/data")
        self.topic("t", 2)
        dispatcher = Dispatcher(self.broker, self.clock, handler_of, fast_path_of=fast_path_of)
        self.server = server_around(dispatcher, None, self.timers)
        self.peer = Peer(self.server)

    def produce(self, *partitions: int, acks: int = -1, compression: Compression = Compression.NONE) -> None:
        batch = build_batch([NewRecord(b"k", b"value", NOW_MS)], compression=compression)
        data = [PartitionProduceData(index=index, records=batch) for index in partitions]
        request = ProduceRequest(
            acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        self.peer.ask(request, PRODUCE)
        self.settle()

    def fetch(self, offset: int = 0, *, max_wait_ms: int = 0) -> None:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
        topic = FetchTopic(topic="t", partitions=[partition])
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1_000_000, topics=[topic])
        self.peer.ask(request, FETCH)
        self.settle()

    def fetch_what_comes(self) -> None:
        self.fetch(self.partition("t").log.high_watermark, max_wait_ms=500)

    def list_offsets(self) -> None:
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)]
        self.peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)]), LIST_OFFSETS)
        self.settle()


def woken(scene: Scene) -> None:
    scene.fetch_what_comes()
    consumer, scene.peer = scene.peer, Peer(scene.server)
    scene.produce(0)
    scene.peer.hang_up()
    scene.peer = consumer


def timed_out(scene: Scene) -> None:
    scene.fetch_what_comes()
    scene.timers.advance(500)


def left_while_it_waited(scene: Scene) -> None:
    scene.fetch_what_comes()
    scene.peer.hang_up()
    scene.peer = Peer(scene.server)


REQUESTS: dict[str, Callable[[Scene], None]] = {
    "produce a lone batch": lambda scene: scene.produce(0),
    "produce to two partitions": lambda scene: scene.produce(0, 1),
    "produce compressed": lambda scene: scene.produce(0, compression=Compression.LZ4),
    "produce without an answer": lambda scene: scene.produce(0, acks=0),
    "produce to no partition": lambda scene: scene.produce(7),
    "fetch what is there": lambda scene: scene.fetch(),
    "fetch out of range": lambda scene: scene.fetch(10_000),
    "fetch, woken": woken,
    "fetch, timed out": timed_out,
    "fetch, and leave": left_while_it_waited,
    "list offsets": Scene.list_offsets,
    "metadata": lambda scene: scene.peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), METADATA),
}


def left_after(ask: Callable[[], object]) -> int:
    """Sends the request three times. Returns the number of unreachable objects that the garbage collector finds
    afterwards."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            ask()
        return gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
async def test_a_request_leaves_nothing_for_the_collector(request_: Callable[[Scene], None]) -> None:
    scene = Scene()
    scene.produce(0)
    request_(scene)  # The first request imports modules and compiles codecs, which leaves garbage.

    def ask() -> None:
        request_(scene)
        scene.peer.frames()

    # A leak caused by the request appears in every attempt. Threads of clients in other tests leave objects too, but
    # only occasionally.
    assert min(left_after(ask) for _ in range(5)) == 0


class SharingScene(TxnShareBroker):
    """A broker with a producer in a transaction, and a member of a share group that can acquire records."""

    def __init__(self) -> None:
        super().__init__()
        self.topic("t", 2)
        self.topic_id = self.shared_topic("T", *[1] * 100)
        self.worker = self.joined("m")
        self.pay = self.producer()

        self.offset = 0

    def transaction(self) -> None:
        producer_id, producer_epoch = self.pay.pair
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="pay",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
        )
        self.answer(request, 3, AddPartitionsToTxnResponse)
        assert self.pay.commit() == ErrorCode.NONE

    def acknowledged(self) -> None:
        self.worker.acquire(self.topic_id, max_records=1)
        assert self.worker.ack_code(self.topic_id, (self.offset, self.offset, ACCEPT)) == ErrorCode.NONE
        self.offset += 1

    def acknowledged_in_a_transaction(self) -> None:
        self.worker.acquire(self.topic_id, max_records=1)
        self.pay.stage(self.worker, {self.topic_id: [(self.offset, self.offset, ACCEPT)]})
        assert self.pay.commit() == ErrorCode.NONE
        self.offset += 1


@pytest.mark.parametrize(
    "request_",
    [SharingScene.transaction, SharingScene.acknowledged, SharingScene.acknowledged_in_a_transaction],
)
def test_a_transaction_leaves_nothing_for_the_collector(request_: Callable[[SharingScene], None]) -> None:
    scene = SharingScene()
    request_(scene)
    assert min(left_after(lambda: request_(scene)) for _ in range(5)) == 0
