"""Tests the page's guard, which decides which requests from browsers are accepted."""

import pytest

from odradek.broker.http.guard import refusal

OURS = frozenset({"broker"})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:9644",
        "127.0.0.1:9644",
        "[::1]:9644",
        "192.168.1.7:9644",
        "broker:9644",
        "a.localhost",
        "LOCALHOST",
    ],
)
def test_names_that_only_this_broker_can_have_are_answered(host: str) -> None:
    assert refusal(host, None, OURS) is None
    assert refusal(host, f"http://{host}", OURS) is None


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:9644", "", "127.0.0.1.example", "localhost.example", "[::1"]
)
def test_a_name_that_somebody_else_can_point_at_us_is_refused(host: str) -> None:
    assert refusal(host, None, OURS) is not None


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "http://broker:9644", "null", "http://[::1"])
def test_a_request_from_a_page_of_another_site_is_refused(origin: str) -> None:
    assert refusal("localhost:9644", origin, OURS) is not None
