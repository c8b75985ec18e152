"""The metrics that all clients have: connections and requests, both in total and per broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from odradek.client.metrics.sensors import Clock, MetricGroup, Sensor, Sensors
from odradek.client.metrics.values import Metric, Metrics, Unit
from odradek.protocol.api_keys import ApiKey

Address = tuple[str, int]


class ApiSensors:
    """Measures the requests and responses of one API."""

    __slots__ = ("latency_ms", "sent_at_s", "throttle_ms")

    def __init__(self, *, latency_ms: Sensor, throttle_ms: Sensor | None = None) -> None:
        self.latency_ms = latency_ms
        self.throttle_ms = throttle_ms
        self.sent_at_s: float | None = None


class NodeMeter:
    """Measures the requests and responses of all connections to one address."""

    __slots__ = ("_apis", "_clock", "closed_connections", "group", "latency_ms", "received_bytes", "sent_bytes")

    def __init__(self, group: MetricGroup, apis: Mapping[int, ApiSensors], closed: Sensor) -> None:
        """Creates the sensors for one address in `group`.

        apis     sensors by API key, for the APIs measured separately
        closed   counts connections that were closed or lost
        """
        self.group = group
        self.closed_connections = closed
        self._apis = apis
        self._clock = group.clock
        self.sent_bytes = Sensor(group.clock)
        self.received_bytes = Sensor(group.clock)
        self.latency_ms = group.average("request-latency", Unit.MILLISECONDS, "time from a request to its answer")
        add_requests(group, lambda: (self,))

    def record_request(self, api_key: int, size_bytes: int) -> float:
        """Records a request. Returns the request's time, to be passed to `record_response` later."""
        now_s = self._clock()
        self.sent_bytes.record(size_bytes, now_s)
        api = self._apis.get(api_key)
        if api is not None:
            api.sent_at_s = now_s
        return now_s

    def record_response(self, api_key: int, sent_at_s: float, size_bytes: int, throttle_ms: int) -> None:
        now_s = self._clock()
        latency_ms = (now_s - sent_at_s) * 1000
        self.received_bytes.record(size_bytes, now_s)
        self.latency_ms.record(latency_ms, now_s)
        api = self._apis.get(api_key)
        if api is not None:
            api.latency_ms.record(latency_ms, now_s)
            if api.throttle_ms is not None:
                api.throttle_ms.record(throttle_ms, now_s)


def add_requests(group: MetricGroup, nodes: Callable[[], Iterable[NodeMeter]]) -> None:
    """Adds metrics that combine the requests to all these nodes and their responses."""
    sent, received = (
        Sensors(lambda: [each.sent_bytes for each in nodes()]),
        Sensors(lambda: [each.received_bytes for each in nodes()]),
    )
    group.average_of(sent, "request-size", Unit.BYTES, "size of a request in bytes")
    group.meter_of(sent, "request", "requests", counts_events=True)
    group.meter_of(sent, "outgoing-byte", "bytes sent", is_bytes=True)
    group.meter_of(received, "incoming-byte", "bytes received", is_bytes=True)
    group.meter_of(received, "response", "responses", counts_events=True)


class ClientMetrics:
    """A client's metrics. Subclasses add the metrics for a producer or a consumer."""

    def __init__(self, prefix: str, client_id: str, clock: Clock = time.monotonic) -> None:
        """Creates the metrics. `prefix` is the prefix of the metric groups: producer, consumer or admin-client."""
        self.clock = clock
        self._prefix = prefix
        self._client_id = client_id
        self.client = MetricGroup(f"{prefix}-metrics", clock)
        self._groups: list[MetricGroup] = [self.client]
        self._apis: dict[int, ApiSensors] = {}
        self._nodes: dict[Address, NodeMeter] = {}
        add_requests(self.client, lambda: list(self._nodes.values()))
        # The cluster sets `count_connections` and `node_id_of`.
        self.count_connections: Callable[[], int] = lambda: 0
        self.node_id_of: Callable[[Address], int | None] = lambda _: None
        self.client.gauge("connection-count", Unit.COUNT, "open connections", lambda: float(self.count_connections()))
        self.created_connections = self.client.meter("connection-creation", "connections opened")
        self.closed_connections = self.client.meter("connection-close", "connections closed or lost")
        self.logins = self.client.meter("successful-authentication", "successful authentications with SASL or TLS")
        self.refused_logins = self.client.meter("failed-authentication", "refused authentications with SASL or TLS")

    def node(self, host: str, port: int) -> NodeMeter:
        """Returns the meter for connections to this address."""
        address = (host, port)
        found = self._nodes.get(address)
        if found is None:
            group = MetricGroup(f"{self._prefix}-node-metrics", self.clock)
            found = self._nodes[address] = NodeMeter(group, self._apis, self.closed_connections)
        return found

    def read(self) -> Metrics:
        """Returns all metrics with their current values. Thread-safe."""
        return Metrics(tuple(self._read()))

    def _read(self) -> Iterable[Metric]:
        tags = {"client-id": self._client_id}
        for group in self._groups:
            yield from group.read(tags)
        for address, meter in list(self._nodes.items()):
            node_id = self.node_id_of(address)
            if node_id is not None:
                yield from meter.group.read({**tags, "node-id": f"node-{node_id}"})

    # Methods for subclasses.

    def _group(self, name: str) -> MetricGroup:
        group = MetricGroup(name, self.clock)
        self._groups.append(group)
        return group

    def measure_api(self, api: ApiKey, *, latency_ms: Sensor, throttle_ms: Sensor | None = None) -> ApiSensors:
        sensors = self._apis[api.value] = ApiSensors(latency_ms=latency_ms, throttle_ms=throttle_ms)
        return sensors

    def seconds_since(self, sensors: Iterable[ApiSensors]) -> Callable[[], float]:
        """Returns a function that computes the seconds since the last request to one of these APIs. As in Kafka, it
        returns -1 before the first request."""
        of = list(sensors)

        def read() -> float:
            sent = [each.sent_at_s for each in of if each.sent_at_s is not None]
            return self.clock() - max(sent) if sent else -1.0

        return read
