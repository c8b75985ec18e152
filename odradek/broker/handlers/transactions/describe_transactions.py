"""DescribeTransactions (key 65), version 0: the state of transactional ids that are coordinated here.

Needs DESCRIBE on each id; topics that the client may not DESCRIBE are left out silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest


def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext, broker: Broker
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[describe(each, context, broker) for each in request.transactional_ids]
    )


def describe(transactional_id: str, context: RequestContext, broker: Broker) -> TransactionState:
    try:
        context.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        found = broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code.value)
    found.topics = [
        each for each in found.topics if is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, each.topic)
    ]
    return found
