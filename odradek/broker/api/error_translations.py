"""Translations of error codes that one part of the broker receives from another part.

A code is replaced if the client could not understand it, either because it comes from a part that the client did not
call, or because it is newer than the client's version of the API. Codes without a row are not changed. Each row's rule
is a section of docs/spec/transactions.md, unless it names another page.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode as E


class Receiver(Enum):
    """The part of the broker that received a code from another part. A row with an API key instead applies to all
    responses from that API."""

    COORDINATOR = auto()  # a coordinator that stores records; the codes come from its log
    MARKER = auto()  # WriteTxnMarkers; the codes come from the coordinator whose records are in the marked partition
    PRODUCE = auto()  # verifying or adding a partition for Produce; the codes come from the transaction coordinator
    # Storing the offsets of a transaction. The codes come from the transaction coordinator, as for PRODUCE, and from
    # the log of the group's partition.
    TXN_OFFSET_COMMIT = auto()
    # loading or storing a share partition's state; the codes come from the share coordinator
    SHARE_LEADER = auto()


Row: TypeAlias = tuple[tuple[Receiver | ApiKey, ...], int, int, tuple[E, ...], E, str]
LAST: Final = 1 << 15  # the highest version

LOG_WRITERS: Final = (Receiver.COORDINATOR, Receiver.TXN_OFFSET_COMMIT)  # the receivers that store records in a log
UNREACHABLE: Final = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
# Codes that the share coordinator returns to a share partition's leader. FENCED_LEADER: codes indicating that another
# leader has taken over. PASSED: codes that clients can use unchanged, including the two codes that replace other codes.
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
    # receiver, first version, last version, codes, replacement, rule
    (LOG_WRITERS, 0, LAST, (E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT),
        E.COORDINATOR_NOT_AVAILABLE, "#s2-7"),
    (LOG_WRITERS, 0, LAST, (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR), E.NOT_COORDINATOR, "#s2-7"),
    (LOG_WRITERS, 0, LAST, (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE), E.UNKNOWN_SERVER_ERROR, "#s2-7"),

    # The sender of WriteTxnMarkers expects the error codes of a partition leader; it then looks up the leader again and
    # retries.
    ((Receiver.MARKER,), 0, LAST, UNREACHABLE, E.NOT_LEADER_OR_FOLLOWER, "#s2-6"),

    # Every client retries after NOT_ENOUGH_REPLICAS without requesting metadata. Only clients that rely on the broker
    # to add partitions (v12) treat CONCURRENT_TRANSACTIONS as temporary.
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

    # Before version 6, the request contains only a generation, even if the committing member has an epoch. In version 6
    # and later, the code is not changed; see docs/spec/kafka-4.4.md#s5-2, T3 and T4.
    ((ApiKey.TXN_OFFSET_COMMIT,), 0, 5, (E.STALE_MEMBER_EPOCH,), E.ILLEGAL_GENERATION, "consumer-groups.md#s9"),

    # Codes that are newer than the request's version of the API.
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
    for askers, first, last, errors, answer, _ in TRANSLATIONS
    for asker in askers
    for code in errors
}


def translate(asker: Receiver | ApiKey, code: E, version: int = 0) -> E:
    """Returns the error code to send instead of `code`. Returns `code` itself if no translation applies. `version` is
    the version of the request."""
    first, last, answer = _ANSWERS.get((asker, code), (0, LAST, code))
    return answer if first <= version <= last else code
