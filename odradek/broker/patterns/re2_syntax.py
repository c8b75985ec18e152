"""Parses the syntax of RE2, which Kafka uses for patterns in requests.

RE2 has neither backreferences nor lookaround, either of which could make matching slow. `odradek.broker.patterns.re2`
matches the parsed patterns. Source: RE2's syntax page (github.com/google/re2/wiki/Syntax), and the observed behaviour
of RE2/J in Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from odradek.protocol.quoting import MAX_QUOTED_LENGTH, shortened

MAX_REPEAT = 1000
MAX_SIZE = 10_000  # maximum number of nodes in a parsed pattern with its repetitions expanded
MAX_DEPTH = 100  # maximum depth of nested groups
MAX_REPETITION_LENGTH = 21  # length of {123456789,123456789}; a brace with longer numbers is an ordinary character
WITHOUT_LIMIT = None

CharTest: TypeAlias = Callable[[str], bool]


class InvalidPattern(ValueError):
    """Raised if a pattern is not a valid regular expression for RE2. The message gives the reason."""


class Anchor(Enum):
    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    WORD = auto()
    NO_WORD = auto()


@dataclass(frozen=True, slots=True)
class Char:
    accepts: CharTest


@dataclass(frozen=True, slots=True)
class Empty:
    at: Anchor | None = None  # None matches at any offset


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition. If `is_lazy` is set, as few repetitions as possible are preferred. This only affects the captured
    groups."""

    what: Node
    least: int
    most: int | None
    is_lazy: bool = False


@dataclass(frozen=True, slots=True)
class PatternGroup:
    """A capturing group. Groups are numbered from 1, in the order of their opening parentheses."""

    number: int
    what: Node


Node: TypeAlias = Char | Empty | Sequence | Alternation | Repeat | PatternGroup


@dataclass(frozen=True, slots=True)
class Flags:
    ignores_case: bool = False
    is_multi_line: bool = False
    dot_is_all: bool = False
    is_ungreedy: bool = False


ESCAPED_CHARS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
ANCHORS = {"A": Anchor.TEXT_START, "z": Anchor.TEXT_END, "b": Anchor.WORD, "B": Anchor.NO_WORD}
DIGITS = frozenset("0123456789")
SPACES = frozenset("\t\n\f\r ")
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORD_CHARS = LETTERS | DIGITS | {"_"}
PERL_CLASSES = {"d": DIGITS, "s": SPACES, "w": WORD_CHARS}
PRINTED = frozenset(chr(code) for code in range(0x20, 0x7F))
POSIX_CLASSES = {
    "alnum": LETTERS | DIGITS,
    "alpha": LETTERS,
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, range(32))) | {"\x7f"},
    "digit": DIGITS,
    "graph": PRINTED - {" "},
    "lower": frozenset(char for char in LETTERS if char.islower()),
    "print": PRINTED,
    "punct": PRINTED - LETTERS - DIGITS - {" "},
    "space": SPACES | {"\v"},
    "upper": frozenset(char for char in LETTERS if char.isupper()),
    "word": WORD_CHARS,
    "xdigit": DIGITS | frozenset("abcdefABCDEF"),
}
CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No"})
CATEGORIES |= {"Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs", *"CLMNPSZ"}
# The characters of a script are recognised by the first words of their Unicode names. RE2 supports more scripts than
# these. Patterns that use any other script are refused.
SCRIPTS = {
    "Arabic": "ARABIC ",
    "Armenian": "ARMENIAN ",
    "Cyrillic": "CYRILLIC ",
    "Devanagari": "DEVANAGARI ",
    "Georgian": "GEORGIAN ",
    "Greek": "GREEK ",
    "Han": "CJK ",
    "Hangul": "HANGUL ",
    "Hebrew": "HEBREW ",
    "Hiragana": "HIRAGANA ",
    "Katakana": "KATAKANA ",
    "Latin": "LATIN ",
    "Thai": "THAI ",
}


def parse(pattern: str) -> Node:
    """Parses a pattern. Raises InvalidPattern."""
    parser = _PatternParser(pattern)
    node = parser.choice()
    if not parser.at_end:
        raise InvalidPattern("unexpected ): " + shortened(pattern, MAX_QUOTED_LENGTH))
    _check_size(node)
    return node


def _check_size(node: Node) -> int:
    match node:
        case Char() | Empty():
            size = 1
        case Sequence(parts) | Alternation(parts):
            size = 1 + sum(map(_check_size, parts))
        case PatternGroup(_, what):
            size = _check_size(what)
        case Repeat(what, least, most):
            size = 1 + _check_size(what) * max(least, most or 1)
    if size > MAX_SIZE:
        raise InvalidPattern("expression too large")
    return size


