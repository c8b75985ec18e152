"""`odradek.client.ShareConsumer` without `await`."""

from __future__ import annotations

from collections.abc import Callable

from odradek.client import share_consumer
from odradek.client.common.values import AcknowledgeType, ShareRecord
from odradek.client.sync.background import Blocking, blocking, on_the_loop, taking


class ShareConsumer(Blocking[share_consumer.ShareConsumer]):
    """Takes records of a share group in a program without event loop; for the settings see
    `odradek.client.ShareConsumer`. `on_acknowledged` runs in the thread of the event loop, and must not call this.

        with ShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="workers") as consumer:
            for records in consumer.getmany().values():
                ...

    Heartbeats continue in the background. It belongs to one thread at a time.
    """

    @taking(share_consumer.ShareConsumer)
    def __init__(self, make: Callable[[], share_consumer.ShareConsumer]) -> None:
        super().__init__(make)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records stay locked, as a broker last said; None before the first records."""
        return self._client.acquisition_lock_timeout_ms

    start = blocking(share_consumer.ShareConsumer.start)
    close = blocking(share_consumer.ShareConsumer.close)
    subscribe = on_the_loop(share_consumer.ShareConsumer.subscribe)
    unsubscribe = blocking(share_consumer.ShareConsumer.unsubscribe)
    subscription = on_the_loop(share_consumer.ShareConsumer.subscription)
    assignment = on_the_loop(share_consumer.ShareConsumer.assignment)
    getmany = blocking(share_consumer.ShareConsumer.getmany)
    commit = blocking(share_consumer.ShareConsumer.commit)
    share_group_metadata = on_the_loop(share_consumer.ShareConsumer.share_group_metadata)

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """See `odradek.client.ShareConsumer.acknowledge`. Waits for nothing."""
        self._client.acknowledge(record, kind)
