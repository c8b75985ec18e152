"""Tests that docs/using-groups.md shows the same group states as the tables in the code."""

from pathlib import Path

from odradek.broker.groups.classic.tables import NEXT, GroupState

PAGE = Path(__file__).resolve().parents[4] / "docs" / "using-groups.md"


def diagram() -> str:
    arrows = [
        f"    {state.value} --> {following}"
        for state in GroupState
        for following in sorted(each.value for each in NEXT[state])
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"])


def test_the_diagram_is_made_from_the_transitions() -> None:
    assert diagram() in PAGE.read_text(), f"put this into {PAGE.name}:\n{diagram()}"


def test_every_state_is_explained() -> None:
    text = PAGE.read_text()
    assert all(f"| {state.value} |" in text for state in GroupState)
