"""Translations of error codes: which code replaces the code that another part of the broker returned.

A code is replaced if the client could not understand it: because it comes from a part that the client did not call, or
because it is newer than the client's version of the API. Codes without a row stay the same. The rules are sections of
docs/spec/transactions.md.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode as E


class Receiver(Enum):
    """The part of the broker that received the code from another part. A row with an API key applies to all responses
    of that API."""

    COORDINATOR = auto()  # from its log, when it stores records
    MARKER = auto()  # WriteTxnMarkers, from the coordinator whose records are in the marked partition
    PRODUCE = auto()  # from the transaction coordinator, when it verifies or adds a partition
    # from the transaction coordinator, as for PRODUCE, and from the log of the group's partition, when it stores the
    # offsets
    TXN_OFFSET_COMMIT = auto()
    SHARE_LEADER = auto()  # from the share coordinator, when it loads or stores the state of a share partition


Row: TypeAlias = tuple[tuple[Receiver | ApiKey, ...], int, int, tuple[E, ...], E, str]
LAST: Final = 1 << 15  # the highest version

LOG_WRITERS: Final = (Receiver.COORDINATOR, Receiver.TXN_OFFSET_COMMIT)  # parts that store records in a log
UNREACHABLE: Final = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
# The share coordinator's responses to the leader of a share partition. FENCED_LEADER: another leader has replaced it.
# PASSED: codes that a client can use unchanged, and the two codes that replace others.
NO_COORDINATOR: Final = (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR)
FENCED_LEADER: Final = (E.FENCED_LEADER_EPOCH, E.FENCED_STATE_EPOCH)
PASSED: Final = (
    E.GROUP_ID_NOT_FOUND,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.OFFSET_NOT_AVAILABLE,
    E.INVALID_TXN_STATE,
    E.PRODUCER_FENCED,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.CONCURRENT_TRANSACTIONS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_LEADER_OR_FOLLOWER,
)
UNEXPECTED: Final = tuple({*E} - {*NO_COORDINATOR, *FENCED_LEADER, *PASSED, E.NONE, E.UNKNOWN_SERVER_ERROR})

# fmt: off
TRANSLATIONS: Final[tuple[Row, ...]] = (
    # who received the code, from version, to version, codes, replacement, rule
    (LOG_WRITERS, 0, LAST, (E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT),
        E.COORDINATOR_NOT_AVAILABLE, "#s2-7"),
    (LOG_WRITERS, 0, LAST, (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR), E.NOT_COORDINATOR, "#s2-7"),
    (LOG_WRITERS, 0, LAST, (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE), E.UNKNOWN_SERVER_ERROR, "#s2-7"),

    # This is the code that any leader would return.
    ((Receiver.MARKER,), 0, LAST, UNREACHABLE, E.NOT_LEADER_OR_FOLLOWER, "#s2-6"),

    # Every client retries NOT_ENOUGH_REPLICAS, without requesting metadata. Only clients that rely on the broker to add
    # partitions (v12) know that CONCURRENT_TRANSACTIONS is temporary.
    ((Receiver.PRODUCE,), 0, LAST, (E.NETWORK_EXCEPTION, *UNREACHABLE), E.NOT_ENOUGH_REPLICAS, "#s2-8"),
    ((Receiver.PRODUCE,), 0, 11, (E.CONCURRENT_TRANSACTIONS,), E.NOT_ENOUGH_REPLICAS, "#s2-8"),
    ((Receiver.PRODUCE,), 0, 10, (E.TRANSACTION_ABORTABLE,), E.INVALID_TXN_STATE, "#s2-8"),
    ((Receiver.PRODUCE,), 0, LAST, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-8"),

    ((Receiver.TXN_OFFSET_COMMIT,), 0, LAST, (E.NETWORK_EXCEPTION,), E.COORDINATOR_LOAD_IN_PROGRESS, "#s2-7"),
    ((Receiver.TXN_OFFSET_COMMIT,), 0, 3, (E.TRANSACTION_ABORTABLE,), E.INVALID_TXN_STATE, "#s2-7"),
    ((Receiver.TXN_OFFSET_COMMIT,), 0, LAST, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-7"),

    ((Receiver.SHARE_LEADER,), 0, LAST, NO_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, "share-groups.md#s3-9"),
    ((Receiver.SHARE_LEADER,), 0, LAST, FENCED_LEADER, E.NOT_LEADER_OR_FOLLOWER, "share-groups.md#s3-9"),
    ((Receiver.SHARE_LEADER,), 0, LAST, UNEXPECTED, E.UNKNOWN_SERVER_ERROR, "share-groups.md#s3-9"),

    # Before version 6 the request contains only a generation, even if the member that it commits for has an epoch. From
    # version 6 on the code is unchanged: docs/spec/kafka-4.4.md#s5-2, T3 and T4.
    ((ApiKey.TXN_OFFSET_COMMIT,), 0, 5, (E.STALE_MEMBER_EPOCH,), E.ILLEGAL_GENERATION, "consumer-groups.md#s9"),

    # Codes that are newer than their API.
    ((ApiKey.TXN_OFFSET_COMMIT,), 0, 1, (E.COORDINATOR_LOAD_IN_PROGRESS,), E.COORDINATOR_NOT_AVAILABLE, "#s2-7"),
    ((ApiKey.INIT_PRODUCER_ID,), 0, 3, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.ADD_PARTITIONS_TO_TXN,), 0, 1, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.ADD_OFFSETS_TO_TXN,), 0, 1, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.END_TXN,), 0, 1, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.DELETE_TOPICS,), 0, 2, (E.TOPIC_DELETION_DISABLED,), E.INVALID_REQUEST, "as Kafka 4.3.1 answers it"),
)
# fmt: on

_ANSWERS: Final[Mapping[tuple[Receiver | ApiKey, E], tuple[int, int, E]]] = {
    (asker, code): (first, last, answer)
    for askers, first, last, told, answer, _ in TRANSLATIONS
    for asker in askers
    for code in told
}


def translate(asker: Receiver | ApiKey, code: E, version: int = 0) -> E:
    """Returns the code with which to respond instead of `code`. version: the request's version, if it matters."""
    first, last, answer = _ANSWERS.get((asker, code), (0, LAST, code))
    return answer if first <= version <= last else code
