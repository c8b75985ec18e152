"""Rules as data, and families of them: the functions that decide rules, by the API and the moment they look at."""

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
    """How much a break counts. LOSS: a MUST whose break loses records that the application believes to be stored, or
    hides that they are lost."""

    LOSS = "L"
    MUST = "M"
    SHOULD = "S"
    INFO = "I"


L, M, S, I = Level.LOSS, Level.MUST, Level.SHOULD, Level.INFO  # noqa: E741 (as the levels are written)


@dataclass(frozen=True, slots=True)
class ProtocolRule:
    """One row of the table.

    Its clause, with the reason and the source, is the row of docs/spec/client-rules.md that `clause` names.

    when   the precondition: what has to happen for it to be decided
    needs  why traffic alone does not decide it; None where it does
    """

    id: str
    level: Level
    text: str
    when: str = ""
    needs: str | None = None

    @property
    def clause(self) -> str:
        """The link to the clause, from the root of the repository."""
        return f"docs/spec/client-rules.md#{self.id.lower().replace('.', '-')}"

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]


Look: TypeAlias = "Callable[[Exchange, Scene], None]"


@dataclass(frozen=True, slots=True)
class Family:
    """Rules that are decided together. Functions may look at every request (`all_sent`), or at those of some APIs, when
    they are received (`sent`) or when their answers are there (`answered`)."""

    rules: tuple[ProtocolRule, ...]
    sent: Mapping[ApiKey, tuple[Look, ...]] = field(default_factory=dict)
    answered: Mapping[ApiKey, tuple[Look, ...]] = field(default_factory=dict)
    all_sent: tuple[Look, ...] = ()
    all_answered: tuple[Look, ...] = ()


def undecided(id_: str, level: Level, text: str, needs: str) -> ProtocolRule:
    """A row that traffic alone does not decide."""
    return ProtocolRule(id_, level, text, needs=needs)
