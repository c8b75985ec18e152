"""Tests the meaning of error codes for a producer, row by row according to the Java client's table."""

import pytest

from odradek.client.common.errors import (
    AbortableError,
    AuthorizationFailed,
    ClientError,
    ProducerFenced,
    RetriableError,
)
from odradek.client.producing.verdicts import Verdict, as_exception, verdict
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode

# By API: the codes after which a request is retried, those that require an abort, and those that are fatal.
TABLE = {
    ApiKey.INIT_PRODUCER_ID: ([14, 15, 16, 51, 7], [53, 31, 120], [47, 90, 35, 42, 50]),
    ApiKey.ADD_PARTITIONS_TO_TXN: ([14, 15, 16, 51, 3], [29, 55, 120], [47, 90, 53, 48, 49]),
    ApiKey.ADD_OFFSETS_TO_TXN: ([14, 15, 16, 51], [30, 120], [47, 90, 53, 48, 49]),
    ApiKey.TXN_OFFSET_COMMIT: ([14, 15, 16, 7, 51, 3], [30, 82, 120, 25, 22, 69, 113], [47, 90, 53, 43, 48, 49]),
    ApiKey.END_TXN: ([14, 15, 16, 51], [120], [47, 90, 53, 48, 49]),
    ApiKey.PRODUCE: ([19, 20, 51, 6, 3, 13, 56], [45, 47, 48, 120, 10, 87, 29, 17], [31, 35, 49, 53, 90]),
}
VERDICTS = (Verdict.RETRY, Verdict.ABORT, Verdict.FATAL)
ROWS = [
    (api, ErrorCode(code), expected)
    for api, columns in TABLE.items()
    for expected, codes in zip(VERDICTS, columns, strict=True)
    for code in codes
]


@pytest.mark.parametrize(("api", "code", "expected"), ROWS, ids=lambda value: getattr(value, "name", None))
def test_each_error_code_has_a_verdict_in_a_transaction(api: ApiKey, code: ErrorCode, expected: Verdict) -> None:
    assert verdict(api, code, is_transactional=True) is expected


def test_an_abort_that_cannot_be_carried_out_is_fatal() -> None:
    code = ErrorCode.TRANSACTION_ABORTABLE
    assert verdict(ApiKey.END_TXN, code, is_transactional=True, is_aborting=True) is Verdict.FATAL


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NONE, Verdict.FINE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Verdict.RETRY),
        (ErrorCode.MESSAGE_TOO_LARGE, Verdict.REFUSED),
        (ErrorCode.INVALID_RECORD, Verdict.REFUSED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.REFUSED),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Verdict.FATAL),
    ],
)
def test_without_transactions_a_refused_batch_is_lost_alone(code: ErrorCode, expected: Verdict) -> None:
    assert verdict(ApiKey.PRODUCE, code, is_transactional=False) is expected


@pytest.mark.parametrize(
    ("decided", "code", "kind"),
    [
        (Verdict.RETRY, ErrorCode.NETWORK_EXCEPTION, RetriableError),
        (Verdict.ABORT, ErrorCode.INVALID_PRODUCER_EPOCH, AbortableError),
        (Verdict.FATAL, ErrorCode.PRODUCER_FENCED, ProducerFenced),
        (Verdict.FATAL, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (Verdict.FATAL, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationFailed),
        (Verdict.REFUSED, ErrorCode.MESSAGE_TOO_LARGE, ClientError),
    ],
)
def test_exceptions_say_what_to_do(decided: Verdict, code: ErrorCode, kind: type[ClientError]) -> None:
    error = as_exception(decided, code, "the words")
    assert type(error) is kind
    assert (str(error), error.code) == ("the words", code)
    assert (error.is_retriable, error.is_abortable, error.is_fatal) == (
        decided is Verdict.RETRY,
        decided is Verdict.ABORT,
        decided is Verdict.FATAL,
    )
