"""LeaderChangeMessage, versions 0-1. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, ZERO_UUID, Message, Struct


class LeaderChangeMessage(Message):
    __slots__ = ("version", "leader_id", "voters", "granting_voters")
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        version: int = 0,
        leader_id: int = 0,
        voters: list[Voter] = UNSET,
        granting_voters: list[Voter] = UNSET,
    ) -> None:
        self.version = version
        self.leader_id = leader_id
        self.voters = [] if voters is UNSET else voters
        self.granting_voters = [] if granting_voters is UNSET else granting_voters


class Voter(Struct):
    __slots__ = ("voter_id", "voter_directory_id")

    def __init__(
        self,
        *,
        voter_id: int = 0,
        voter_directory_id: bytes = ZERO_UUID,
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
