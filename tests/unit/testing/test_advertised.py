"""Tests the check that clients can reach a listener at its advertised address."""

from __future__ import annotations

import asyncio

import pytest

from odradek.testing.advertised import Address, is_same_place


@pytest.mark.parametrize(
    ("address", "listener", "expected"),
    [
        (("127.0.0.1", 9092), ("127.0.0.1", 9092), True),
        (("localhost", 9092), ("127.0.0.1", 9092), True),
        (("127.0.0.1", 9092), ("localhost", 9092), True),
        (("localhost", 9092), ("0.0.0.0", 9092), True),
        (("broker", 9092), ("broker", 9092), True),
        (("127.0.0.1", 9093), ("127.0.0.1", 9092), False),
        (("192.0.2.1", 9092), ("127.0.0.1", 9092), False),
        (("192.0.2.1", 9092), ("0.0.0.0", 9092), False),
        (("no-such-host.invalid", 9092), ("127.0.0.1", 9092), False),
    ],
)
def test_an_address_is_that_of_the_listener_where_connections_to_it_come_there(
    address: Address, listener: Address, expected: bool
) -> None:
    assert asyncio.run(is_same_place(address, listener)) is expected
