"""Tests the authorizer's settings (docs/spec/security.md#s1-1, 6)."""

import pytest

from odradek.broker.configuration.config import ConfigError, configure
from odradek.broker.configuration.config_description import describe_broker
from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER, super_users


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        configure({}, {}, {name.replace("_", "."): text for name, text in settings.items()})
    return str(refused.value)


def test_kafkas_authorizer_is_served_and_no_other() -> None:
    config, warnings = configure({}, {}, {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"})
    assert config.authorizer_class_name == STANDARD_AUTHORIZER
    assert warnings == ()
    assert STANDARD_AUTHORIZER in refusal(authorizer_class_name="com.example.MyAuthorizer")


def test_super_users_are_principals_separated_by_semicolons() -> None:
    assert super_users("User:a; User:CN=b,O=c ;") == {"User:a", "User:CN=b,O=c"}
    assert super_users("") == frozenset()
    assert "User:admin" in refusal(super_users="admin")
    assert "User:b" in refusal(super_users="User:a;b")


def test_allow_everyone_is_true_or_false() -> None:
    assert "true or false" in refusal(allow_everyone_if_no_acl_found="yes")


def test_settings_of_the_authorizer_are_shown_without_their_values_and_only_where_they_are_given() -> None:
    silent, _ = configure({}, {}, {})
    assert not {"super.users", "allow.everyone.if.no.acl.found"} & {one.name for one in describe_broker(silent)}
    config, _ = configure({}, {}, {"super.users": "User:admin"})
    (shown,) = (one for one in describe_broker(config) if one.name == "super.users")
    assert (shown.value, shown.is_sensitive) == (None, True)
