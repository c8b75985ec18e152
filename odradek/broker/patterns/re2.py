"""Matches regular expressions with the same guarantee as RE2: the time is linear in the length of the text, whatever
the pattern.

A pattern is compiled into an automaton, and all active positions of the automaton are followed simultaneously. The
positions are the bits of a single integer, so a step costs a few integer operations, however many positions are active.
Most positions are followed by the next lower one, so their step is a shift. Jumps, which result from groups,
repetitions and anchors, are followed one by one, and the result is cached.

With Python's `re`, a client's pattern could take years to match. This is impossible here, but matching a large pattern
against a very large number of strings still takes seconds. The work is therefore counted (`Pattern.work`), and
`Pattern.steps` pauses often enough for other clients to be served.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

from odradek.broker.patterns.re2_syntax import (
    WORD_CHARS,
    Alternation,
    Anchor,
    Char,
    Empty,
    InvalidPattern,
    Node,
    PatternGroup,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["InvalidPattern", "Pattern", "TooMuchWork", "check"]

WORK_PER_STEP: Final = 50  # units of work between two pauses of `steps`; about 20 µs
# An operation on an integer of this many bits costs about twice as much as an operation on a small integer.
BITS_PER_UNIT: Final = 4_096
# The cache of each pattern holds 4 MiB of results and is cleared when it is full.
MAX_REMEMBERED_BITS: Final = 32 * 1024 * 1024
ENTRY_BITS: Final = 1_024  # size in bits of a cache entry without its integers
MAX_REMEMBERED_CHARS: Final = 512

END: Final = 0  # position reached when the pattern has matched
Place: TypeAlias = int  # a position, or ~n, which is negative, for jump n
# Start and end offsets of the entire match and of each group, or -1 if the group did not match.
Captures: TypeAlias = tuple[int, ...]


class TooMuchWork(Exception):
    """Raised if matching would take more work than the caller allows."""


def check(pattern: str) -> None:
    """Checks the syntax. Raises InvalidPattern. This is cheaper than creating a Pattern, which expands all
    repetitions."""
    parse(pattern)


class Pattern:
    """A compiled pattern. The constructor raises InvalidPattern. `capture` requires a pattern created with `captures`.

    work         work done so far for this pattern: characters read, jumps followed, and characters tested
    group_count  number of capturing groups
    """

    def __init__(self, pattern: str, *, captures: bool = False) -> None:
        self.work = 0
        self._captures = captures
        self.group_count = 0
        self._then: list[Place] = [END]  # by position: the place after its character
        # By jump: the places that the jump leads to, in order of preference.
        self._jumps: list[tuple[Place, ...]] = []
        self._anchors: dict[int, Anchor] = {}  # by jump: the condition that must hold to follow it
        self._saves: dict[int, int] = {}  # by jump: the index in `Captures` that is set to the current offset
        self._masks: dict[int, tuple[Char, int]] = {}  # by id: a test of characters, and the positions that use it
        self._begin = self._build(parse(pattern), END)
        count = len(self._then)
        self._start = 1 << count  # the bit for the position before the first character
        self._then.append(self._begin)
        self._simple = 0  # the positions whose next place is the next lower position
        for position in range(1, count):
            if self._then[position] == position - 1:
                self._simple |= 1 << position
        self._kinds = tuple((char.accepts, mask) for char, mask in self._masks.values())
        self._masks.clear()
        self._cost = 1 + count // BITS_PER_UNIT
        self._chars: dict[str, int] = {}
        self._reached: dict[tuple[int, str, str], int] = {}
        self._remembered_bits = 0

    def matches(self, text: str) -> bool:
        """Returns whether the pattern matches the entire text."""
        steps = self.steps(text)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return bool(done.value)

    def steps(self, text: str) -> Generator[None, None, bool]:
        """Like `matches`, but yields once for every WORK_PER_STEP units of work. The number of yields therefore
        measures the work."""
        pause_at = self.work + WORK_PER_STEP
        by_shift, by_jump = 0, self._start  # positions reached by a shift, and positions whose jumps must be followed
        before = ""
        is_alive = True
        for char in text:
            active = by_shift | self._after_jumps(by_jump, before, char) if by_jump else by_shift
            matched = active & self._taking(char)
            self.work += self._cost
            is_alive = matched != 0
            if not is_alive:
                break
            by_shift = (matched & self._simple) >> 1
            by_jump = matched & ~self._simple
            before = char
            while self.work >= pause_at:
                pause_at += WORK_PER_STEP
                yield
        matches = is_alive and bool((by_shift | self._after_jumps(by_jump, before, "")) & 1)
        while self.work >= pause_at:
            pause_at += WORK_PER_STEP
            yield
        return matches

    def _taking(self, char: str) -> int:
        """Returns the positions that accept this character."""
        mask = self._chars.get(char)
        if mask is None:
            mask = 0
            for accepts, positions in self._kinds:
                if accepts(char):
                    mask |= positions
            self.work += len(self._kinds) * self._cost
            if len(self._chars) >= MAX_REMEMBERED_CHARS:
                self._chars.clear()
            self._chars[char] = mask
        return mask

    def _after_jumps(self, positions: int, before: str, after: str) -> int:
        """Returns the positions reached by jumps from these positions, at the point between the characters `before` and
        `after`. An empty `before` or `after` means the beginning or end of the text."""
        if not positions:
            return 0
        key = (positions, _kind(before), _kind(after)) if self._anchors else (positions, "", "")
        found = self._reached.get(key)
        if found is None:
            found = self._follow_jumps(positions, before, after)
            self._remembered_bits += ENTRY_BITS + positions.bit_length() + found.bit_length()
            if self._remembered_bits > MAX_REMEMBERED_BITS:
                self._reached.clear()
                self._remembered_bits = 0
            self._reached[key] = found
        return found

    def _follow_jumps(self, positions: int, before: str, after: str) -> int:
        waiting = [self._then[position] for position in _bits(positions)]
        seen: set[int] = set()
        # One byte is used per position, because setting bits would copy a large integer each time.
        reached = bytearray(len(self._then))
        work = len(waiting) + len(reached) // BITS_PER_UNIT
        while waiting:
            place = waiting.pop()
            if place >= 0:
                reached[place] = 1
            elif place not in seen:
                seen.add(place)
                anchor = self._anchors.get(~place)
                if anchor is None or _holds(anchor, before, after):
                    targets = self._jumps[~place]
                    waiting.extend(targets)
                    work += len(targets)
        self.work += work * self._cost
        return _number(reached)

    # The following methods find captured groups. If there are several possible matches, the result is the match that
    # Perl, Java and RE2 prefer.

    def capture(self, text: str, begin: int, *, whole: bool, max_work: int) -> Captures | None:
        """Finds the first match at or after `begin`, or returns None. If `whole` is set, the match must start at
        `begin` and end at the end of the text.

        Raises TooMuchWork.
        """
        work_before = self.work
        empty = (-1,) * (2 * self.group_count + 2)
        threads: list[tuple[int, Captures]] = []
        found: Captures | None = None
        for at in range(begin, len(text) + 1):
            before, after = text[at - 1 : at], text[at : at + 1]
            starts = found is None and (at == begin or not whole)
            if not threads and not starts:
                break
            active: list[tuple[int, Captures]] = []
            reached: set[Place] = set()
            for position, captures in threads:
                self._add_thread(self._then[position], captures, at, before, after, reached, active)
            if starts:
                self._add_thread(self._begin, (at, *empty[1:]), at, before, after, reached, active)
            threads = []
            taking = self._taking(after) if after else 0
            for position, captures in active:
                if position == END:
                    if whole and after:
                        continue
                    found = (captures[0], at, *captures[2:])
                    break  # all remaining threads are less preferred than this match
                if taking >> position & 1:
                    threads.append((position, captures))
            self.work += 1 + len(active) * self._cost
            if self.work - work_before > max_work:
                raise TooMuchWork
        return found

    def _add_thread(
        self,
        place: Place,
        captures: Captures,
        at: int,
        before: str,
        after: str,
        reached: set[Place],
        active: list[tuple[int, Captures]],
    ) -> None:
        waiting = [(place, captures)]
        while waiting:
            place, captures = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            self.work += 1
            if place >= 0:
                active.append((place, captures))
                continue
            anchor = self._anchors.get(~place)
            if anchor is not None and not _holds(anchor, before, after):
                continue
            slot = self._saves.get(~place)
            if slot is not None:
                captures = (*captures[:slot], at, *captures[slot + 1 :])
                self.work += len(captures) // 16
            waiting.extend((target, captures) for target in reversed(self._jumps[~place]))

    # Patterns are compiled from the end to the beginning, so that the characters of a sequence have descending
    # positions.

    def _jump(self, *targets: Place) -> Place:
        self._jumps.append(targets)
        return ~(len(self._jumps) - 1)

    def _build(self, node: Node, then: Place) -> Place:
        """Compiles `node`, which is followed by the place `then`. Returns the place at which `node` begins."""
        match node:
            case Char():
                position = len(self._then)
                self._then.append(then)
                self._masks[id(node)] = node, self._masks.get(id(node), (node, 0))[1] | 1 << position
                return position
            case Empty(anchor):
                place = self._jump(then)
                if anchor is not None:
                    self._anchors[~place] = anchor
                return place
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Alternation(options):
                return self._jump(*(self._build(option, then) for option in options))
            case Repeat(what, least, most, is_lazy):
                return self._build_repeat(what, least, most, then, is_lazy=is_lazy)
            case PatternGroup(number, what):
                self.group_count = max(self.group_count, number)
                if not self._captures:
                    return self._build(what, then)
                return self._saving(2 * number, self._build(what, self._saving(2 * number + 1, then)))

    def _saving(self, slot: int, then: Place) -> Place:
        place = self._jump(then)
        self._saves[~place] = slot
        return place

    def _build_repeat(self, what: Node, least: int, most: int | None, then: Place, *, is_lazy: bool) -> Place:
        if most is None:
            again = self._jump()
            inner = self._build(what, again)
            self._jumps[~again] = (then, inner) if is_lazy else (inner, then)
            then = again
        else:
            end = then
            for _ in range(most - least):
                inner = self._build(what, then)
                then = self._jump(end, inner) if is_lazy else self._jump(inner, end)
        for _ in range(least):
            then = self._build(what, then)
        return then


def _bits(number: int) -> list[int]:
    """Returns the indexes of the set bits."""
    text = bin(number)
    highest = len(text) - 1
    return [highest - at for at in range(2, len(text)) if text[at] == "1"]


def _number(flags: bytearray) -> int:
    """Returns the integer whose bit n is set if flag n is 1."""
    return int(flags[::-1].translate(TO_DIGITS), 2)


TO_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


def _kind(char: str) -> str:
    """Returns the class of a character as a string. The anchors treat all characters of a class alike."""
    if char in ("", "\n"):
        return char
    return "w" if char in WORD_CHARS else "-"


def _holds(anchor: Anchor, before: str, after: str) -> bool:
    match anchor:
        case Anchor.TEXT_START:
            return before == ""
        case Anchor.TEXT_END:
            return after == ""
        case Anchor.LINE_START:
            return before in ("", "\n")
        case Anchor.LINE_END:
            return after in ("", "\n")
        case Anchor.WORD:
            return (before in WORD_CHARS) != (after in WORD_CHARS)
        case Anchor.NO_WORD:
            return (before in WORD_CHARS) == (after in WORD_CHARS)
