"""Tests the URL of a schema registry, and the credentials that it may contain."""

from __future__ import annotations

from base64 import b64decode

import pytest

from odradek.client.schema_registry.address import registry_address


def login_of(url: str, user: str | None = None, password: str | None = None) -> str | None:
    login = registry_address(url, user, password).login
    return None if login is None else b64decode(login.removeprefix("Basic ")).decode()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("localhost:8081", "http://localhost:8081"),
        ("https://registry/path/", "https://registry/path"),
        ("http://[::1]:8081", "http://[::1]:8081"),
        ("http://alice:secret@registry:8081", "http://registry:8081"),
    ],
)
def test_the_url_for_messages_has_no_login(given: str, url: str) -> None:
    assert registry_address(given).url == url


def test_a_login_comes_from_the_url_or_from_arguments() -> None:
    assert login_of("http://registry") is None
    assert login_of("http://al%40ice:se%3Acret@registry") == "al@ice:se:cret"
    assert login_of("http://alice:secret@registry", "bob", "other") == "bob:other"
    assert login_of("http://alice@registry", password="other") == "alice:other"


@pytest.mark.parametrize(
    ("url", "user", "password", "message"),
    [
        ("ftp://registry", None, None, "registry is not the URL of a schema registry"),
        ("http://alice@registry", None, None, "alice needs a password"),
        ("http://registry", "bob", None, "bob needs a password"),
        ("http://registry", None, "secret", "needs the name of its user"),
    ],
)
def test_a_contradictory_login_is_refused(url: str, user: str | None, password: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        registry_address(url, user, password)
