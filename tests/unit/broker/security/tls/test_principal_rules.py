"""ssl.principal.mapping.rules, scenarios 18 to 24 of docs/spec/security.md#s1-3: observed on Kafka's own mapper."""

import pytest

from odradek.broker.security.tls.principals import InvalidRule, parse_rules, principal_name

KATE = "CN=kate,OU=Dev,O=Odradek,C=DE"


def name(rules: str, subject: str = KATE) -> str | None:
    return principal_name(parse_rules(rules), subject)


def test_scenario_018_by_default_the_principal_is_the_subject() -> None:
    assert name("DEFAULT") == KATE


def test_scenario_019_a_rule_can_change_the_case() -> None:
    assert name(r"RULE:^CN=([^,]+),OU=Dev.*$/$1/U") == "KATE"
    assert name(r"RULE:^CN=([^,]+),OU=Dev.*$/$1-X/L") == "kate-x"


def test_scenario_020_the_first_rule_that_matches_counts() -> None:
    assert name("RULE:^CN=(.*?),OU=Ops.*$/$1/,RULE:^CN=(.*?),OU=Dev.*$/dev-$1/") == "dev-kate"
    assert name("RULE:^CN=(.*?),OU=Ops.*$/$1/ , DEFAULT") == KATE


def test_scenario_021_groups_are_numbered_as_in_java() -> None:
    assert name("RULE:CN=(.*?),OU=(.*?),.*/$1@$2/") == "kate@Dev"


@pytest.mark.parametrize("rules", ["RULE:^OU=(.*?),.*$/$1/", "RULE:CN=/x/", ""])
def test_scenario_022_a_rule_has_to_match_the_whole_subject_or_there_is_no_principal(rules: str) -> None:
    assert name(rules) is None


@pytest.mark.parametrize(
    "rules",
    ["RULE:^CN=(.*)$/$1/X", "rule:a/b/", "RULE:a/b", "DEFAULTS", "DEFAULT,RULE:a", "RULE:(/x/", "RULE:.*/$1/"],
)
def test_scenario_023_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(InvalidRule):
        parse_rules(rules)


def test_scenario_024_a_backslash_makes_a_slash_part_of_the_name() -> None:
    assert name(r"RULE:^CN=(.*),OU=Dev.*$/a\/b/,DEFAULT") == "a/b"


def test_a_number_that_is_no_group_is_cut_and_a_dollar_without_a_group_stays() -> None:
    assert name("RULE:^CN=([^,]+).*$/$12/") == "kate2"
    assert name("RULE:^CN=([^,]+).*$/$9/") == "$9"


def test_named_groups_are_those_of_java() -> None:
    assert name("RULE:^CN=(?<cn>[^,]+).*$/$1/") == "kate"
