"""Which of the configured quotas applies to a client, and with whom it shares it: docs/spec/security.md#s4-2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.broker.security.quotas.entities import CLIENT_ID, USER, QuotaEntity


class Sharers(NamedTuple):
    """All requests that count together; None: those of every user, or of every client id."""

    user: str | None
    client_id: str | None


class Applied(NamedTuple):
    limit: float
    sharers: Sharers


def quota_of(limits: Mapping[QuotaEntity, Mapping[str, float]], key: str, user: str, client_id: str) -> Applied | None:
    """The first level that has a limit for `key`; None where the client is not limited."""
    own, of_user, of_client = Sharers(user, client_id), Sharers(user, None), Sharers(None, client_id)
    levels: tuple[tuple[QuotaEntity, Sharers], ...] = (
        (((USER, user), (CLIENT_ID, client_id)), own),
        (((USER, user), (CLIENT_ID, None)), own),
        (((USER, user),), of_user),
        (((USER, None), (CLIENT_ID, client_id)), own),
        (((USER, None), (CLIENT_ID, None)), own),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    )
    for entity, sharers in levels:
        limit = limits.get(entity, {}).get(key)
        if limit is not None:
            return Applied(limit, sharers)
    return None
