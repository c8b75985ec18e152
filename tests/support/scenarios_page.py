"""Writes the documentation site's Scenarios page (`make docs`) from the names of the tests.

A test named `test_scenario_012_…` tests scenario 12 of the first page of docs/spec that its file cites. The page about
changes in Kafka 4.4 has rows with letters instead: a test of row C1 names C1 and that page in its docstring. C1 alone
is enough if the module's docstring cites that page and no other.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
RULE_BOOK = TESTS.parent / "docs" / "spec"
# The sections whose subsections list scenarios, by rule book page.
CHAPTERS = {
    "transactions": (8,),
    "consumer-groups": (15,),
    "share-groups": (7,),
    "dead-letter-queues": (5,),
    "streams-groups": (13,),
    "security": (1, 2, 3, 4, 5),
}

CITED_PAGE = re.compile(r"docs/spec/([\w.-]+?)\.md")
NUMBERED = re.compile(r"^ *(?:async )?def (test_scenarios?_((?:\d{3}_(?:and_)?)+)\w+)", re.MULTILINE)
HEADING = re.compile(r'#+ [\d.]+ (.*) <a id="(.*)"></a>')
SUBSECTION = re.compile(r'### (\d+)\.(\d+) (.*) <a id="(.*)"></a>')
SCENARIO = re.compile(r"(?:(\d+)\. |\| (\d+) \|)")  # an item of a list, or a row of a table
CASES = "### 5.14 "  # corner cases of KIP-1289, which have their own numbers: docs/spec/share-groups.md#s5-14
CASE = re.compile(r"^def test_(?:scenario_\d{3}_)?case_(\d{2})_(\w+)", re.MULTILINE)
CASES_FILE = "spec/shares/test_txn_share_corner_cases.py"
CHANGES = "kafka-4.4"  # the page of the rule book whose tables have rows with letters
ROW = re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE)
CITED_ROWS = re.compile(r"\b([A-Z])(\d+)(?:\s+to\s+\1(\d+))?\b")  # a row or a range of rows, which may span two lines
SCRIPT = "_script.py"  # file name suffix of the scripts that send requests to Odradek and to both Kafka releases
CONFORMANCE = "conformance/"  # prefix of the paths of tests that use a running Kafka
HEAD = """# Scenarios and their tests

The [rule book](spec/README.md) numbers the scenarios. The name of each test contains the number of its scenario.
{missing}

Scenario 7 of share groups would need 2³¹ requests to a running broker. Its test sets the epoch instead, and
`tests/conformance/test_share_groups.py` calls Kafka's own function. In addition to these scenarios,
`tests/simulation/test_transactions.py`, `test_transaction_crashes.py`, `test_consumer_groups.py` and
`test_share_groups.py` in the same directory try arbitrary orders of events. In `test_share_administration.py`,
administrators change share groups while acknowledgements are pending.

`make docs` writes this page from the tests.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A subsection of the rule book that lists scenarios."""

    page: str
    title: str
    anchor: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A subsection of the page about Kafka 4.4 whose rows have letters."""

    title: str
    anchor: str
    rows: tuple[str, ...]


Numbered = dict[tuple[str, int], list[tuple[str, str]]]


def sections(page: str) -> Iterator[Section]:
    text = (RULE_BOOK / f"{page}.md").read_text()
    _, *parts = re.split(r"^(?=##)", text, flags=re.MULTILINE)
    for part in parts:
        head, *lines = part.splitlines()
        if (heading := SUBSECTION.fullmatch(head)) and int(heading[1]) in CHAPTERS[page]:
            found = (SCENARIO.match(line) for line in lines if not by_api_key(lines))
            if numbers := tuple(int(match[1] or match[2]) for match in found if match):
                yield Section(page, heading[3], heading[4], numbers)


def by_api_key(lines: list[str]) -> bool:
    """Returns whether the rows of the subsection have API keys instead of scenario numbers."""
    return any(line.startswith("| key |") for line in lines)


def numbered_tests() -> Numbered:
    """Returns the (file, name) of each scenario's tests in order, by (rule book page, scenario)."""
    found: Numbered = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if not (tests := NUMBERED.findall(text)):
            continue
        file = path.relative_to(TESTS).as_posix()
        cited = CITED_PAGE.search(text)
        assert cited is not None, f"{file} has numbered scenarios and cites no page of docs/spec"
        for name, numbers in tests:
            for number in re.findall(r"\d{3}", numbers):
                found[cited[1], int(number)].append((file, name))
    return dict(found)


def tables() -> Iterator[Table]:
    for part in re.split(r"^(?=##)", (RULE_BOOK / f"{CHANGES}.md").read_text(), flags=re.MULTILINE):
        if rows := tuple(ROW.findall(part)):
            heading = HEADING.match(part)
            assert heading is not None
            yield Table(heading[1], heading[2], rows)


