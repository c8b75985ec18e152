"""Defines the classes for rules, and for families of rules with the functions that decide them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from odradek.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from odradek.testing.judge.exchanges import Exchange
    from odradek.testing.judge.scene import Scene


class Level(Enum):
    """The severity of a violation. LOSS marks a MUST rule whose violation loses records that the application believes
    to be stored, or hides their loss."""

    LOSS = "L"
    MUST = "M"
    SHOULD = "S"
    INFO = "I"


L, M, S, I = Level.LOSS, Level.MUST, Level.SHOULD, Level.INFO  # noqa: E741 (as the levels are written)


@dataclass(frozen=True, slots=True)
class ProtocolRule:
    """A protocol rule for clients. docs/spec/client-rules.md gives its reason and its source in the row that `clause`
    links to.

    when   the event that allows a decision
    needs  anything besides traffic that is needed to decide the rule; None if traffic is enough
    """

    id: str
    level: Level
    text: str
    when: str = ""
    needs: str | None = None

    @property
    def clause(self) -> str:
        """The link to the clause, relative to the root of the repository."""
        return f"docs/spec/client-rules.md#{self.id.lower().replace('.', '-')}"

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]


RuleFunction: TypeAlias = "Callable[[Exchange, Scene], None]"


@dataclass(frozen=True, slots=True)
class Family:
    """A group of rules that are decided by the same functions.

    on_request         functions keyed by API, called when a request arrives
    on_response        functions keyed by API, called when the response to a request is sent
    on_every_request   functions called when a request of any API arrives
    on_every_response  functions called when the response to a request of any API is sent
    """

    rules: tuple[ProtocolRule, ...]
    on_request: Mapping[ApiKey, tuple[RuleFunction, ...]] = field(default_factory=dict)
    on_response: Mapping[ApiKey, tuple[RuleFunction, ...]] = field(default_factory=dict)
    on_every_request: tuple[RuleFunction, ...] = ()
    on_every_response: tuple[RuleFunction, ...] = ()


def undecided(id_: str, level: Level, text: str, needs: str) -> ProtocolRule:
    """Returns a rule that cannot be decided from traffic alone."""
    return ProtocolRule(id_, level, text, needs=needs)
