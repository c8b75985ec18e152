"""ListTransactions (key 66), versions 0-2: the transactional ids that are coordinated here, and their states.

v1: only transactions open for longer than a duration. v2: only ids that match a pattern. Shows the ids that the client
may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.transactions.listing import Filter, states_of
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest


def list_transactions(
    request: ListTransactionsRequest, context: RequestContext, broker: Broker
) -> ListTransactionsResponse:
    states, unknown = states_of(request.state_filters)
    wanted = Filter(
        states,
        frozenset(request.producer_id_filters),
        None if request.duration_filter < 0 else request.duration_filter,
        matcher(request.transactional_id_pattern),
    )
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            each
            for each in broker.transactions.list_transactions(wanted)
            if is_allowed(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ],
    )


def matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    from odradek.broker.patterns.re2 import InvalidPattern, Pattern  # here: hardly anybody asks for it

    try:
        return Pattern(pattern).matches
    except InvalidPattern as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
