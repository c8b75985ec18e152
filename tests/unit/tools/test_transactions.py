"""Tests that the transaction commands show correctly how long a transaction has been open."""

from odradek.client.administration.transactions import TransactionDescription
from odradek.client.common.values import TopicPartition


def test_a_transaction_is_open_from_its_start_until_all_its_partitions_have_their_marker() -> None:
    def described(started_ms: int | None, *partitions: TopicPartition) -> TransactionDescription:
        return TransactionDescription("pay", 1, "any", 7, 0, 60_000, started_ms, partitions)

    assert described(1_000, TopicPartition("t", 0)).open_for_ms(1_500) == 500
    assert described(1_000, TopicPartition("t", 0)).open_for_ms(900) == 0  # the other machine's clock is ahead
    assert described(1_000).open_for_ms(1_500) is None
    assert described(None).open_for_ms(1_500) is None
