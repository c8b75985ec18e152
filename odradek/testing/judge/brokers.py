"""Recognises connections between brokers. A recording made in front of Apache Kafka contains connections between
brokers, which are not judged."""

from __future__ import annotations

from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.testing.judge.exchanges import Connection, Exchange

BATCHED_ADD_PARTITIONS: Final = 4  # only brokers send AddPartitionsToTxn in this version or later
# APIs that only brokers use. DescribeQuorum and similar APIs are not listed, because tools use them too.
BROKER_APIS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
GREETINGS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


def note_sender(connection: Connection, exchange: Exchange) -> None:
    """Records any evidence in a request that the sender is a broker. WriteTxnMarkers is evidence only if the connection
    carries nothing else, because an admin client also sends it to abort a transaction."""
    api = exchange.api
    if api is ApiKey.WRITE_TXN_MARKERS:
        connection.sends_markers = True
    elif api is not None and api not in GREETINGS:
        connection.sends_others = True
    if api in BROKER_APIS or (api is ApiKey.ADD_PARTITIONS_TO_TXN and exchange.version >= BATCHED_ADD_PARTITIONS):
        connection.shows_broker = True
    elif isinstance(exchange.request, FetchRequest):
        request, state = exchange.request, exchange.request.replica_state
        replica = request.replica_id if state is None else max(request.replica_id, state.replica_id)
        connection.shows_broker = connection.shows_broker or replica >= 0
