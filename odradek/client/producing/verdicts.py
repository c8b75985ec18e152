"""What each error code means to a producer, by request. The rules come from Kafka's Java client and KIP-1289."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from odradek.client.common.errors import (
    AUTHORIZATION,
    RETRIABLE,
    AbortableError,
    AuthorizationFailed,
    ClientError,
    FatalError,
    ProducerFenced,
    RetriableError,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode as E


class Verdict(Enum):
    FINE = auto()
    RETRY = auto()  # the client retries the request until it runs out of time
    ABORT = auto()  # the transaction is lost, but the producer can continue
    FATAL = auto()  # the producer cannot continue
    REFUSED = auto()  # only this batch is lost; only possible without transactions


@dataclass(frozen=True, slots=True)
class VerdictRules:
    """The verdicts for one request. `abort` and `fatal` take precedence over `retry`. All other codes get the verdict
    `otherwise`.

    without_id  the rules for a producer without a transactional id, which has no transaction to abort and cannot be
                fenced; None if such a producer never sends this request
    """

    abort: frozenset[E] = frozenset()
    fatal: frozenset[E] = frozenset()
    otherwise: Verdict = Verdict.FATAL
    retry: frozenset[E] = RETRIABLE
    without_id: VerdictRules | None = None


FENCED = frozenset({E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH})

RULES: Mapping[ApiKey, VerdictRules] = {
    ApiKey.FIND_COORDINATOR: VerdictRules(abort=frozenset({E.GROUP_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE})),
    ApiKey.INIT_PRODUCER_ID: VerdictRules(
        abort=frozenset(
            {E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE}
        ),
        without_id=VerdictRules(),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: VerdictRules(
        abort=frozenset({E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED, E.TRANSACTION_ABORTABLE})
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: VerdictRules(abort=frozenset({E.GROUP_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE})),
    ApiKey.TXN_OFFSET_COMMIT: VerdictRules(
        abort=frozenset(
            {
                E.GROUP_AUTHORIZATION_FAILED,
                E.FENCED_INSTANCE_ID,
                E.TRANSACTION_ABORTABLE,
                E.UNKNOWN_MEMBER_ID,
                E.ILLEGAL_GENERATION,
                E.GROUP_ID_NOT_FOUND,
                E.STALE_MEMBER_EPOCH,
                E.UNKNOWN_TOPIC_ID,  # the topic was deleted; the offsets are meaningless for a new topic of that name
            }
        )
    ),
    # Source: docs/spec/share-groups.md#s5-3, T5.
    ApiKey.TXN_SHARE_ACKNOWLEDGE: VerdictRules(
        fatal=FENCED | {E.UNSUPPORTED_VERSION, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED},
        otherwise=Verdict.ABORT,
        retry=frozenset(
            {
                E.CONCURRENT_TRANSACTIONS,
                E.COORDINATOR_LOAD_IN_PROGRESS,
                E.COORDINATOR_NOT_AVAILABLE,
                E.NOT_COORDINATOR,
                E.NOT_LEADER_OR_FOLLOWER,
            }
        ),
    ),
    ApiKey.END_TXN: VerdictRules(abort=frozenset({E.TRANSACTION_ABORTABLE})),
    ApiKey.PRODUCE: VerdictRules(
        fatal=frozenset(
            {
                E.CLUSTER_AUTHORIZATION_FAILED,
                E.UNSUPPORTED_VERSION,
                E.INVALID_PRODUCER_ID_MAPPING,
                E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                E.PRODUCER_FENCED,
            }
        ),
        otherwise=Verdict.ABORT,
        without_id=VerdictRules(
            fatal=frozenset({E.CLUSTER_AUTHORIZATION_FAILED, E.UNSUPPORTED_VERSION}), otherwise=Verdict.REFUSED
        ),
    ),
}


def verdict(api: ApiKey, code: E, *, is_transactional: bool, is_aborting: bool = False) -> Verdict:
    """Returns the verdict for an error code.

    is_aborting   for EndTxn: True if the request aborts. If an abort fails, there is nothing left to abort, so the
                  error is fatal.
    """
    if code is E.NONE:
        return Verdict.FINE
    rules = RULES[api] if is_transactional else RULES[api].without_id
    assert rules is not None, "only a producer with a transactional id sends this request"
    if code in rules.abort:
        return Verdict.FATAL if is_aborting else Verdict.ABORT
    if code in rules.fatal:
        return Verdict.FATAL
    return Verdict.RETRY if code in rules.retry else rules.otherwise


def as_exception(verdict: Verdict, code: E, text: str) -> ClientError:
    """Returns the exception for a verdict. `text` names the request and its response."""
    match verdict:
        case Verdict.RETRY:
            return RetriableError(text, code)
        case Verdict.ABORT:
            return AbortableError(text, code)
        case Verdict.FATAL:
            if code in FENCED:
                return ProducerFenced(text, code)
            return (AuthorizationFailed if code in AUTHORIZATION else FatalError)(text, code)
        case _:
            return ClientError(text, code)
