"""AlterClientQuotasRequest, versions 0-1. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class AlterClientQuotasRequest(Message):
    __slots__ = ("entries", "validate_only")
    API_KEY = 49
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 1

    def __init__(
        self,
        *,
        entries: list[EntryData] = UNSET,
        validate_only: bool = False,
    ) -> None:
        self.entries = [] if entries is UNSET else entries
        self.validate_only = validate_only


class EntryData(Struct):
    __slots__ = ("entity", "ops")

    def __init__(
        self,
        *,
        entity: list[EntityData] = UNSET,
        ops: list[OpData] = UNSET,
    ) -> None:
        self.entity = [] if entity is UNSET else entity
        self.ops = [] if ops is UNSET else ops


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


class OpData(Struct):
    __slots__ = ("key", "value", "remove")

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.key = key
        self.value = value
        self.remove = remove
