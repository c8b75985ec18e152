"""The metrics that only producers have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from odradek.client.metrics.client_metrics import ClientMetrics
from odradek.client.metrics.sensors import Clock, MetricGroup, Sensor, Sensors
from odradek.client.metrics.values import Metric, Unit
from odradek.protocol.api_keys import ApiKey


class TopicSensors:
    """Measures one topic's records."""

    __slots__ = ("batch_bytes", "compression", "errors", "group", "retries", "sent")

    def __init__(self, group: MetricGroup) -> None:
        self.group = group
        self.sent = group.meter("record-send", "records sent")
        self.batch_bytes = group.meter("byte", "bytes of batches sent", is_bytes=True)
        self.retries = group.meter("record-retry", "records sent again")
        self.errors = group.meter("record-error", "records given up")
        self.compression = Sensor(group.clock)
        group.gauge(
            "compression-rate",
            Unit.RATIO,
            "average ratio of the size of a batch after and before compression",
            Sensors(lambda: (self.compression,)).average,
        )


class ProducerMetrics(ClientMetrics):
    def __init__(self, client_id: str, clock: Clock = time.monotonic) -> None:
        super().__init__("producer", client_id, clock)
        group = self.client
        self._topics: dict[str, TopicSensors] = {}
        self.measure_api(
            ApiKey.PRODUCE,
            latency_ms=group.average("request-latency", Unit.MILLISECONDS, "time from a Produce request to its answer"),
            throttle_ms=group.average("produce-throttle-time", Unit.MILLISECONDS, "throttle time of a Produce request"),
        )
        self._records = group.average(
            "records-per-request", Unit.COUNT, "records in a Produce request", has_maximum=False
        )
        group.meter_of(self._records, "record-send", "records sent, including retries")
        batch_bytes = Sensors(lambda: [each.batch_bytes for each in list(self._topics.values())])
        group.average_of(batch_bytes, "batch-size", Unit.BYTES, "size of a batch in bytes as it was sent")
        group.average_of(
            Sensors(lambda: [each.compression for each in list(self._topics.values())]),
            "compression-rate",
            Unit.RATIO,
            "ratio of the size of a batch after and before compression",
            has_maximum=False,
        )
        self._queue_time = group.average(
            "record-queue-time",
            Unit.MILLISECONDS,
            "time from the first record of a batch until the batch is first sent",
        )
        retries = Sensors(lambda: [each.retries for each in list(self._topics.values())])
        group.meter_of(retries, "record-retry", "records sent again")
        errors = Sensors(lambda: [each.errors for each in list(self._topics.values())])
        group.meter_of(errors, "record-error", "records given up")
        self.splits = group.meter("batch-split", "batches that were split because they were too large for their topic")
        self.buffer_wait = group.time_spent("bufferpool-wait", "time that `send` has waited for space in the buffer")
        self.buffer_exhausted = group.meter(
            "buffer-exhausted", "calls of `send` that got no space in the buffer in time"
        )
        self.metadata_wait = group.time_spent("metadata-wait", "time that `send` has waited for metadata of a topic")
        self.flush = group.time_spent("flush", "time spent in `flush`")
        self.init = group.time_spent("txn-init", "time spent in `init_transactions`")
        self.begin = group.time_spent("txn-begin", "time spent in `begin_transaction`")
        self.send_offsets = group.time_spent("txn-send-offsets", "time spent in `send_offsets_to_transaction`")
        self.prepare = group.time_spent("txn-prepare", "time spent in `prepare_transaction` (KIP-939)")
        self.commit = group.time_spent("txn-commit", "time spent in `commit_transaction`")
        self.abort = group.time_spent("txn-abort", "time spent in `abort_transaction`")
        self.acknowledgements = group.meter(
            "share-ack-txn-send", "calls of `send_share_acknowledgements_to_transaction` (KIP-1289)"
        )
        self.acknowledgement_errors = group.meter(
            "share-ack-txn-send-error", "failed calls of `send_share_acknowledgements_to_transaction` (KIP-1289)"
        )

    def watch(
        self,
        *,
        requests_in_flight: Callable[[], int],
        metadata_age_s: Callable[[], float],
        buffer_bytes: int,
        buffered_bytes: Callable[[], int],
        waiting: Callable[[], int],
    ) -> None:
        """Adds the metrics that are computed each time they are read."""
        group = self.client
        group.gauge("requests-in-flight", Unit.COUNT, "requests without an answer", lambda: float(requests_in_flight()))
        group.gauge("metadata-age", Unit.SECONDS, "time since the last answer to Metadata", metadata_age_s)
        group.gauge("buffer-total-bytes", Unit.BYTES, "`buffer_memory`", lambda: float(buffer_bytes))
        group.gauge(
            "buffer-available-bytes",
            Unit.BYTES,
            "free space in the buffer",
            lambda: float(max(0, buffer_bytes - buffered_bytes())),
        )
        group.gauge(
            "waiting-threads", Unit.COUNT, "calls of `send` that wait for space in the buffer", lambda: float(waiting())
        )

    def record_batch(
        self, topic: str, records: int, size_bytes: int, compression: float, queued_s: float | None
    ) -> None:
        """Records that a batch is being sent.

        compression   ratio of the compressed to the uncompressed size
        queued_s      how long the first record has waited; None if the batch is being sent again
        """
        now_s = self.clock()
        if queued_s is not None:
            self._queue_time.record(queued_s * 1000, now_s)
        sensors = self._topic(topic)
        sensors.sent.record(records, now_s)
        sensors.batch_bytes.record(size_bytes, now_s)
        sensors.compression.record(compression, now_s)

    def record_request(self, records: int) -> None:
        """Records the number of records in a request."""
        self._records.record(records)

    def record_retries(self, topic: str, records: int) -> None:
        self._topic(topic).retries.record(records)

    def record_failures(self, topic: str, records: int) -> None:
        self._topic(topic).errors.record(records)

    def _topic(self, topic: str) -> TopicSensors:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicSensors(MetricGroup("producer-topic-metrics", self.clock))
        return found

    def _read(self) -> Iterable[Metric]:
        yield from super()._read()
        for topic, sensors in list(self._topics.items()):
            yield from sensors.group.read({"client-id": self._client_id, "topic": topic})
