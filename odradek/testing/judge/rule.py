"""Rules as data, and families of rules with the functions that decide them."""

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
    """The severity of a broken rule. LOSS marks a MUST rule whose violation loses records that the application believes
    to be stored, or hides that they are lost."""

    LOSS = "L"
    MUST = "M"
    SHOULD = "S"
    INFO = "I"


L, M, S, I = Level.LOSS, Level.MUST, Level.SHOULD, Level.INFO  # noqa: E741 (as the levels are written)


@dataclass(frozen=True, slots=True)
class ProtocolRule:
    """One rule.

    Its clause, with the reason and the source, is the row of docs/spec/client-rules.md to which `clause` links.

    when   the precondition: the event that allows a decision
    needs  why traffic alone does not decide the rule; None if it does
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
    """Rules that are decided together.

    on_request, on_response              functions by API: they examine a request when it arrives, or when its response
                                         is sent
    on_every_request, on_every_response  functions for the requests and responses of all APIs
    """

    rules: tuple[ProtocolRule, ...]
    on_request: Mapping[ApiKey, tuple[RuleFunction, ...]] = field(default_factory=dict)
    on_response: Mapping[ApiKey, tuple[RuleFunction, ...]] = field(default_factory=dict)
    on_every_request: tuple[RuleFunction, ...] = ()
    on_every_response: tuple[RuleFunction, ...] = ()


def undecided(id_: str, level: Level, text: str, needs: str) -> ProtocolRule:
    """Returns a rule that traffic alone does not decide."""
    return ProtocolRule(id_, level, text, needs=needs)
