"""The key of a share partition: a group and one partition of a topic."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import NamedTuple


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """What the share coordinator is found by (docs/spec/share-groups.md#s1-7)."""
        return f"{self.group_id}:{urlsafe_b64encode(self.topic_id).decode().rstrip('=')}:{self.partition}"

    def __str__(self) -> str:
        return self.coordinator_key
