"""IncrementalAlterConfigsRequest, versions 0-1. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class IncrementalAlterConfigsRequest(Message):
    __slots__ = ("resources", "validate_only")
    API_KEY = 44
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 1

    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] = UNSET,
        validate_only: bool = False,
    ) -> None:
        self.resources = [] if resources is UNSET else resources
        self.validate_only = validate_only


class AlterConfigsResource(Struct):
    __slots__ = ("resource_type", "resource_name", "configs")

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] = UNSET,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = [] if configs is UNSET else configs


class AlterableConfig(Struct):
    __slots__ = ("name", "config_operation", "value")

    def __init__(
        self,
        *,
        name: str = "",
        config_operation: int = 0,
        value: str | None = "",
    ) -> None:
        self.name = name
        self.config_operation = config_operation
        self.value = value
