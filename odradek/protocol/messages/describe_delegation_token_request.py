"""DescribeDelegationTokenRequest, versions 1-3. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class DescribeDelegationTokenRequest(Message):
    __slots__ = ("owners",)
    API_KEY = 41
    MIN_VERSION = 1
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2

    def __init__(
        self,
        *,
        owners: list[DescribeDelegationTokenOwner] | None = UNSET,
    ) -> None:
        self.owners = [] if owners is UNSET else owners


class DescribeDelegationTokenOwner(Struct):
    __slots__ = ("principal_type", "principal_name")

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name