class _PatternParser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags = Flags()
        self._depth = 0
        self._group_count = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._pattern)

    def _peek(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _skip(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self._at += len(text)
        return True

    def _next(self) -> str:
        if self.at_end:
            raise InvalidPattern("unexpected end of the pattern")
        self._at += 1
        return self._pattern[self._at - 1]

    def _until(self, end: str, why: str) -> str:
        found = self._pattern.find(end, self._at)
        if found < 0:
            raise InvalidPattern(why)
        text, self._at = self._pattern[self._at : found], found + len(end)
        return text

    def choice(self) -> Node:
        options = [self._sequence()]
        while self._skip("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while not self.at_end and not self._peek("|") and not self._peek(")"):
            if self._skip("\\Q"):
                end = self._pattern.find("\\E", self._at)
                quoted = self._pattern[self._at : end] if end >= 0 else self._pattern[self._at :]
                self._at = end + 2 if end >= 0 else len(self._pattern)
                parts += [self._literal(char) for char in quoted]
                if quoted:
                    parts[-1] = self._repeated(parts[-1])
                continue
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
            elif parts:  # the atom contained only flags, so the repetition applies to the node before them
                parts[-1] = self._repeated(parts[-1])
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, atom: Node) -> Node:
        bounds = self._repetition()
        if bounds is None:
            return atom
        is_lazy = self._skip("?") != self._flags.is_ungreedy
        if self._repetition() is not None:
            raise InvalidPattern("invalid nested repetition operator")
        return Repeat(atom, *bounds, is_lazy=is_lazy)

    def _repetition(self) -> tuple[int, int | None] | None:
        """Parses a repetition and returns its bounds. Returns None, without reading anything, if there is no repetition
        here."""
        for text, least, most in (("*", 0, WITHOUT_LIMIT), ("+", 1, WITHOUT_LIMIT), ("?", 0, 1)):
            if self._skip(text):
                return least, most
        if not self._peek("{"):
            return None
        end = self._pattern.find("}", self._at, self._at + MAX_REPETITION_LENGTH)
        first, comma, last = self._pattern[self._at + 1 : end].partition(",") if end >= 0 else ("", "", "")
        if not _is_number(first) or not (last == "" or _is_number(last)):
            return None  # this brace is an ordinary character
        self._at = end + 1
        bounds = int(first), int(last) if last else (WITHOUT_LIMIT if comma else int(first))
        if bounds[0] > MAX_REPEAT or (bounds[1] is not None and not bounds[0] <= bounds[1] <= MAX_REPEAT):
            raise InvalidPattern("bad repetition operator")
        return bounds

    def _atom(self) -> Node | None:
        """Parses one atom. Returns None if the atom only sets flags, which do not match anything by themselves."""
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return Char(self._char_class())
            case ".":
                return Char((lambda _: True) if self._flags.dot_is_all else (lambda one: one != "\n"))
            case "^":
                return Empty(Anchor.LINE_START if self._flags.is_multi_line else Anchor.TEXT_START)
            case "$":
                return Empty(Anchor.LINE_END if self._flags.is_multi_line else Anchor.TEXT_END)
            case "*" | "+" | "?":
                raise InvalidPattern("missing argument to repetition operator: " + char)
            case "{":
                self._at -= 1
                if self._repetition() is not None:
                    raise InvalidPattern("missing argument to repetition operator: {")
                self._at += 1
                return self._literal(char)
            case "\\":
                return self._escape()
            case _:
                return self._literal(char)

    def _group(self) -> Node | None:
        before = self._flags
        number = 0
        if not self._peek("?") or self._peek("?P<") or self._peek("?<"):
            self._group_count += 1
            number = self._group_count
        if self._skip("?"):
            if self._skip("P<") or self._skip("<"):
                name = self._until(">", "invalid named capture")
                if not name or not set(name) <= WORD_CHARS:
                    raise InvalidPattern("invalid named capture")
            elif not self._flags_of_group():
                return None  # the flags apply up to the end of the enclosing group
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidPattern("expression nests too deeply")
        inner = self.choice()
        if not self._skip(")"):
            raise InvalidPattern("missing closing ): " + shortened(self._pattern, MAX_QUOTED_LENGTH))
        self._depth -= 1
        self._flags = before
        return PatternGroup(number, inner) if number else inner

    def _flags_of_group(self) -> bool:
        """Parses `flags:` or `flags)`. Returns whether a group follows."""
        changes: dict[str, bool] = {}
        names = {"i": "ignores_case", "m": "is_multi_line", "s": "dot_is_all", "U": "is_ungreedy"}
        is_on = True
        while True:
            char = self._next()
            if char == "-" and is_on:
                is_on = False
            elif char in names:
                changes[names[char]] = is_on
            elif char in ":)":
                break
            else:
                raise InvalidPattern("invalid or unsupported Perl syntax: (?" + char)
        self._flags = replace(self._flags, **changes)
        return char == ":"

    def _literal(self, char: str) -> Char:
        return Char(self._folded(lambda one: one == char))

    def _folded(self, accepts: CharTest) -> CharTest:
        if not self._flags.ignores_case:
            return accepts
        return lambda one: accepts(one) or accepts(one.lower()) or accepts(one.upper())

    def _escape(self) -> Node:
        char = self._next()
        if char in ANCHORS:
            return Empty(ANCHORS[char])
        test = self._class_escape(char)
        return Char(self._folded(test)) if test is not None else self._literal(self._escaped_char(char))

    def _class_escape(self, char: str) -> CharTest | None:
        """Returns the character class of an escape such as \\d or \\pL, or None if the escape represents a single
        character."""
        members = PERL_CLASSES.get(char.lower())
        if members is not None:
            found = members
            return (lambda one: one in found) if char.islower() else (lambda one: one not in found)
        if char not in "pP":
            return None
        name = self._until("}", "invalid character class range") if self._skip("{") else self._next()
        is_negated = (char == "P") != name.startswith("^")
        test = _unicode_class(name.removeprefix("^"))
        return (lambda one: not test(one)) if is_negated else test

    def _escaped_char(self, char: str) -> str:
        if char in ESCAPED_CHARS:
            return ESCAPED_CHARS[char]
        if char == "x":
            digits = self._until("}", "invalid escape sequence") if self._skip("{") else self._next() + self._next()
            if not digits or not set(digits) <= POSIX_CLASSES["xdigit"] or int(digits, 16) > 0x10FFFF:
                raise InvalidPattern("invalid escape sequence")
            return chr(int(digits, 16))
        if char in "01234567":
            following = self._pattern[self._at : self._at + 1]
            if char != "0" and following not in tuple("01234567"):
                raise InvalidPattern("invalid escape sequence: \\" + char)  # this would be a backreference
            digits = char
            while len(digits) < 3 and not self.at_end and self._pattern[self._at] in "01234567":
                digits += self._next()
            return chr(int(digits, 8))
        if char in LETTERS or char in DIGITS or not char.isascii():
            raise InvalidPattern("invalid escape sequence: \\" + char)
        return char

    def _char_class(self) -> CharTest:
        is_negated = self._skip("^")
        tests: list[CharTest] = []
        is_first = True
        while is_first or not self._peek("]"):
            is_first = False
            test = self._named_class()
            tests.append(test if test is not None else self._range())
        self._next()
        found = self._folded(lambda one: any(test(one) for test in tests))
        return (lambda one: not found(one)) if is_negated else found

    def _named_class(self) -> CharTest | None:
        if self._peek("[:") and self._pattern.find(":]", self._at) >= 0:
            self._at += 2
            name = self._until(":]", "missing closing ]")
            members = POSIX_CLASSES.get(name.removeprefix("^"))
            if members is None:
                raise InvalidPattern("invalid character class range: [:" + shortened(name, MAX_QUOTED_LENGTH) + ":]")
            found = members
            return (lambda one: one not in found) if name.startswith("^") else (lambda one: one in found)
        if self._peek("\\"):
            before = self._at
            self._at += 1
            test = self._class_escape(self._next())
            if test is not None:
                return test
            self._at = before
        return None

    def _range(self) -> CharTest:
        first = self._class_char()
        last = first
        if self._peek("-") and not self._peek("-]"):
            self._at += 1
            last = self._class_char()
        if last < first:
            raise InvalidPattern("invalid character class range")
        return lambda one: first <= one <= last

    def _class_char(self) -> str:
        char = self._next()
        return self._escaped_char(self._next()) if char == "\\" else char


def _is_number(text: str) -> bool:
    return text != "" and set(text) <= DIGITS and len(text) < 10


def _unicode_class(name: str) -> CharTest:
    from unicodedata import category
    from unicodedata import name as name_of

    if name == "Any":
        return lambda _: True
    if name in CATEGORIES:
        return lambda one: category(one).startswith(name)
    begins = SCRIPTS.get(name)
    if begins is None:
        raise InvalidPattern("invalid character class range: \\p{" + shortened(name, MAX_QUOTED_LENGTH) + "}")
    return lambda one: name_of(one, "").startswith(begins)
