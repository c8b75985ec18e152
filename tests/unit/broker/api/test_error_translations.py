"""Tests that the table of error translations has one row for each code and receiver, and that no row changes the result
of another row."""

from collections import Counter

from odradek.broker.api.error_translations import TRANSLATIONS, Receiver, translate
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode


def test_each_code_has_one_row_per_receiver() -> None:
    rows = Counter((asker, code) for askers, _, _, codes, _, _ in TRANSLATIONS for asker in askers for code in codes)
    assert [row for row, count in rows.items() if count > 1] == []


def test_no_translated_code_is_translated_again() -> None:
    for askers, first, last, _, answer, _ in TRANSLATIONS:
        for asker in askers:
            assert {translate(asker, answer, version) for version in (first, last)} == {answer}


def test_every_row_changes_a_code_and_names_its_rule() -> None:
    for _, first, last, codes, answer, rule in TRANSLATIONS:
        assert first <= last
        assert codes
        assert answer not in codes
        assert rule


def test_a_row_holds_for_its_versions() -> None:
    code = ErrorCode.CONCURRENT_TRANSACTIONS
    translated = [translate(Receiver.PRODUCE, code, version) for version in (10, 11, 12)]
    assert translated == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS, code]


def test_a_code_without_a_row_is_not_translated() -> None:
    assert translate(ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE, 0) is ErrorCode.INVALID_TXN_STATE
    assert translate(Receiver.COORDINATOR, ErrorCode.INVALID_RECORD) is ErrorCode.INVALID_RECORD


# The error codes that clients receive instead of the codes in docs/spec/share-groups.md#s3-9 and the codes that refuse
# an acknowledgement in a transaction.
OF_THE_SHARE_COORDINATOR = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED: ErrorCode.PRODUCER_FENCED,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def test_codes_of_the_share_coordinator_are_translated_for_the_client() -> None:
    translated = {code: translate(Receiver.SHARE_LEADER, code) for code in OF_THE_SHARE_COORDINATOR}
    assert translated == OF_THE_SHARE_COORDINATOR
