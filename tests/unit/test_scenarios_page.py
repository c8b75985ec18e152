"""docs/scenarios.md: each numbered scenario has tests that carry its number, and the page names them.

The page is written from the tests: `python -m tests.unit.test_scenarios_page`.
"""

import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "scenarios.md"
NUMBERED = re.compile(r"^ *(?:async )?def (test_scenarios?_((?:\d{3}_(?:and_)?)+)\w+)", re.MULTILINE)

SECTIONS = {
    "InitProducerId": range(1, 18),
    "Adding partitions and offsets": range(18, 35),
    "EndTxn": range(35, 53),
    "Crashes and markers": range(53, 71),
    "Produce, sequences, guard": range(71, 89),
    "Last stable offset, index, snapshots": range(89, 99),
    "Timers": range(99, 109),
    "Participation in two-phase commit (KIP-939)": range(109, 131),
    "Compaction, producer ids, features": range(131, 141),
}
HOW_TO_RENEW = "python -m tests.unit.test_scenarios_page writes the page anew"
HEAD = """# Scenarios of transactions, and their tests

The scenarios are those of the specification of transactions that this broker is built to, by number. A test says in
its name which one it tells. Whatever order events come in, beyond these: `tests/simulation/test_transactions.py` and
`tests/simulation/test_transaction_crashes.py`.

Written by `python -m tests.unit.test_scenarios_page`. Tests fail when a scenario has no test, or no row here, and when
a row names a test that does not exist.
"""


def numbered_tests() -> dict[int, list[tuple[str, str]]]:
    """Scenario → (file, name) of its tests, in order."""
    found: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, numbers in NUMBERED.findall(path.read_text()):
            for number in re.findall(r"\d{3}", numbers):
                found[int(number)].append((path.relative_to(TESTS).as_posix(), name))
    return found


def page() -> str:
    found = numbered_tests()
    parts = [HEAD]
    for section, numbers in SECTIONS.items():
        parts.append(f"\n## {section}\n\n| no. | test | file |\n|---|---|---|\n")
        for number in numbers:
            parts += [f"| {number} | {sentence(name)} | `{path}` |\n" for path, name in found.get(number, ())]
    return "".join(parts)


def sentence(name: str) -> str:
    return re.sub(r"^test_scenarios?_(?:\d{3}_(?:and_)?)+", "", name).replace("_", " ")


def test_every_scenario_has_a_test() -> None:
    wanted = {number for numbers in SECTIONS.values() for number in numbers}
    assert sorted(wanted - numbered_tests().keys()) == []


def test_no_test_carries_the_number_of_a_scenario_that_does_not_exist() -> None:
    known = {number for numbers in SECTIONS.values() for number in numbers}
    assert numbered_tests().keys() <= known


def rows(text: str) -> set[str]:
    return {line for line in text.splitlines() if re.match(r"\| \d+ \|", line)}


def test_the_page_names_no_test_that_does_not_exist() -> None:
    assert rows(PAGE.read_text()) - rows(page()) == set(), HOW_TO_RENEW


def test_the_page_has_a_row_for_every_scenario() -> None:
    numbers = {int(row.split()[1]) for row in rows(PAGE.read_text())}
    assert numbered_tests().keys() - numbers == set(), HOW_TO_RENEW


if __name__ == "__main__":
    PAGE.write_text(page())
