"""Derives principals from client certificates, using the subject as Java formats it and `ssl.principal.mapping.rules`.

This module also decides whether a listener may replace its certificate while the broker is running. Source: KIP-371;
RFC 5280, 4.1 and 4.2.1.6 (the fields of a certificate); RFC 2253; Kafka 4.3.1's observed rules;
docs/spec/security.md#s1-3, #s1-4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple

from odradek.broker.patterns.re2 import Captures, InvalidPattern, Pattern, TooMuchWork
from odradek.protocol.quoting import quoted

SET, OBJECT_IDENTIFIER, VERSION, EXTENSIONS = 0x31, 0x06, 0xA0, 0xA3
SUBJECT = 4  # index of the subject in a TBSCertificate with no version: serial, algorithm, issuer, validity, subject
ALTERNATIVE_NAMES = "2.5.29.17"
TEXT_NAMES = {0x81: "RFC822", 0x82: "DNS", 0x86: "UniformResourceIdentifier"}
ADDRESS = 0x87
KEYWORDS = {  # RFC 2253, 2.3; other attributes are written as object identifiers
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
ENCODINGS = {  # the encoding of the bytes, by the tag of the string type
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
ESCAPED = frozenset(',=+<>#;"\\')


class MalformedCertificate(ValueError):
    """Raised if bytes are not a certificate in DER."""


class Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a DER certificate, such as `CN=kate,OU=Dev,O=Odradek,C=DE`, or "" if the subject is empty.
    Raises MalformedCertificate."""
    try:
        relative_names = list(_elements(_fields(certificate)[SUBJECT].content))
        return ",".join(_relative_name(one) for one in reversed(relative_names))
    except (IndexError, ValueError) as error:
        raise MalformedCertificate(f"the certificate cannot be decoded: {error}") from None


def alternative_names(certificate: bytes) -> frozenset[str]:
    """Returns the alternative names of a DER certificate, each with its type, such as `DNS:localhost`.

    Names of rare types are written as the type's tag and the bytes in hexadecimal. Raises MalformedCertificate.
    """
    try:
        lists = [one for field in _fields(certificate) if field.tag == EXTENSIONS for one in _elements(field.content)]
        for extension in (one for each in lists for one in _elements(each.content)):
            kind, *_, value = _elements(extension.content)  # a "critical" flag may come between these elements
            if _object_identifier(kind.content) == ALTERNATIVE_NAMES:
                (names,) = _elements(value.content)
                return frozenset(_alternative_name(one) for one in _elements(names.content))
    except (IndexError, ValueError) as error:
        raise MalformedCertificate(f"the certificate cannot be decoded: {error}") from None
    return frozenset()


def _fields(certificate: bytes) -> list[Element]:
    (outer,) = _elements(certificate)
    signed, *_ = _elements(outer.content)
    return [field for field in _elements(signed.content) if field.tag != VERSION]


def _alternative_name(element: Element) -> str:
    if element.tag in TEXT_NAMES:
        return f"{TEXT_NAMES[element.tag]}:{element.content.decode('latin-1')}"
    if element.tag == ADDRESS:
        return f"IPAddress:{ip_address(element.content)}"
    return f"{element.tag:#x}:{element.content.hex()}"


def _elements(data: bytes) -> Iterator[Element]:
    """Yields a DER sequence's elements. Raises IndexError if `data` ends within an element."""
    position = 0
    while position < len(data):
        start, tag, length = position, data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise IndexError("the data is cut short")
        yield Element(tag, data[position : position + length], data[start : position + length])
        position += length


def _relative_name(element: Element) -> str:
    if element.tag != SET:
        raise ValueError("the subject is not a name")
    return "+".join(_attribute(one) for one in _elements(element.content))


def _attribute(element: Element) -> str:
    kind, value = _elements(element.content)
    if kind.tag != OBJECT_IDENTIFIER:
        raise ValueError("the subject is not a name")
    number = _object_identifier(kind.content)
    keyword = KEYWORDS.get(number)
    encoding = ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding))}"


def _object_identifier(content: bytes) -> str:
    numbers = [0]
    for byte in content:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _escaped(text: str) -> str:
    """Escapes text as Java does: special characters everywhere, spaces only at the start and end."""
    inner = text.strip(" \r")
    if not inner:
        return "".join(f"\\{blank}" for blank in text)
    before, _, after = text.partition(inner)
    escaped = "".join(f"\\{one}" if one in ESCAPED else "\\00" if one == "\0" else one for one in inner)
    return "".join(f"\\{blank}" for blank in before) + escaped + "".join(f"\\{blank}" for blank in after)


# The setting is a list of rules, each of which is DEFAULT or RULE:pattern/replacement/[LU]. A backslash escapes the
# next character.
RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|.*?"
ONE_RULE = re.compile(RULE)
NEXT_RULE = re.compile(rf"\s*({RULE})\s*(?:,\s*|$)")
REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)
FLAGS = re.compile(r"\(\?[a-zA-Z-]*")


# Maximum amount of work to match a pattern against one subject, in `Pattern.work` units. This much work takes a tenth
# of a second.
MAX_WORK: Final = 200_000
MAX_NAME_LENGTH: Final = 4_096  # maximum length of a principal; a replacement could repeat a group many times
NO_LOOKAROUND = (
    "patterns are matched in time proportional to the length of the subject, so lookahead, lookbehind, back"
    " references, atomic groups and possessive repetitions are not supported"
)


class InvalidRule(ValueError):
    """Raised if a rule is invalid. `args[0]` quotes the rule and gives the reason."""


