"""ClientQuotaRecord, versions 0-0. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class ClientQuotaRecord(Message):
    __slots__ = ("entity", "key", "value", "remove")
    API_KEY = 14
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        entity: list[EntityData] = UNSET,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.entity = [] if entity is UNSET else entity
        self.key = key
        self.value = value
        self.remove = remove


class EntityData(Struct):
    __slots__ = ("entity_type", "entity_name")

    def __init__(
        self,
        *,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name