def row_tests() -> dict[str, list[tuple[str, str]]]:
    """Returns the (file, name) of each row's tests and script functions in order, for the page about Kafka 4.4."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        is_script = path.name.endswith(SCRIPT)
        text = path.read_text()
        if f"{CHANGES}.md" not in text or not (is_script or path.name.startswith("test_")):
            continue
        tree = ast.parse(text)
        is_about_it = set(CITED_PAGE.findall(ast.get_docstring(tree) or "")) == {CHANGES}
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith(
                "" if is_script else "test_"
            ):
                continue
            docstring = ast.get_docstring(node) or ""
            if set(CITED_PAGE.findall(docstring)) == {CHANGES} or (is_about_it and not CITED_PAGE.search(docstring)):
                for row in cited_rows(docstring):
                    found[row].append((path.relative_to(TESTS).as_posix(), node.name))
    return dict(found)


def cited_rows(docstring: str) -> list[str]:
    return [
        f"{letter}{number}"
        for letter, first, last in CITED_ROWS.findall(CITED_PAGE.sub("", docstring))
        for number in range(int(first), int(last or first) + 1)
    ]


def missing_rows(*, of_kafka: bool) -> list[str]:
    """Returns the rows without a test of Odradek alone, or the rows without a test that uses a running Kafka."""
    found = row_tests()
    return [
        row
        for table in tables()
        for row in table.rows
        if not any(file.startswith(CONFORMANCE) == of_kafka for file, _ in found.get(row, ()))
    ]


def missing() -> dict[str, list[str]]:
    """Returns the scenarios without a test, by rule book page. Each string is a link to a section, followed by its
    untested scenarios' numbers."""
    found = numbered_tests()
    return {
        page: [
            f"[{section.title}](spec/{page}.md#{section.anchor}) {', '.join(map(str, numbers))}"
            for section in sections(page)
            if (numbers := [number for number in section.numbers if (page, number) not in found])
        ]
        for page in CHAPTERS
    }


def missing_scenarios() -> str:
    """Returns sentences that list the scenarios without tests."""
    without = {page.replace("-", " "): lines for page, lines in missing().items() if lines}
    if not without:
        return "Every scenario has a test."
    complete = [page.replace("-", " ") for page in CHAPTERS if page.replace("-", " ") not in without]
    sentences = [f"Every scenario of {', '.join(complete[:-1])} and {complete[-1]} has a test."]
    for page, lines in without.items():
        sentences += [f"Of {page} these have no test that carries their number:", "", *(f"- {line}" for line in lines)]
    return "\n".join(sentences)


def page() -> str:
    found = numbered_tests()
    parts = [HEAD.format(missing=missing_scenarios())]
    for section in (section for page in CHAPTERS for section in sections(page)):
        rows = [
            f"| {number} | {sentence(name)} | `{file}` |\n"
            for number in section.numbers
            for file, name in found.get((section.page, number), ())
        ]
        if rows:
            chapter = section.page.replace("-", " ").capitalize()
            parts.append(f"\n## {chapter}: [{section.title}](spec/{section.page}.md#{section.anchor})\n\n")
            parts += ["| no. | test | file |\n|---|---|---|\n", *rows]
    parts += rows_and_tests()
    cases = "".join(f"- {number}: {name.replace('_', ' ')}\n" for number, name in cases_with_a_test())
    return "".join([*parts, "\n## Corner cases of KIP-1289 ([5.14](spec/share-groups.md#s5-14))\n\n", cases])


def rows_and_tests() -> Iterator[str]:
    """Yields the page's lines about Kafka 4.4: the tests of each row, and the rows without tests."""
    yield "\n## What Kafka 4.4 changed\n\n"
    yield "Tests in `conformance` ask a running Kafka, the others Odradek alone.\n"
    for subject, of_kafka in (("no test of Odradek alone", False), ("no test that asks a running Kafka", True)):
        if rows := missing_rows(of_kafka=of_kafka):
            yield f"\nThese rows have {subject}: {', '.join(rows)}.\n"
    found = row_tests()
    for table in tables():
        rows = [f"| {row} | {sentence(name)} | `{file}` |\n" for row in table.rows for file, name in found.get(row, ())]
        yield f"\n### [{table.title}](spec/{CHANGES}.md#{table.anchor})\n\n"
        yield "".join(["| row | test | file |\n|---|---|---|\n", *rows])


def cases_with_a_test() -> list[tuple[int, str]]:
    return [(int(number), name) for number, name in CASE.findall((TESTS / CASES_FILE).read_text())]


def sentence(name: str) -> str:
    return re.sub(r"^test_(?:scenarios?_(?:\d{3}_(?:and_)?)+)?", "", name).replace("_", " ")
