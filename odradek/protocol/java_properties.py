"""Parses the two Java text formats that Kafka's brokers and clients use for settings: properties files, and the value
of `sasl.jaas.config`, which contains login modules with their options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice's password";

Option values are unquoted, or in single or double quotes with Java's escapes. Comments are `//` and `/* */`. Source:
Kafka 4.3.1's JaasConfig, which splits the text in the same way as Java's StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """Returns the names and values in a Java properties file. If a name is repeated, its last value is used. Parsing
    never fails, even on an invalid `\\u` escape, which Java rejects.

    A key ends at the first unescaped `=`, `:` or blank. A line that begins with `#` or `!` is a comment. A backslash at
    the end of a line joins the line with the next one.
    """
    return dict(_pair(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    whole = ""
    joined = False
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        joined = backslashes % 2 == 1
        whole += line[:-1] if joined else line
        if not joined:
            yield whole
            whole = ""
    if whole:
        yield whole


def _pair(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + BLANKS:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(BLANKS)
    return _unescape(line[:end]), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            code = text[position : position + 4]
            if escaped == "u" and len(code) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in code):
                parts.append(chr(int(code, 16)))
                position += 4
            else:
                parts.append(ESCAPES.get(escaped, escaped))
        else:
            parts.append(character)
    return "".join(parts)


FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
JAAS_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
TOKEN = re.compile(
    r"""(?P<skipped>\s+|//[^\n]*|/\*.*?\*/)
      | "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<bare>[^\s"'=;/]+)
      | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)


class InvalidJaas(ValueError):
    """The text cannot be parsed. The message may contain option names, but not their values, which are secrets."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module and its options. `name` is the name of its Java class."""

    name: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the text. `is_mark` is true for an unquoted `=` or `;`."""

    text: str = field(repr=False)
    is_mark: bool = False


def parse_login_module(text: str) -> LoginModule:
    """Parses a `sasl.jaas.config` that must contain exactly one module. Raises InvalidJaas."""
    modules = parse_jaas(text)
    if len(modules) != 1:
        raise InvalidJaas(f"the value has {len(modules)} login modules, but must have exactly one")
    return modules[0]


def parse_jaas(text: str) -> list[LoginModule]:
    """Parses a `sasl.jaas.config`. Raises InvalidJaas."""
    tokens = _tokens(text)
    modules = []
    for first in tokens:
        flag = next(tokens, None)
        if first.is_mark or flag is None or flag.text.lower() not in FLAGS:
            raise InvalidJaas("a login module must be followed by its control flag, such as `required`")
        modules.append(LoginModule(first.text, dict(_options(tokens))))
    if not modules:
        raise InvalidJaas("the value names no login module")
    return modules


def _options(tokens: Iterator[Token]) -> Iterator[tuple[str, str]]:
    """Yields the options up to the semicolon."""
    for key in tokens:
        if key.is_mark and key.text == ";":
            return
        equals, value = next(tokens, None), next(tokens, None)
        if key.is_mark or equals != Token("=", True) or value is None or value.is_mark:
            name = "an option" if key.is_mark else f"the option {_name_of(key.text)}"
            raise InvalidJaas(f'{name} has no value: write options as key="value", and end the last one with `;`')
        yield key.text, value.text
    raise InvalidJaas("the value does not end with a semicolon")


def _name_of(text: str) -> str:
    """Returns an option's name for use in messages. Hides an unusual name, because it could be a password whose quotes
    are missing."""
    return text if re.fullmatch(r"user_\w+|username|password|\w+Module", text) else "(hidden)"


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            raise InvalidJaas(
                f"the value cannot be read from character {position + 1}: a quotation mark may be missing"
            )
        position = found.end()
        match found.lastgroup:
            case "double" | "single":
                yield Token(ESCAPE.sub(_unescaped, found[found.lastgroup]))
            case "bare":
                yield Token(found["bare"])
            case "mark":
                yield Token(found["mark"], True)


def _unescaped(found: re.Match[str]) -> str:
    letter = found[1]
    if letter[0] in "01234567":
        return chr(int(letter, 8))
    return JAAS_ESCAPES.get(letter, letter)
