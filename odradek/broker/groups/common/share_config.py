"""The broker's settings for share groups; a group may have its own for the rest (`ClusterView.group_setting`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """The names are Kafka's property names without `group.share.`, `.` as `_`, units said."""

    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000
