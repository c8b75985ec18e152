"""ListTransactions (key 66), versions 0-2: the transactional ids that are coordinated here, and their states.

v1: only transactions open for longer than a duration. v2: only ids that match a pattern. Shows the ids that the client
may DESCRIBE. Clients are served while many ids are looked at, each as it was when the look began. Refused with
COORDINATOR_LOAD_IN_PROGRESS while any partition of `__transaction_state` is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.runtime.slices import visit_in_slices
from odradek.broker.transactions.requests import Filter, listed, states_of
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.transactions.core import TransactionCore
    from odradek.broker.transactions.entry import Txn
    from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest


async def list_transactions(
    request: ListTransactionsRequest, context: RequestContext, broker: Broker
) -> ListTransactionsResponse:
    states, unknown = states_of(request.state_filters)
    wanted = Filter(
        states,
        frozenset(request.producer_id_filters),
        None if request.duration_filter < 0 else request.duration_filter,
        matcher(request.transactional_id_pattern),
    )
    now_ms = broker.clock.now_ms()
    txns: list[Txn] = []
    found: list[TransactionState] = []

    def collect(shard: Shard[TransactionCore]) -> None:
        txns.extend(shard.look(lambda core: core.candidates(wanted)))

    def show(txn: Txn) -> None:
        if wanted.selects(txn, now_ms) and is_allowed(
            context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, txn.transactional_id
        ):
            found.append(listed(txn))

    await visit_in_slices(broker.transactions.shards, collect, broker.watch, "ListTransactions")
    await visit_in_slices(txns, show, broker.watch, "ListTransactions")
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    from odradek.broker.patterns.re2 import InvalidPattern, Pattern  # here: hardly anybody asks for it

    try:
        return Pattern(pattern).matches
    except InvalidPattern as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
