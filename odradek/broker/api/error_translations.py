"""Translations of one error code into another: who was told what, and answers what in its place.

A code changes where the client could make nothing of it: because the part that failed is not the one that it asked, or
because its version of the API is older than the code. What no row names stays as it is. The rules are sections of
docs/spec/transactions.md.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode as E


class Asker(Enum):
    """The part of the broker that asked another one. A row with an API key is about any answer to such a request."""

    COORDINATOR = auto()  # its log, to keep its records
    MARKER = auto()  # for WriteTxnMarkers: the coordinator whose records are in the marked partition
    PRODUCE = auto()  # the coordinator of the transaction, to verify or add a partition
    TXN_OFFSET_COMMIT = auto()  # the same; and the log of the group's partition, to keep the offsets
    SHARE_LEADER = auto()  # the share coordinator, to load or store the state of a share partition


Row: TypeAlias = tuple[tuple[Asker | ApiKey, ...], int, int, tuple[E, ...], E, str]
LAST: Final = 1 << 15  # whatever the version

KEEPERS: Final = (Asker.COORDINATOR, Asker.TXN_OFFSET_COMMIT)  # of records, in a log
UNREACHABLE: Final = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
# The share coordinator's answers to the leader of a share partition. FENCED_LEADER: another leader has taken its place.
# PASSED: what a client can use as it is, and the two codes into which others are translated.
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
    # who asks, from version, to version, told, answers, rule
    (KEEPERS, 0, LAST, (E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT),
        E.COORDINATOR_NOT_AVAILABLE, "#s2-7"),
    (KEEPERS, 0, LAST, (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR), E.NOT_COORDINATOR, "#s2-7"),
    (KEEPERS, 0, LAST, (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE), E.UNKNOWN_SERVER_ERROR, "#s2-7"),

    ((Asker.MARKER,), 0, LAST, UNREACHABLE, E.NOT_LEADER_OR_FOLLOWER, "#s2-6"),  # as any leader says it

    # Every client tries NOT_ENOUGH_REPLICAS again, without asking for metadata. Only who relies on being added (v12)
    # knows that CONCURRENT_TRANSACTIONS passes.
    ((Asker.PRODUCE,), 0, LAST, (E.NETWORK_EXCEPTION, *UNREACHABLE), E.NOT_ENOUGH_REPLICAS, "#s2-8"),
    ((Asker.PRODUCE,), 0, 11, (E.CONCURRENT_TRANSACTIONS,), E.NOT_ENOUGH_REPLICAS, "#s2-8"),
    ((Asker.PRODUCE,), 0, 10, (E.TRANSACTION_ABORTABLE,), E.INVALID_TXN_STATE, "#s2-8"),
    ((Asker.PRODUCE,), 0, LAST, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-8"),

    ((Asker.TXN_OFFSET_COMMIT,), 0, LAST, (E.NETWORK_EXCEPTION,), E.COORDINATOR_LOAD_IN_PROGRESS, "#s2-7"),
    ((Asker.TXN_OFFSET_COMMIT,), 0, 3, (E.TRANSACTION_ABORTABLE,), E.INVALID_TXN_STATE, "#s2-7"),
    ((Asker.TXN_OFFSET_COMMIT,), 0, LAST, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-7"),

    ((Asker.SHARE_LEADER,), 0, LAST, NO_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, "share-groups.md#s3-9"),
    ((Asker.SHARE_LEADER,), 0, LAST, FENCED_LEADER, E.NOT_LEADER_OR_FOLLOWER, "share-groups.md#s3-9"),
    ((Asker.SHARE_LEADER,), 0, LAST, UNEXPECTED, E.UNKNOWN_SERVER_ERROR, "share-groups.md#s3-9"),

    # Before version 6 a producer knows generations only, also where the member that it commits for has an epoch; from
    # 6 on the code passes: docs/spec/kafka-4.4.md#s5-2, T3 and T4.
    ((ApiKey.TXN_OFFSET_COMMIT,), 0, 5, (E.STALE_MEMBER_EPOCH,), E.ILLEGAL_GENERATION, "consumer-groups.md#s9"),

    # Codes that are younger than their API.
    ((ApiKey.TXN_OFFSET_COMMIT,), 0, 1, (E.COORDINATOR_LOAD_IN_PROGRESS,), E.COORDINATOR_NOT_AVAILABLE, "#s2-7"),
    ((ApiKey.INIT_PRODUCER_ID,), 0, 3, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.ADD_PARTITIONS_TO_TXN,), 0, 1, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.ADD_OFFSETS_TO_TXN,), 0, 1, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.END_TXN,), 0, 1, (E.PRODUCER_FENCED,), E.INVALID_PRODUCER_EPOCH, "#s2-0"),
    ((ApiKey.DELETE_TOPICS,), 0, 2, (E.TOPIC_DELETION_DISABLED,), E.INVALID_REQUEST, "as Kafka 4.3.1 answers it"),
)
# fmt: on

_ANSWERS: Final[Mapping[tuple[Asker | ApiKey, E], tuple[int, int, E]]] = {
    (asker, code): (first, last, answer)
    for askers, first, last, told, answer, _ in TRANSLATIONS
    for asker in askers
    for code in told
}


def translated(asker: Asker | ApiKey, code: E, version: int = 0) -> E:
    """Returns the code that is answered in place of `code`. version: of the request, where that makes a difference."""
    first, last, answer = _ANSWERS.get((asker, code), (0, LAST, code))
    return answer if first <= version <= last else code
