"""Tests which requests the HTTP port allows with a token and which without."""

from base64 import b64encode

import pytest

from odradek.broker.http.access import Access, access, refusal

TOKEN = "pass:word"


def basic(name: str, password: str) -> str:
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("host", "token", "requires_certificate", "expected"),
    [
        ("127.0.0.1", None, False, Access.EVERYBODY),
        ("localhost", None, False, Access.EVERYBODY),
        ("::1", "", False, Access.EVERYBODY),
        ("127.0.0.1", TOKEN, False, Access.TOKEN),
        ("", None, False, Access.HEALTH_ONLY),
        ("0.0.0.0", None, False, Access.HEALTH_ONLY),
        ("192.168.1.7", "", False, Access.HEALTH_ONLY),
        ("", TOKEN, False, Access.TOKEN),
        ("", None, True, Access.EVERYBODY),
        ("", TOKEN, True, Access.TOKEN),
    ],
)
def test_the_required_access_depends_on_the_host_and_the_token(
    host: str, token: str | None, requires_certificate: bool, expected: Access
) -> None:
    assert access(host, token, requires_certificate=requires_certificate) is expected


@pytest.mark.parametrize("allowed", Access)
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_served_to_everybody(allowed: Access, path: str) -> None:
    assert refusal(allowed, [TOKEN], path, "") is None


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/topics", "/healthz/..", "/healthz/"])
def test_without_a_token_other_machines_get_only_health(path: str) -> None:
    refused = refusal(Access.HEALTH_ONLY, [], path, "")
    assert refused is not None
    assert refused.status == 403
    assert "set odradek.http.token" in refused.text


@pytest.mark.parametrize("said", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic("", TOKEN), basic("prometheus", TOKEN)])
def test_the_token_is_a_bearer_token_or_a_password(said: str) -> None:
    assert refusal(Access.TOKEN, [TOKEN], "/metrics", said) is None


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Bearer",
        "Bearer other",
        f"Digest {TOKEN}",
        basic(TOKEN, ""),
        "Basic ???",
        "Basic /w==",
        "Basic \udce1",
        "Bearer \udce1",
        TOKEN,
    ],
)
def test_a_browser_without_the_token_gets_a_basic_authentication_challenge(said: str) -> None:
    refused = refusal(Access.TOKEN, [TOKEN], "/", said)
    assert refused is not None
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    assert TOKEN not in refused.text
