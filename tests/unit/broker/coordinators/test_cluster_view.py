"""Tests that the group coordinator's view of the cluster follows the metadata image."""

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.coordinators.cluster_view import ImageView
from odradek.broker.metadata.image import MetadataImage
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.topic_record import TopicRecord

TOPIC_ID = b"topic-id-of-16-b"


def registered(rack: str) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=1, rack=rack)


def partition(index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
    )


def test_the_view_follows_new_partitions_and_changed_racks() -> None:
    image = MetadataImage()
    view = ImageView(image, BrokerConfig({}).current_text)
    assert view.topic("t") is None
    for record in (registered("a"), TopicRecord(name="t", topic_id=TOPIC_ID), partition(0)):
        image.replay(record)
    seen = view.topic("t")
    assert seen is not None
    assert seen.partition_racks == (("a",),)
    assert view.topic_of_id(TOPIC_ID) is seen  # the object is created only once
    image.replay(partition(1))
    grown = view.topic("t")
    assert grown is not None
    assert grown.partition_racks == (("a",), ("a",))
    image.replay(registered("b"))
    moved = view.topic("t")
    assert moved is not None
    assert moved.partition_racks == (("b",), ("b",))
