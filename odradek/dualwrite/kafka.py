"""A participant in two-phase commit that uses the producer from `odradek.client`."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from odradek.client.common.errors import ProducerFenced
from odradek.client.common.values import ConsumerGroupMetadata, PreparedTxnState, RecordMetadata, ShareGroupMetadata
from odradek.client.producing.share_acknowledgements import ToAcknowledge
from odradek.client.sync import Producer
from odradek.dualwrite.participant import Offsets, OutgoingMessage, ParticipantFenced

CLOSE_TIMEOUT_MS = 1_000


class KafkaParticipant:
    """A participant that uses a producer from `odradek.client`.

    `new_producer` must create the producer with `two_phase_commit=True` and with settings that bound every wait.
    """

    def __init__(self, new_producer: Callable[[], Producer]) -> None:
        self._new_producer = new_producer
        self._producer: Producer | None = None
        self._has_prepared = (
            False  # True while a transaction from an earlier process is open, which must be completed first
        )
        self._has_begun = False  # True if the next transaction has already begun

    def take_over(self) -> str:
        self._producer = self._new_producer()
        self._producer.start()
        with _fencing():
            prepared = self._producer.init_transactions(keep_prepared=True)
        self._has_prepared, self._has_begun = prepared is not None, False
        return "" if prepared is None else str(prepared)

    def begin(self) -> None:
        if self._has_begun:
            self._has_begun = False
            return
        with _fencing():
            self._of().begin_transaction()

    def send(self, message: OutgoingMessage) -> "Future[RecordMetadata]":
        return self._of().send(
            message.topic,
            message.value,
            key=message.key,
            partition=message.partition,
            timestamp_ms=message.timestamp_ms,
            headers=message.headers,
        )

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        with _fencing():
            self._of().send_offsets_to_transaction(offsets, group)

    def acknowledge(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        with _fencing():
            self._of().send_share_acknowledgements_to_transaction(records, group)

    def prepare(self) -> str:
        with _fencing():
            return str(self._of().prepare_transaction())

    def complete(self, stored_state: str) -> None:
        state = PreparedTxnState.parse(stored_state)
        with _fencing():
            self._of().complete_transaction(state)
        if self._has_prepared:
            # After a recovered transaction, the client requests a new epoch from the coordinator. The request is made
            # here because recovery may fail, whereas starting a block must not fail.
            self._has_prepared = False
            self.begin()
            self._has_begun = True

    def abort(self) -> None:
        with _fencing():
            self._of().abort_transaction()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout_ms=CLOSE_TIMEOUT_MS)

    def _of(self) -> Producer:
        assert self._producer is not None, "take over first"
        return self._producer


@contextmanager
def _fencing() -> Iterator[None]:
    try:
        yield
    except ProducerFenced as error:
        raise ParticipantFenced(str(error)) from error


def participant_factory(
    bootstrap_servers: str, transactional_id: str, timeout_ms: int
) -> Callable[[], KafkaParticipant]:
    """Returns a factory for participants. Their producers have the default settings, except that no wait exceeds
    `timeout_ms`."""

    def new_producer() -> Producer:
        return Producer(
            bootstrap_servers=bootstrap_servers,
            transactional_id=transactional_id,
            two_phase_commit=True,
            linger_ms=0,  # lingering would only delay the block's end, which waits for its messages
            bootstrap_timeout_ms=timeout_ms,
            max_block_ms=timeout_ms,
            delivery_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
        )

    return lambda: KafkaParticipant(new_producer)
