"""The key of a share partition: a group and one partition of a topic."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from typing import NamedTuple

COORDINATOR_KEY = re.compile(r"(.*\S.*):([\w-]{22})(?:==)?:([+-]?[0-9]{1,10}):*", re.ASCII | re.DOTALL)
MAX_PARTITION = (1 << 31) - 1


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    @classmethod
    def parse(cls, coordinator_key: str) -> SharePartitionKey:
        """Partition numbers that cannot be are taken, as in Kafka. Raises ValueError for what has another form."""
        found = COORDINATOR_KEY.fullmatch(coordinator_key)
        if found is None or abs(partition := int(found[3])) > MAX_PARTITION:
            raise ValueError(f"not of the form group:topic id:partition: {coordinator_key!r}")
        return cls(found[1], urlsafe_b64decode(f"{found[2]}=="), partition)

    @property
    def coordinator_key(self) -> str:
        """What the share coordinator is found by (docs/spec/share-groups.md#s1-7)."""
        return _coordinator_key(self)

    def __str__(self) -> str:
        return self.coordinator_key


@lru_cache(1024)
def _coordinator_key(key: SharePartitionKey) -> str:
    """Every request asks for those of a few share partitions several times."""
    return f"{key.group_id}:{urlsafe_b64encode(key.topic_id).decode().rstrip('=')}:{key.partition}"
