"""Tests the computation of Java's hash codes, which determine the iteration order of Java's hash maps."""

import pytest

from odradek.broker.groups.common.java_order import POWER_COUNT, hash_of_text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("polygenelubricants", 0x80000000),
        ("ä€", 15432),
        ("\U0001f600", 0x1B0D63),
    ],
)
def test_texts_have_the_hash_codes_that_java_computes(text: str, code: int) -> None:
    assert hash_of_text(text) == code


@pytest.mark.parametrize("length", [POWER_COUNT - 1, POWER_COUNT, POWER_COUNT + 1, 3 * POWER_COUNT])
def test_the_hash_code_of_a_long_text_follows_from_that_of_its_beginning(length: int) -> None:
    text = "".join(chr(65 + number % 57) for number in range(length))
    assert hash_of_text(f"{text}z") == (hash_of_text(text) * 31 + ord("z")) & 0xFFFFFFFF
