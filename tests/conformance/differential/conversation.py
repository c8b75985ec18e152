"""A scripted conversation with a broker, and its recording as a comparable trace: the field paths and values of every
response.

Values that necessarily differ between two brokers (ids, addresses, times) are replaced by names in order of appearance,
so the trace still shows whether two responses have the same topic id.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from odradek.protocol.batch_header import batches
from odradek.protocol.codec import encode
from odradek.protocol.errors import UnsupportedVersion
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.records import records_of
from odradek.protocol.struct import ZERO_UUID, Message, Struct
from tests.support.wire import ClosedByBroker, Wire

Value = object
Trace = list[tuple[str, dict[str, Value]]]  # label of the request, and its response by field path

NAMED_IN_ORDER = {"topic_id", "producer_id", "session_id", "leader_id_of_group"}
MEMBER_ID = re.compile(r"^(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
# pattern of the member ids that a consumer group's coordinator generates
PLAIN_MEMBER_ID = re.compile(r"[A-Za-z0-9_-]{22}")
ANSWER_TIMEOUT_S = 6.0  # after this time the trace records "no answer"
PREPARATION_TIMEOUT_S = 20.0
SAME_HOUR_MS = 3_600_000
SORTED_BY = (  # Lists whose order is arbitrary are sorted by these fields.
    "group_id",
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "api_key",
    "partition_index",
    "partition",
    "broker_id",
    "member_id",
)


@dataclass(frozen=True, slots=True)
class Place:
    """A broker's address, log directory and cluster id. Traces contain placeholders for these values."""

    bootstrap: str
    log_dir: str
    cluster_id: str


