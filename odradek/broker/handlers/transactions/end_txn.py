"""EndTxn (key 26), versions 0-5: commit or abort.

v2: PRODUCER_FENCED is understood. v3: flexible. v4: TRANSACTION_ABORTABLE is understood. v5 (KIP-890): every end bumps
the epoch, and the answer holds the pair of the next transaction. Needs WRITE on the transactional id.
Answered when the decision and its markers are written, or, if a marker has to be retried, when the decision is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.protocol.acls import Operation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.end_txn_request import EndTxnRequest
    from odradek.protocol.messages.end_txn_response import EndTxnResponse

BUMPS_SINCE: Final = 5


def end_txn(
    request: EndTxnRequest, context: RequestContext, broker: Broker
) -> EndTxnResponse | Deferred[EndTxnResponse]:
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    return broker.transactions.end_txn(request, asked_version=2 if context.api_version >= BUMPS_SINCE else 0)
