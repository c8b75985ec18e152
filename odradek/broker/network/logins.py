"""How many connections of a listener have shown who they are, and how many have failed to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LoginCounts:
    """Since the start; `again` are re-authentications of open connections (KIP-368)."""

    succeeded: int = 0
    failed: int = 0
    succeeded_again: int = 0
    failed_again: int = 0
    expired: int = 0  # connections closed because their session had ended
