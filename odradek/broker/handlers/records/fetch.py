"""Handles Fetch (key 1), versions 4-18, which returns records from several partitions, either immediately or once there
are enough records.

v5 adds the log start offset. v7 adds incremental sessions (KIP-227). v9 adds leader epochs, which are checked. v11 adds
the rack and the preferred replica. v12 is flexible, and adds the last fetched epoch to the request and the point where
the logs diverge to the response. v13 uses topic ids. v15 moves the replica state to a tagged field. v16 adds node
endpoints to leadership errors. v17 and v18 add fields that only followers use. Needs READ on each topic. Every
partition has a single replica, so a follower receives NOT_LEADER_OR_FOLLOWER. If several nodes share a log,
`fetch/replicas.py` handles the request. Source: KIP-227, KIP-320, KIP-516; for everything else, Kafka 4.3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.request import PendingFetch, forgotten_partitions, requested_partitions
from odradek.broker.fetch.sessions import NamedBy
from odradek.broker.runtime.waiting import start_coroutine
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.fetch_response import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.api.context import RequestContext
    from odradek.broker.fetch.sessions import Fetch
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.runtime.waiting import NowOrLater
    from odradek.protocol.messages.fetch_request import FetchRequest

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13


def fetch(request: FetchRequest, context: RequestContext, broker: HandlerBroker) -> NowOrLater[FetchResponse]:
    return answer_fetch(request, context, broker, PendingFetch)


def answer_fetch(
    request: FetchRequest,
    context: RequestContext,
    broker: HandlerBroker,
    make: Callable[[FetchRequest, RequestContext, HandlerBroker, Fetch], PendingFetch],
) -> NowOrLater[FetchResponse]:
    named_by = NamedBy.TOPIC_ID if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS else NamedBy.TOPIC_NAME
    try:
        session_fetch = broker.fetch_sessions.start_fetch(
            request.session_id,
            request.session_epoch,
            requested_partitions(request, named_by),
            forgotten_partitions(request, named_by),
            named_by,
            context.now_ms,
        )
    except KafkaError as refusal:  # a session error does not belong to a particular partition
        return FetchResponse(error_code=refusal.code.value)
    return start_coroutine(make(request, context, broker, session_fetch).answer(), ends_with_client=True)
