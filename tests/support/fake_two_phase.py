"""An in-memory Kafka that takes part in two-phase commits. It has one transactional id, producer ids and epochs as in
KIP-939, and faults on request."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto

from odradek.client.common.values import ConsumerGroupMetadata, RecordMetadata, ShareGroupMetadata, TopicPartition
from odradek.client.producing.share_acknowledgements import ToAcknowledge, acknowledgements
from odradek.dualwrite.participant import Offsets, OutgoingMessage, ParticipantFenced

PRODUCER_ID = 1000


class ResponseLost(Exception):
    """Raised if no response arrives because the connection broke, the broker was unavailable, or the request timed
    out."""


class FaultTime(Enum):
    BEFORE = auto()  # the request has no effect
    AFTER = auto()  # the request takes effect, and only its response is lost


@dataclass(slots=True)
class OpenTransaction:
    """A transaction in the coordinator's state Ongoing."""

    state: str
    values: list[bytes | None] = field(default_factory=list)


class FakeKafka:
    """The state that outlives its clients. `committed` contains the messages that read_committed consumers see."""

    def __init__(self) -> None:
        self.committed: list[bytes | None] = []
        self.aborted: list[bytes | None] = []
        self.open: OpenTransaction | None = None
        self.is_away = False
        self.epoch = -1
        self.faults: dict[str, FaultTime] = {}  # by call name: its next fault, which happens once

    def participant(self) -> "FakeParticipant":
        return FakeParticipant(self)

    def take_over(self) -> int:
        self.epoch += 1
        return self.epoch

    def write(self, epoch: int, values: list[bytes | None]) -> None:
        self.check(epoch)
        if self.open is None:
            self.open = OpenTransaction(f"{PRODUCER_ID}:{epoch}")
        self.open.values += values

    def end(self, epoch: int, *, commit: bool) -> int:
        """Ends the transaction. Returns the epoch of the next transaction, as with transaction.version 2."""
        self.check(epoch)
        assert self.open is not None, "a client of version 2 asks for no end where it has added nothing"
        (self.committed if commit else self.aborted).extend(self.open.values)
        self.open = None
        return self.take_over()

    def check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ParticipantFenced(f"epoch {epoch} is not {self.epoch}")


class FakeParticipant:
    """A producer with the transactional id. Its messages are written when it prepares."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self._epoch = -1
        self._buffer: list[bytes | None] = []
        self._prepared: str | None = None

    def take_over(self) -> str:
        with _Call(self._kafka, "take_over"):
            self._epoch = self._kafka.take_over()
            self._prepared = self._kafka.open.state if self._kafka.open else None
        return self._prepared or ""

    def begin(self) -> None:
        assert self._prepared is None, "decide about the open transaction first"
        self._buffer = []

    def send(self, message: OutgoingMessage) -> "Future[RecordMetadata]":
        self._buffer.append(message.value)
        return Future()

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        with _Call(self._kafka, "send_offsets"):
            self._kafka.write(self._epoch, [b"%s-%d at %d" % (t.encode(), p, o) for (t, p), o in _plain(offsets)])

    def acknowledge(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        with _Call(self._kafka, "acknowledge"):
            given = acknowledgements(records)
            self._kafka.write(
                self._epoch,
                [
                    b"%s %d to %d" % (each.type.name.encode(), each.first_offset, each.last_offset)
                    for ranges in given.values()
                    for each in ranges
                ],
            )

    def prepare(self) -> str:
        with _Call(self._kafka, "prepare"):
            self._kafka.write(self._epoch, self._buffer)
        self._prepared = f"{PRODUCER_ID}:{self._epoch}"
        return self._prepared

    def complete(self, stored_state: str) -> None:
        assert self._prepared is not None, "nothing is prepared"
        with _Call(self._kafka, "complete"):
            self._epoch = self._kafka.end(self._epoch, commit=stored_state == self._prepared)
        self._prepared = None

    def abort(self) -> None:
        with _Call(self._kafka, "abort"):
            if self._kafka.open is not None:
                self._epoch = self._kafka.end(self._epoch, commit=False)
        self._prepared = None

    def close(self) -> None:
        pass


def _plain(offsets: Offsets) -> list[tuple[TopicPartition, int]]:
    return [(partition, each if isinstance(each, int) else each.offset) for partition, each in offsets.items()]


class _Call:
    """A request and its response, either of which can be lost."""

    def __init__(self, kafka: FakeKafka, name: str) -> None:
        self._kafka, self._name = kafka, name

    def __enter__(self) -> None:
        if self._kafka.is_away:
            raise ResponseLost(f"{self._name}: the broker is away")
        if self._kafka.faults.get(self._name) is FaultTime.BEFORE:
            del self._kafka.faults[self._name]
            raise ResponseLost(f"{self._name}: the request was lost")

    def __exit__(self, *_: object) -> None:
        if self._kafka.faults.pop(self._name, None) is FaultTime.AFTER:
            raise ResponseLost(f"{self._name}: the answer was lost")
