"""Combines the clients' results into verdicts, which state for each client software whether it kept each rule, and
prove each violation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from odradek.protocol.kafka_json import kafka_json
from odradek.testing.judge.exchanges import Exchange
from odradek.testing.judge.rule import Level, ProtocolRule
from odradek.testing.judge.rules import RULES
from odradek.testing.judge.scene import Client, Tally

KEPT, BROKEN, NOT_EXERCISED, UNDECIDED = "kept", "broken", "not exercised", "not decided"
Json: TypeAlias = "str | int | bool | list[Json] | dict[str, Json] | None"
ALWAYS_COUNT: Final = frozenset({Level.LOSS, Level.MUST})
MAX_SHOWN_ELEMENTS: Final = 40  # maximum number of list elements shown in a proof


@dataclass(slots=True)
class RuleVerdict:
    """The verdict on one rule. `why` and `proof` describe the rule's first violation."""

    rule: ProtocolRule
    verdict: str
    kept: int = 0
    broken: int = 0
    why: str = ""
    proof: list[Exchange] = field(default_factory=list)

    def as_json(self) -> dict[str, Json]:
        return {
            "rule": self.rule.id,
            "level": self.rule.level.value,
            "clause": self.rule.clause,
            "text": self.rule.text,
            "precondition": self.rule.when or None,
            "needs": self.rule.needs,
            "verdict": self.verdict,
            "kept": self.kept,
            "broken": self.broken,
            "why": self.why or None,
            "proof": [exchange_json(exchange) for exchange in self.proof],
        }


@dataclass(slots=True)
class Software:
    """Clients that report the same software name and version. `began_us` and `ended_us` are the times of these clients'
    first and last requests."""

    name: str
    version: str
    clients: int = 0
    began_us: int = 0
    ended_us: int = 0
    connections: int = 0
    client_ids: set[str] = field(default_factory=set)
    verdicts: dict[str, RuleVerdict] = field(default_factory=dict)

    @property
    def took_us(self) -> int:
        return self.ended_us - self.began_us

    @property
    def title(self) -> str:
        known = self.name if self.version == "unknown" else f"{self.name} {self.version}"
        return f"{known} ({', '.join(sorted(self.client_ids)[:2])})" if self.name == "unknown" else known

    def of(self, verdict: str) -> list[RuleVerdict]:
        return [each for each in self.verdicts.values() if each.verdict == verdict]

    def as_json(self) -> dict[str, Json]:
        return {
            "software": self.name,
            "version": self.version,
            "clients": self.clients,
            "connections": self.connections,
            "client_ids": [*sorted(self.client_ids)],
            "verdicts": [verdict.as_json() for verdict in self.verdicts.values()],
        }


def verdicts(clients: Iterable[Client], only: Iterable[str] = ()) -> list[Software]:
    """Combines the clients' results per client library and version. If `only` is given, includes only rules whose ids
    begin with one of its prefixes."""
    prefixes = tuple(only)
    found: dict[tuple[str, ...], Software] = {}
    tallies: dict[tuple[str, ...], dict[str, Tally]] = {}
    for client in clients:
        key: tuple[str, ...] = (client.name, client.version)
        if client.name == "unknown":  # without a name, only the client id distinguishes software
            key = (*key, *sorted(each.rstrip("0123456789") for each in client.client_ids))
        software = found.setdefault(key, Software(client.name, client.version))
        software.began_us = min(software.began_us, client.began_us) if software.clients else client.began_us
        software.ended_us = max(software.ended_us, client.ended_us)
        software.clients += 1
        software.connections += client.connections
        software.client_ids |= client.client_ids
        for rule, tally in client.tallies.items():
            tallies.setdefault(key, {}).setdefault(rule, Tally()).add(tally)
    for key, software in found.items():
        software.verdicts = {
            rule.id: _verdict(rule, tallies.get(key, {}).get(rule.id))
            for rule in RULES.values()
            if not prefixes or rule.id.startswith(prefixes)
        }
    return list(found.values())


def _verdict(rule: ProtocolRule, tally: Tally | None) -> RuleVerdict:
    if tally is None or not (tally.kept or tally.broken):
        return RuleVerdict(rule, NOT_EXERCISED if rule.needs is None else UNDECIDED)
    if tally.first is None:
        return RuleVerdict(rule, KEPT, tally.kept)
    return RuleVerdict(rule, BROKEN, tally.kept, tally.broken, tally.first.why, tally.first.proof)


def counts_against(verdict: RuleVerdict, *, strict: bool) -> bool:
    """Returns whether the rule was broken and is of a level that makes the command fail."""
    levels = {*ALWAYS_COUNT, Level.SHOULD} if strict else ALWAYS_COUNT
    return verdict.verdict == BROKEN and verdict.rule.level in levels


def exchange_json(exchange: Exchange) -> dict[str, Json]:
    """Returns a decoded exchange as JSON. Times are in milliseconds since the start of the recording."""
    return {
        "exchange": exchange.number,
        "connection": exchange.connection.number,
        "api": None if exchange.api is None else exchange.api.kafka_name,
        "version": exchange.version,
        "correlation_id": exchange.correlation_id,
        "client_id": exchange.client_id,
        "received_ms": exchange.received_us // 1000,
        "sent_after_ms": exchange.earliest_us // 1000,
        "fate": exchange.status.value,
        "answered_ms": exchange.answered_us // 1000 if exchange.answered_us else None,
        "written_ms": None if exchange.written_us is None else exchange.written_us // 1000,
        "unreadable": exchange.unreadable,
        "request": None if exchange.request is None else _shortened(kafka_json(exchange.request, exchange.version)),
        "batches": [
            {
                "topic": str(batch.topic),
                "partition": batch.partition,
                "producer_id": batch.header.producer_id,
                "producer_epoch": batch.header.producer_epoch,
                "base_sequence": batch.header.base_sequence,
                "records": batch.header.record_count,
                "attributes": batch.header.attributes,
            }
            for batch in exchange.batches
        ],
        "answer": None if exchange.answer is None else _shortened(_answer(exchange)),
    }


def _answer(exchange: Exchange) -> Json:
    answer = exchange.answer
    assert answer is not None
    version = exchange.version if exchange.request is not None or exchange.version <= type(answer).MAX_VERSION else 0
    found: Json = kafka_json(answer, version)
    return found


def _shortened(value: object) -> Json:
    """Shortens long lists and appends the number of omitted elements."""
    if isinstance(value, Mapping):
        return {str(name): _shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        more: list[Json] = [f"and {len(value) - MAX_SHOWN_ELEMENTS} more"] if len(value) > MAX_SHOWN_ELEMENTS else []
        return [*map(_shortened, value[:MAX_SHOWN_ELEMENTS]), *more]
    return value if isinstance(value, str | int | bool) or value is None else str(value)
