"""A partition by the name of its topic and its index, and error codes by partition."""

from collections.abc import Mapping
from typing import TypeAlias

from protocol.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]
PartitionCodes: TypeAlias = Mapping[TopicPartition, ErrorCode]
