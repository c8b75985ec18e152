"""Allocates producer ids in blocks. A recorded block belongs to one broker permanently."""

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import Decision
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord


def allocate_producer_ids(image: MetadataImage, count: int, *, node_id: int, broker_epoch: int) -> Decision[int]:
    """Allocates `count` unused producer ids. The response is the first of these ids."""
    first = image.next_producer_id
    record = ProducerIdsRecord(broker_id=node_id, broker_epoch=broker_epoch, next_producer_id=first + count)
    return Decision(first, (record,))
