"""Tests the text form of a prepared transaction's state, which applications store in a database column and read
back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.common.values import PreparedTxnState


def test_the_text_is_producer_id_and_epoch_with_a_colon() -> None:
    assert str(PreparedTxnState(1234, 5)) == "1234:5"


def test_no_transaction_is_the_empty_text() -> None:
    assert str(PreparedTxnState()) == ""
    assert PreparedTxnState.parse("") == PreparedTxnState()
    assert not PreparedTxnState().has_transaction


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_text_and_state_are_inverse(producer_id: int, producer_epoch: int) -> None:
    state = PreparedTxnState(producer_id, producer_epoch)
    assert PreparedTxnState.parse(str(state)) == state
    assert state.has_transaction
    assert len(str(state)) <= 25


@pytest.mark.parametrize(
    "text",
    ["1", ":", "1:", ":1", "1:2:3", "-1:-1", "+1:2", "01:2", "1:02", " 1:2", "1:2\n", "1:32768", f"{2**63}:0", "١:٢"],
)
def test_text_that_is_no_prepared_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="prepared transaction"):
        PreparedTxnState.parse(text)