class TooLongToMatch(Exception):
    """Raised if applying the rules to a subject would take too long or would result in too long a name."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """A mapping rule. `pattern` is None for DEFAULT, which returns the subject unchanged."""

    pattern: Pattern | None
    replacement: str = ""
    case: str = ""  # L for lower case, U for upper case

    def apply(self, subject: str) -> str | None:
        """Returns the name that the rule derives from the subject, or None if the rule does not match.

        As in Java, the pattern must match the whole subject, after which each match within the subject is replaced.
        Raises TooLongToMatch.
        """
        pattern = self.pattern
        if pattern is None:
            return subject
        max_work = pattern.work + MAX_WORK
        try:
            if pattern.capture(subject, 0, whole=True, max_work=MAX_WORK) is None:
                return None
            name = self._replaced(pattern, subject, max_work)
        except TooMuchWork:
            raise TooLongToMatch from None
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replaced(self, pattern: Pattern, subject: str, max_work: int) -> str:
        parts: list[str] = []
        copied = at = length = 0
        while at <= len(subject):
            found = pattern.capture(subject, at, whole=False, max_work=max_work - pattern.work)
            if found is None:
                break
            start, end, *_ = found
            replacement = _filled_in(self.replacement, subject, found)
            length += len(replacement) + start - copied
            if length > MAX_NAME_LENGTH:
                raise TooMuchWork
            parts += [subject[copied:start], replacement]
            copied = end
            at = end + 1 if start == end else end
        return "".join((*parts, subject[copied:]))


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Parses the rules. Raises InvalidRule. An empty string means that there are no rules, so no certificate yields a
    principal."""
    rules = []
    for found in NEXT_RULE.finditer(text.strip()):
        rule = found.group(1)
        parts = ONE_RULE.match(rule)
        assert parts is not None  # the pattern also matches an empty string
        if parts.end() != len(rule):
            raise InvalidRule(f"{quoted(rule)} is neither DEFAULT nor of the form RULE:pattern/replacement/[LU]")
        if parts.group(1) is not None:
            rules.append(MappingRule(None))
        elif parts.group(2) is not None:
            rules.append(_rule(rule, parts.group(2), parts.group(3), parts.group(4)))
    return tuple(rules)


def principal_name(rules: tuple[MappingRule, ...], subject: str) -> str | None:
    """Returns the name from the first rule that matches the subject, or None if no rule matches. Raises
    TooLongToMatch."""
    return next((name for rule in rules if (name := rule.apply(subject)) is not None), None)


def _rule(rule: str, pattern: str, replacement: str, case: str) -> MappingRule:
    unusual = _unlike_java(pattern)
    if unusual is not None:
        raise InvalidRule(f"{quoted(rule)}: the pattern cannot be read: {unusual}")
    try:
        compiled = Pattern(pattern, captures=True)
    except InvalidPattern as error:
        raise InvalidRule(f"{quoted(rule)}: the pattern cannot be read: {error} ({NO_LOOKAROUND})") from None
    if compiled.group_count == 0 and any(found.group(2) for found in REFERENCE.finditer(replacement)):
        raise InvalidRule(f"{quoted(rule)}: the replacement refers to a group, and the pattern has none")
    return MappingRule(compiled, replacement, case)


def _unlike_java(pattern: str) -> str | None:
    """Describes a part of the pattern that Java would accept, but interpret differently. Returns None if there is no
    such part."""
    class_begin = -1
    at = 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at)
            at = len(pattern) if end < 0 else end + 2
            continue
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "[" and class_begin < 0:
            class_begin = at
            at += pattern.startswith("^", at + 1)
        elif char == "[":
            return "a class within a class; write one class with all of the characters, or \\[ for the bracket"
        elif char == "]" and at > class_begin + 1 and class_begin >= 0 and pattern[class_begin + 1 : at] != "^":
            class_begin = -1
        elif class_begin >= 0 and pattern.startswith("&&", at):
            return "an intersection of classes (&&); write one class with all of the characters"
        elif class_begin < 0 and (flags := FLAGS.match(pattern, at)) and "U" in flags[0]:
            return "the flag U"
        at += 1
    return None


def _filled_in(replacement: str, subject: str, captures: Captures) -> str:
    """Fills in a replacement in Java's syntax. A group number has as many digits as possible: `$12` is group 12 if the
    pattern has that group, otherwise group 1 followed by the digit 2. A backslash escapes the next character."""
    group_count = len(captures) // 2 - 1

    def one(found: re.Match[str]) -> str:
        literal, digits = found.groups()
        if literal is not None:
            return str(literal)
        for length in range(1, len(digits) + 1):
            if int(digits[:length]) > group_count:
                length -= 1
                break
        if not length:
            return f"${digits}"
        start, end = captures[2 * int(digits[:length]) : 2 * int(digits[:length]) + 2]
        return (subject[start:end] if end >= 0 else "") + digits[length:]

    return REFERENCE.sub(one, replacement)


def refusal_of_another_identity(
    old: bytes, new: bytes, *, may_change_name: bool, may_lose_alternative_names: bool
) -> str | None:
    """Returns None if clients that trusted the certificate `old` will also trust `new`, both in DER. Otherwise returns
    a description of the difference."""
    if old == new:
        return None
    before, after = subject_of(old), subject_of(new)
    if before != after and not may_change_name:
        return (
            f"the new certificate is for {after}, but this listener is {before}; set ssl.allow.dn.changes=true to"
            " allow the change"
        )
    if may_lose_alternative_names:
        return None
    lost = alternative_names(old) - alternative_names(new)
    if lost:
        return (
            f"the new certificate lacks the subject alternative names {', '.join(sorted(lost))}; set"
            " ssl.allow.san.changes=true to allow this"
        )
    return None
