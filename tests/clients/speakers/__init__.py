"""Client libraries behind the interface of `speaker.py`, each in its own module."""

from tests.clients.speakers.aio import AioKafka
from tests.clients.speakers.confluent import ConfluentKafka
from tests.clients.speakers.own import OwnClient
from tests.clients.speakers.python import KafkaPython
from tests.clients.speakers.speaker import (
    PATIENCE_S,
    Headers,
    Member,
    Message,
    ReceivedRecord,
    RequestRefused,
    Speaker,
    TooSlow,
    wait_for,
)

__all__ = [
    "PATIENCE_S",
    "SPEAKERS",
    "Headers",
    "KafkaPython",
    "Member",
    "Message",
    "ReceivedRecord",
    "RequestRefused",
    "Speaker",
    "TooSlow",
    "wait_for",
]

SPEAKERS: dict[str, Speaker] = {
    speaker.name: speaker for speaker in (ConfluentKafka(), KafkaPython(), AioKafka(), OwnClient())
}
