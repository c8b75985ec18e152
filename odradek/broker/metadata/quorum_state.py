"""`quorum-state` in `__cluster_metadata-0`: leader and epoch of the metadata log. Bytes ↔ value.

Written before the first batch of an epoch, so that no epoch is used twice. Layout: docs/formats/cluster-metadata.md.
"""

import json
from typing import NamedTuple

FILE = "quorum-state"


class QuorumState(NamedTuple):
    leader_id: int
    leader_epoch: int
    voter_ids: tuple[int, ...]


def encode_quorum_state(state: QuorumState) -> bytes:
    fields = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter_id} for voter_id in state.voter_ids],
        "data_version": 0,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_leader_epoch(data: bytes) -> int:
    """The epoch in a file of any data version; 0 when it cannot be read, for the log knows its epochs too."""
    try:
        epoch = json.loads(data)["leaderEpoch"]
    except (ValueError, KeyError, TypeError):
        return 0
    return epoch if isinstance(epoch, int) and epoch >= 0 else 0
