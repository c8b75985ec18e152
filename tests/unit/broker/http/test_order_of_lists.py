"""Tests that lists on the page are sorted by a column, and that numbers within names are compared as numbers."""

import pytest

from odradek.broker.http.page.served import JsonValue, Order, name_order


@pytest.mark.parametrize(
    "names",
    [
        ("t-2", "t-10"),
        ("t-9", "t-010", "t-10a", "t-11"),
        ("a", "a-1", "a-1-b", "b"),
        ("2", "10", "orders"),
        ("", "0", "a"),
        ("g" + "9" * 5_000, "g1" + "0" * 5_000),  # more digits than int() accepts
    ],
)
def test_numbers_in_names_are_compared_as_numbers(names: tuple[str, ...]) -> None:
    assert tuple(sorted(sorted(names, reverse=True), key=name_order)) == names


def listed(order: Order, *values: JsonValue) -> list[JsonValue]:
    return [row["name"] for row in order.visible_rows([{"name": value} for value in values])]


def test_a_column_of_names_is_sorted_in_both_directions() -> None:
    assert listed(Order("name", False, 0), "t-10", None, "t-2") == ["t-2", "t-10", None]
    assert listed(Order("name", True, 0), "t-10", None, "t-2") == ["t-10", "t-2", None]


def test_a_column_of_numbers_is_sorted_by_their_values() -> None:
    assert listed(Order("name", False, 1), 10, 9, 100) == [10, 100]
