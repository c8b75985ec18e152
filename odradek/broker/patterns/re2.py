"""Matching with RE2's guarantee: the time grows with the text, whatever the pattern.

A pattern becomes a set of positions that are followed all at once; transitions from set to set are cached, up to a
bound. Python's `re` could be kept busy for years by a pattern that a client sends.
"""

from __future__ import annotations

from odradek.broker.patterns.re2_syntax import (
    WORD_CHARS,
    Alternation,
    Anchor,
    Char,
    CharTest,
    Empty,
    InvalidPattern,
    Node,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["InvalidPattern", "Pattern"]

MAX_REMEMBERED = 10_000  # steps; then the cache is cleared

Positions = frozenset[int]


class Pattern:
    """Raises InvalidPattern."""

    def __init__(self, pattern: str) -> None:
        self._chars: dict[int, tuple[CharTest, int]] = {}  # position → what it takes, and where to
        self._jumps: dict[int, tuple[tuple[Anchor | None, int], ...]] = {}  # position → where to without a character
        self._count = 0
        self._end = self._new()
        self._begin = self._build(parse(pattern), self._end)
        self._steps: dict[tuple[Positions, str, str], Positions] = {}

    def matches(self, text: str) -> bool:
        """The whole of it."""
        positions: Positions = frozenset({self._begin})
        before = ""
        for char in text:
            positions = self._step(positions, before, char)
            if not positions:
                return False
            before = char
        return self._end in self._reachable(positions, before, "")

    def _step(self, positions: Positions, before: str, char: str) -> Positions:
        key = (positions, before, char)
        found = self._steps.get(key)
        if found is None:
            found = frozenset(
                target
                for position in self._reachable(positions, before, char)
                if position in self._chars
                for accepts, target in (self._chars[position],)
                if accepts(char)
            )
            if len(self._steps) >= MAX_REMEMBERED:
                self._steps.clear()
            self._steps[key] = found
        return found

    def _reachable(self, positions: Positions, before: str, after: str) -> set[int]:
        """Where one can get between two characters; "" stands for the text's end."""
        reached = set(positions)
        waiting = list(positions)
        while waiting:
            for anchor, target in self._jumps.get(waiting.pop(), ()):
                if target not in reached and (anchor is None or _holds(anchor, before, after)):
                    reached.add(target)
                    waiting.append(target)
        return reached

    # Building, from the end to the beginning.

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _jump(self, *targets: int, at: Anchor | None = None) -> int:
        position = self._new()
        self._jumps[position] = tuple((at, target) for target in targets)
        return position

    def _build(self, node: Node, then: int) -> int:
        """The position at which `node`, and then `then`, begins."""
        match node:
            case Char(accepts):
                position = self._new()
                self._chars[position] = (accepts, then)
                return position
            case Empty(anchor):
                return self._jump(then, at=anchor)
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Alternation(options):
                return self._jump(*(self._build(option, then) for option in options))
            case Repeat(what, least, most):
                return self._build_repeat(what, least, most, then)

    def _build_repeat(self, what: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            again = self._new()
            self._jumps[again] = ((None, self._build(what, again)), (None, then))
            then = again
        else:
            end = then
            for _ in range(most - least):
                then = self._jump(self._build(what, then), end)
        for _ in range(least):
            then = self._build(what, then)
        return then


def _holds(anchor: Anchor, before: str, after: str) -> bool:
    match anchor:
        case Anchor.TEXT_BEGIN:
            return before == ""
        case Anchor.TEXT_END:
            return after == ""
        case Anchor.LINE_BEGIN:
            return before in ("", "\n")
        case Anchor.LINE_END:
            return after in ("", "\n")
        case Anchor.WORD:
            return (before in WORD_CHARS) != (after in WORD_CHARS)
        case Anchor.NO_WORD:
            return (before in WORD_CHARS) == (after in WORD_CHARS)
