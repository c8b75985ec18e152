"""`ssl.principal.mapping.rules`: from the subject of a client's certificate to the name of its principal.

Source: KIP-371; the rules of Kafka 4.3.1, observed; docs/spec/security.md#s1-3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A list of rules, each DEFAULT or RULE:pattern/replacement/[LU], where a backslash escapes what follows it.
RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|.*?"
ONE_RULE = re.compile(RULE)
NEXT_RULE = re.compile(rf"\s*({RULE})\s*(?:,\s*|$)")
NAMED_GROUP = re.compile(r"\(\?<(?![=!])")  # Java's; Python's has a P
REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class InvalidRule(ValueError):
    """A rule that cannot be read; `args[0]` says which, and why."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """pattern: None for DEFAULT, which takes the subject as it is"""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""  # L or U

    def apply(self, subject: str) -> str | None:
        """None if the rule is not for this subject."""
        pattern = self.pattern
        if pattern is None:
            return subject
        if not pattern.fullmatch(subject):
            return None
        name = pattern.sub(lambda match: _filled_in(self.replacement, match), subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Raises InvalidRule. An empty text has no rules, so that no certificate has a principal."""
    rules = []
    for found in NEXT_RULE.finditer(text.strip()):
        rule = found.group(1)
        parts = ONE_RULE.match(rule)
        assert parts is not None  # it matches at least nothing
        if parts.end() != len(rule):
            raise InvalidRule(f"{rule!r} is neither DEFAULT nor of the form RULE:pattern/replacement/[LU]")
        if parts.group(1) is not None:
            rules.append(MappingRule(None))
        elif parts.group(2) is not None:
            rules.append(_rule(rule, parts.group(2), parts.group(3), parts.group(4)))
    return tuple(rules)


def principal_name(rules: tuple[MappingRule, ...], subject: str) -> str | None:
    """What the first rule makes of it that is for this subject; None if none is."""
    return next((name for rule in rules if (name := rule.apply(subject)) is not None), None)


def _rule(rule: str, pattern: str, replacement: str, case: str) -> MappingRule:
    try:
        compiled = re.compile(NAMED_GROUP.sub("(?P<", pattern))
    except re.error as error:
        raise InvalidRule(f"{rule!r}: the pattern cannot be read: {error}") from None
    if compiled.groups == 0 and any(found.group(2) for found in REFERENCE.finditer(replacement)):
        raise InvalidRule(f"{rule!r}: the replacement refers to a group, and the pattern has none")
    return MappingRule(compiled, replacement, case)


def _filled_in(replacement: str, match: re.Match[str]) -> str:
    """Java's syntax: `$1` is a group, as many digits as make the number of one; a backslash takes the next as it is."""

    def one(found: re.Match[str]) -> str:
        literal, digits = found.groups()
        if literal is not None:
            return str(literal)
        for length in range(len(digits), 0, -1):
            if int(digits[:length]) <= (match.re.groups or 0):
                return (match.group(int(digits[:length])) or "") + digits[length:]
        return f"${digits}"

    return REFERENCE.sub(one, replacement)
