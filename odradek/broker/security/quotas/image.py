"""The client quotas that the metadata log describes. Only `replay` changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.security.quotas.entities import QuotaEntity, entity_of

if TYPE_CHECKING:
    from odradek.protocol.messages.client_quota_record import ClientQuotaRecord


class ClientQuotasImage:
    """limits: of each entity that has any, by key."""

    __slots__ = ("limits",)

    def __init__(self) -> None:
        self.limits: dict[QuotaEntity, dict[str, float]] = {}

    def replay(self, record: ClientQuotaRecord) -> None:
        """Of a type that is named twice the last name counts, as in Kafka. Removing what is not there does nothing."""
        entity = entity_of({each.entity_type: each.entity_name for each in record.entity})
        if not record.remove:
            self.limits.setdefault(entity, {})[record.key] = record.value
            return
        limits = self.limits.get(entity)
        if limits is not None:
            limits.pop(record.key, None)
            if not limits:
                del self.limits[entity]
