"""Tests logins with PLAIN (docs/spec/security.md#s2-2)."""

import pytest

from odradek.broker.security.sasl.mechanism import TokenAccepted, TokenRefused, Verdict
from odradek.broker.security.sasl.plain import INVALID, LOGIN_MODULE, PlainExchange, accounts
from odradek.protocol.java_properties import InvalidJaas, LoginModule, parse_jaas, parse_login_module

MODULE = LoginModule(
    LOGIN_MODULE, {"username": "broker", "password": "of the broker", "user_alice": "pw", "user_jürgen": "grün"}
)


def judge(token: bytes) -> Verdict:
    return PlainExchange(accounts(MODULE.options, b"k" * 32)).judge(token, now_ms=0)


def test_scenario_045_a_token_may_repeat_the_user_as_authorization_id() -> None:
    assert judge(b"\0alice\0pw") == TokenAccepted("alice")
    assert judge(b"alice\0alice\0pw") == TokenAccepted("alice")
    assert judge("\0jürgen\0grün".encode()) == TokenAccepted("jürgen")


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0nobody\0pw",
        b"\0alice\0\xff\xfe",
        b"\0broker\0of the broker",
        b"\0\xff\0pw",
        b"\0alice\0pw ",
    ],
)
def test_scenario_046_a_wrong_password_and_an_unknown_user_get_the_same_error(token: bytes) -> None:
    assert judge(token) == INVALID


@pytest.mark.parametrize("password", [b"pw", b"wrong"])
def test_scenario_047_another_authorization_id_is_refused_before_the_password_is_looked_at(password: bytes) -> None:
    verdict = judge(b"bob\0alice\0" + password)
    assert isinstance(verdict, TokenRefused)
    assert "authorization id" in verdict.message


@pytest.mark.parametrize(("token", "words"), [(b"\0\0pw", "username not specified"), (b"\0alice\0", "password not")])
def test_scenario_048_an_empty_user_or_password_is_named(token: bytes, words: str) -> None:
    verdict = judge(token)
    assert isinstance(verdict, TokenRefused)
    assert words in verdict.message


@pytest.mark.parametrize(
    ("token", "fields"), [(b"", 1), (b"alice", 1), (b"alice\0pw", 2), (b"\0a\0b\0c", 4), (b"\0a\0b\0c\0d\0e", 4)]
)
def test_scenario_049_a_wrong_number_of_fields_is_reported(token: bytes, fields: int) -> None:
    assert judge(token) == TokenRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {fields}")


def test_a_jaas_setting_is_a_module_a_flag_and_options() -> None:
    text = """ a.b.PlainLoginModule required // a comment
        username=admin user_alice="it's \\"quoted\\"" /* another */ user_bob='b; = "c"' user_cy="tab\\there";"""
    assert parse_login_module(text) == LoginModule(
        "a.b.PlainLoginModule",
        {"username": "admin", "user_alice": 'it\'s "quoted"', "user_bob": 'b; = "c"', "user_cy": "tab\there"},
    )
    assert [module.name for module in parse_jaas("A optional; B sufficient x=1;")] == ["A", "B"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "A required",
        "A required user_alice;",
        "A required user_alice=",
        "A required user_alice=hush",
        "A required user_alice=hush user_bob;",
        "A required =hush;",
        "A always user_alice=hush;",
        'A required user_alice="hush;',
        "A required hush user_bob=hush;",
        'required user_alice="hush";',
        "A required; B required;",
        "; A required;",
    ],
)
def test_a_jaas_setting_that_cannot_be_read_is_refused_without_showing_a_password(text: str) -> None:
    with pytest.raises(InvalidJaas) as refused:
        parse_login_module(text)
    assert "hush" not in str(refused.value)
    assert "hush" not in repr(refused.value)


def test_passwords_are_not_shown_by_repr() -> None:
    assert "pw" not in repr(MODULE)
    assert "pw" not in repr(PlainExchange(accounts(MODULE.options, b"k" * 32)))
