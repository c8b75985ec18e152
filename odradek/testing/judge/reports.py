"""Formats verdicts as lines for a terminal, as JSON, and as JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from odradek.testing.judge.exchanges import Exchange
from odradek.testing.judge.rules import RULES
from odradek.testing.judge.verdicts import BROKEN, KEPT, NOT_EXERCISED, UNDECIDED, RuleVerdict, Software, counts_against

# The JUnit XML attributes that count elements, with the names of the elements that they count.
COUNTED_ELEMENTS: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def lines(found: Iterable[Software], ignored: Mapping[str, str], *, everything: bool = False) -> Iterator[str]:
    """Yields the lines of a report for a terminal. For each client software, there is one line per exercised rule, and
    one line that lists the other rules.

    ignored     the reasons for ignoring rules, keyed by rule
    everything  whether to yield a line for every rule
    """
    for software in found:
        yield f"{software.title}: {software.clients} clients, {software.connections} connections"
        for verdict in software.verdicts.values():
            if verdict.verdict == BROKEN:
                yield from _violation_lines(verdict, ignored)
            elif verdict.verdict == KEPT:
                yield f"  kept     {_rule_line(verdict)} ({verdict.kept} times)"
            elif everything:
                rule = verdict.rule
                yield (
                    f"  {'-':8} {_rule_line(verdict)}:"
                    f" {rule.needs or f'not exercised; the rule is decided by {rule.when}'}"
                )
        for state, words in ((NOT_EXERCISED, "not exercised"), (UNDECIDED, "not decided by traffic")):
            names = [each.rule.id for each in software.of(state)]
            if names and not everything:
                yield f"  {words}: {' '.join(names)}"
        yield ""


def _rule_line(verdict: RuleVerdict) -> str:
    return f"{verdict.rule.id:7} {verdict.rule.level.value}  {verdict.rule.text} [{verdict.rule.clause}]"


def _violation_lines(verdict: RuleVerdict, ignored: Mapping[str, str]) -> Iterator[str]:
    reason = ignored.get(verdict.rule.id)
    yield f"  {'BROKEN' if reason is None else 'ignored':8} {_rule_line(verdict)} ({verdict.broken} times)"
    yield f"           {verdict.why}" + ("" if reason is None else f"; ignored: {reason}")
    for exchange in verdict.proof:
        yield f"           {_exchange_line(exchange)}"


def _exchange_line(exchange: Exchange) -> str:
    name = "?" if exchange.api is None else exchange.api.kafka_name
    return (
        f"{exchange.received_us / 1000:.1f} ms  exchange {exchange.number}, connection {exchange.connection.number}:"
        f" {name} v{exchange.version} {exchange.status.value}"
    )


def table() -> Iterator[str]:
    """Yields the lines of the table of all rules that `--dryrun` prints."""
    for rule in RULES.values():
        yield f"{rule.id:7} {rule.level.value}  {rule.text} [{rule.clause}]"
        yield f"           {f'decided by {rule.when}' if rule.needs is None else f'needs {rule.needs}'}"


def as_json(found: Iterable[Software], ignored: Mapping[str, str]) -> str:
    return json.dumps({"software": [each.as_json() for each in found], "ignored": dict(ignored)}, indent=1)


def junit(
    found: Iterable[Software], ignored: Mapping[str, str], *, failure: str = "", took_s: float = 0.0, strict: bool
) -> str:
    """Formats a JUnit report. It contains a suite for each client software, with a test case for each rule, and a test
    case for the judged command. A broken MUST rule is a failure; a broken SHOULD rule is a failure only if `strict` is
    set.

    failure  the reason that the command failed, which is reported as an error
    took_s   the command's duration. A suite's duration is the time from the software's first request to its last.
    """
    suites = []
    for software in found:
        cases = [_case(software, verdict, ignored, strict=strict) for verdict in software.verdicts.values()]
        suites.append(_Suite(software.title, cases, software.took_us / 1e6))
    body = f"<error message={quoteattr(failure)}/>" if failure else ""
    command = f'<testcase classname="odradek judge" name="the command" time="{took_s:.3f}">{body}</testcase>'
    suites.append(_Suite("odradek judge", [command], took_s))
    head = f"<testsuites {_counts([case for suite in suites for case in suite.cases], took_s)}>"
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *map(str, suites), "</testsuites>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Suite:
    name: str
    cases: list[str]
    took_s: float

    def __str__(self) -> str:
        head = f"<testsuite name={quoteattr(self.name)} {_counts(self.cases, self.took_s)}>"
        return "\n".join([head, *self.cases, "</testsuite>"])


def _counts(cases: list[str], took_s: float) -> str:
    """Returns the attributes of a suite or the complete report: the numbers of elements in `cases` and the time."""
    ends = {name: sum(f"<{element}" in case for case in cases) for name, element in COUNTED_ELEMENTS.items()}
    counts = " ".join(f'{name}="{count}"' for name, count in ends.items())
    return f'tests="{len(cases)}" {counts} time="{took_s:.3f}"'


def _case(software: Software, verdict: RuleVerdict, ignored: Mapping[str, str], *, strict: bool) -> str:
    """Formats the test case for a rule. Its time is always 0: judging a rule takes no measurable time, but programs
    that read JUnit XML require the attribute."""
    rule = verdict.rule
    head = f'<testcase classname={quoteattr(software.title)} name={quoteattr(f"{rule.id} {rule.text}")} time="0.000">'
    body = ""
    if rule.id in ignored:
        body = f"<skipped message={quoteattr(ignored[rule.id])}/>"
    elif counts_against(verdict, strict=strict):
        proof = escape("\n".join([rule.clause, *map(_exchange_line, verdict.proof)]))
        body = f"<failure message={quoteattr(verdict.why)}>{proof}</failure>"
    elif verdict.verdict in (NOT_EXERCISED, UNDECIDED):
        body = f"<skipped message={quoteattr(rule.needs or 'not exercised')}/>"
    return f"{head}{body}</testcase>"