class Talk:
    """One connection and its trace. `also()` opens another connection that records into the same trace."""

    def __init__(self, place: Place, client_id: str = "talk") -> None:
        self.place = place
        self.client_id = client_id
        self._answers: list[tuple[str, Any]] = []
        self._wire = Wire(place.bootstrap, client_id, ANSWER_TIMEOUT_S)
        self._others: list[Talk] = []

    def also(self, client_id: str = "also") -> "Talk":
        other = Talk(self.place, client_id)
        other._answers = self._answers
        self._others.append(other)
        return other

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._wire.close()

    def ask(self, label: str, request: Message, version: int) -> Any:
        """Sends a request, records the response in the trace, and returns it.

        Returns None if there is no response. If this version of the request cannot encode one of its fields, returns
        None and sends nothing.
        """
        if not self.send(label, request, version):
            return None
        return self.receive(label, request, version)

    def send(self, label: str, request: Message, version: int) -> bool:
        try:
            encode(request, version)
        except UnsupportedVersion:
            return False
        self._wire.send(request, version)
        return True

    def receive(self, label: str, request: Message, version: int) -> Any:
        label = f"{label}: {type(request).__name__} v{version}"
        try:
            answer = self._wire.receive(request.API_KEY, version)
        except (ClosedByBroker, TimeoutError) as end:
            self._answers.append((label, "closed" if isinstance(end, ClosedByBroker) else "no answer"))
            self._reconnect()
            return None
        self._answers.append((label, answer))
        return answer

    def note(self, label: str, value: object) -> None:
        self._answers.append((label, value))

    def send_frame(self, label: str, frame: bytes, *, wait_s: float = ANSWER_TIMEOUT_S, show: bool = True) -> None:
        """Sends `frame`, which includes its length prefix, and records whether the broker answers. If `show` is true,
        also records the response's bytes."""
        wire = Wire(self.place.bootstrap, None, wait_s)
        try:
            wire.send_bytes(frame)
            answer = wire.receive_bytes()
            outcome = f"answered {answer.hex()}" if show else "answered"
        except ClosedByBroker:
            outcome = "closed"
        except TimeoutError:
            outcome = "no answer"
        wire.close()
        self._answers.append((label, outcome))

    def quietly(self, request: Message, version: int) -> Any:
        """Sends a request without recording it, to prepare a comparison. Its timeout is longer than that of `ask`,
        because the machine may be busy."""
        self._wire.set_timeout(PREPARATION_TIMEOUT_S)
        self._wire.send(request, version)
        answer = self._wire.receive(request.API_KEY, version)
        self._wire.set_timeout(ANSWER_TIMEOUT_S)
        return answer

    def _reconnect(self) -> None:
        self._wire.close()
        self._wire = Wire(self.place.bootstrap, self.client_id, ANSWER_TIMEOUT_S)

    def make_topic(self, name: str, partitions: int = 1, **config: object) -> bytes:
        """Creates a topic, waits until its partitions have leaders, and returns its id. Setting names use `_` in place
        of `.`."""
        configs = [CreatableTopicConfig(name=k.replace("_", "."), value=str(v)) for k, v in config.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        created = self.quietly(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7)
        assert created.topics[0].error_code == 0, created
        self.wait_until_led(name, partitions)
        topic_id: bytes = created.topics[0].topic_id
        return topic_id

    def wait_until_led(self, name: str, partitions: int = 1) -> None:
        """Waits until the broker leads every partition. Kafka's metadata names a leader before that broker accepts the
        role."""
        parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])
        deadline = time.monotonic() + 20
        while any(one.error_code for one in self.quietly(request, 7).topics[0].partitions):
            assert time.monotonic() < deadline, f"{name} is not led"
            time.sleep(0.02)

    def wait_until_gone(self, name: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + 20
        while self.quietly(request, 12).topics[0].error_code != 3:
            assert time.monotonic() < deadline, f"{name} does not go"
            time.sleep(0.02)

    def trace(self) -> Trace:
        namer = Namer(self.place)
        return [(label, namer.flatten(answer)) for label, answer in self._answers]


class Namer:
    """Turns responses into field paths and comparable values and remembers the names that it has assigned."""

    def __init__(self, place: Place) -> None:
        host, _, port = place.bootstrap.rpartition(":")
        self._fixed = {
            ("host", host): "<host>",
            ("host", f"/{host}"): "</host>",
            ("port", int(port)): "<port>",
            ("cluster_id", place.cluster_id): "<cluster id>",
            ("log_dir", place.log_dir): "<log dir>",
        }
        self._names: dict[str, dict[object, str]] = defaultdict(dict)
        self._now_ms = int(time.time() * 1000)

    def flatten(self, answer: object) -> dict[str, Value]:
        if not isinstance(answer, Struct):
            return {"": answer}
        found: dict[str, Value] = {}
        self._walk("", "", answer, found)
        return found

    def _walk(self, path: str, field: str, value: object, found: dict[str, Value]) -> None:
        if isinstance(value, Struct):
            for name in value.__slots__:
                self._walk(f"{path}.{name}" if path else name, name, getattr(value, name), found)
        elif isinstance(value, list):
            found[f"{path}.#"] = len(value)
            for place, element in enumerate(sorted(value, key=ORDERS.get(field, _order))):
                self._walk(f"{path}[{_key(element, place)}]", field, element, found)
        elif field == "records" and isinstance(value, (bytes, bytearray, memoryview)):
            self._walk_records(path, bytes(value), found)
        else:
            found[path] = self._named(field, value)

    def _walk_records(self, path: str, data: bytes, found: dict[str, Value]) -> None:
        """Adds complete batches to `found`. A partial batch at the end, which a fetch may return, is not compared."""
        count = 0
        for count, (position, header) in enumerate(batches(data), 1):
            for name, value in asdict(header).items():
                # The CRC covers times, which may differ; the other fields that it covers are compared.
                if name != "crc":
                    found[f"{path}[{count - 1}].{name}"] = self._named(name, value)
            for record in records_of(data, position):
                found[f"{path}[{count - 1}].{record.offset}"] = (
                    *(record.key, record.value, record.headers),
                    self._named("timestamp", record.timestamp),
                )
        found[f"{path}.#"] = count

    def _named(self, field: str, value: object) -> object:
        if (field, value) in self._fixed:
            return self._fixed[field, value]
        if field in NAMED_IN_ORDER and value not in (-1, 0, ZERO_UUID):
            names = self._names[field]
            return names.setdefault(value, f"<{field} {len(names) + 1}>")
        # 0 is a valid producer id, and the first producer ids of the two brokers differ.
        if field == "producer_id" and value == 0:
            return self._names[field].setdefault(value, f"<{field} {len(self._names[field]) + 1}>")
        if isinstance(value, int) and "time" in field and abs(value - self._now_ms) < SAME_HOUR_MS:
            return "<now>"
        if field == "member_id" and isinstance(value, str) and PLAIN_MEMBER_ID.fullmatch(value):
            names = self._names["plain member"]
            return names.setdefault(value, f"<base64 {len(names) + 1}>")
        if isinstance(value, str) and (found := MEMBER_ID.match(value)):
            names = self._names["member"]
            return names.setdefault(value, f"{found[1]}-<uuid {len(names) + 1}>")
        return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def _order(element: object) -> tuple[str, ...]:
    if isinstance(element, int):  # a partition or replica in a set
        return (str(element).rjust(12),)
    return tuple(str(getattr(element, name, "")).rjust(12) for name in SORTED_BY if hasattr(element, name))


# Kafka stores these elements in sets, whose order depends on hashes or differs between processes.
ORDERS: Mapping[str, Callable[[Any], Any]] = {
    "subscribed_topic_names": str,
    "active_producers": lambda producer: producer.producer_id,
}


def _key(element: object, place: int) -> str:
    if not isinstance(element, Struct):
        return str(place)
    for name in ("name", "topic", "topic_name", "group_id", "resource_name", "api_key"):
        key = getattr(element, name, None)
        if isinstance(key, (str, int)) and key != "":
            return str(key)
    for name in ("partition_index", "partition", "index", "error_code"):
        if name != "error_code" and hasattr(element, name):
            return str(getattr(element, name))
    return str(place)


def differences(kafka: Trace, ours: Trace) -> list[tuple[str, str, Value, Value]]:
    """Returns the label, field path, Kafka's value and Odradek's value for each difference. A missing field has the
    value '<absent>'."""
    found: list[tuple[str, str, Value, Value]] = []
    for (label, theirs), (our_label, own) in zip(kafka, ours, strict=False):
        if label != our_label:
            return [*found, (label, "<the talk took another course>", label, our_label)]
        for path in sorted(theirs.keys() | own.keys()):
            one, other = theirs.get(path, "<absent>"), own.get(path, "<absent>")
            if one != other:
                found.append((label, path, one, other))
    if len(kafka) != len(ours):
        found.append(("<end>", "<answers>", len(kafka), len(ours)))
    return found
