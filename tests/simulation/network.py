"""A network that delivers requests and responses late, repeatedly, out of order, or not at all."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from odradek.protocol.codec import decode
from odradek.protocol.frames import request_bytes, response_has_tags
from odradek.protocol.messages import response_class
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.struct import Message
from tests.simulation.virtual_time import Life, VirtualTime

if TYPE_CHECKING:
    from tests.simulation.simulated_broker import SimulatedBroker

END_TXN = EndTxnRequest.API_KEY
HEADER_BYTES = 8  # a response's length and correlation id


@dataclass(frozen=True, slots=True)
class Weather:
    """The probabilities that a message is lost, that a request arrives twice, and that a message is late."""

    lost: float = 0.02
    twice: float = 0.03
    late: float = 0.03


class Network:
    def __init__(
        self,
        time: VirtualTime,
        rng: Random,
        weather: Weather,
        broker: Callable[[], "SimulatedBroker | None"],
        note: Callable[[str], None],
        *,
        may_repeat_ends: bool = False,
    ) -> None:
        """Creates a network between clients and a broker.

        broker           returns the running broker, or None if there is none
        note             adds a line to the trace
        may_repeat_ends  whether an EndTxn may arrive twice; most producers cannot interpret the second one's error
        """
        self._time = time
        self._rng = rng
        self._weather = weather
        self._broker = broker
        self._note = note
        self._never_twice = None if may_repeat_ends else END_TXN
        self._life = Life()

    def send(
        self,
        sender: str,
        message: Message,
        version: int,
        answered: Callable[[Message], None],
        is_connected: Callable[[], bool],
        client: str = "",
    ) -> None:
        """Sends a request to the broker, unless the weather loses it.

        answered      is called with each response; a request that arrives twice has two responses
        is_connected  returns whether the connection still exists; otherwise a request in transit is dropped
        client        name of the connection, if the broker must distinguish connections
        """
        frame = request_bytes(message, version, 1, sender)

        def deliver() -> None:
            broker = self._broker()
            if broker is None or not is_connected():
                return
            self._note(f"{sender} → {type(message).__name__} v{version}")
            broker.receive(frame, answer, client)

        def answer(data: bytes) -> None:
            if self._rng.random() < self._weather.lost:
                return
            kind = response_class(message.API_KEY)
            position = HEADER_BYTES + response_has_tags(message.API_KEY, kind, version)
            self._after(lambda: answered(decode(kind, version, data, position)))

        if self._rng.random() >= self._weather.lost:
            self._after(deliver)
        if self._never_twice != message.API_KEY and self._rng.random() < self._weather.twice:
            self._after(deliver)

    def close(self) -> None:
        """Stops all deliveries."""
        self._life.is_over = True

    def _after(self, action: Callable[[], None]) -> None:
        rng = self._rng
        is_late = rng.random() < self._weather.late
        delay_ms = rng.choice([50, 500, 3_000, 12_000]) if is_late else rng.choice([0.1, 0.2, 1, 3])
        self._time.after(delay_ms, action, self._life)
