"""Whether a member of a share group is who it says it is, as the group coordinator knows.

Only TxnShareAcknowledge asks: fetches and plain acknowledgements need no membership (docs/spec/share-groups.md#s5-3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.groups.share.heartbeat import share_group
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.groups.core import GroupCore

UNKNOWN: Final = "The member is not known to the share group."


def require_member(groups: GroupCoordinator, group_id: str, member_id: str, member_epoch: int) -> None:
    """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH; what a group coordinator says that cannot be asked."""
    current = groups.shard_for(group_id).look(lambda core: _member_epoch(core, group_id, member_id))
    if current is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN)
    if current != member_epoch:
        what = f"The member has epoch {current}, not {member_epoch}."
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH, what)


def _member_epoch(core: GroupCore, group_id: str, member_id: str) -> int | None:
    try:
        member = share_group(core.registry, group_id).members.get(member_id)
    except KafkaError:  # none of this name, or of another type
        return None
    return None if member is None else member.epoch
