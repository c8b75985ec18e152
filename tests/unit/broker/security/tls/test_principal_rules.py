"""Tests ssl.principal.mapping.rules: scenarios 18 to 24 of docs/spec/security.md#s1-3, as observed with Kafka's own
mapper."""

import pytest

from odradek.broker.security.tls.principals import InvalidRule, TooLongToMatch, parse_rules, principal_name

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


def test_every_match_within_the_subject_is_replaced_as_in_java() -> None:
    assert name("RULE:.*/x/") == "xx"  # Java also finds an empty match after the first match
    assert name("RULE:(?:[A-Z]+=([^,]*),?)*/$1/") == "DE"
    assert name("RULE:^(CN=).*?$/$1/L") == "cn="


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("CN=(?=k)(.*)", "lookahead"),
        ("CN=(?<!k)(.*)", "lookbehind"),
        (r"CN=(.)\1.*", "back references"),
        ("CN=(?>k+).*", "atomic groups"),
        ("CN=k++.*", "possessive"),
        ("CN=[a-z&&[^k]]+.*", "an intersection of classes"),
        ("CN=[a-c[x-z]]+.*", "a class within a class"),
        ("(?U)CN=.*", "the flag U"),
    ],
)
def test_a_rule_that_cannot_be_matched_in_bounded_time_is_refused_by_name(pattern: str, why: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        parse_rules(f"DEFAULT,RULE:{pattern}/x/")
    assert pattern.replace("\\", "\\\\") in str(refused.value)
    assert why in str(refused.value)


def test_brackets_in_classes_are_allowed_where_java_reads_them_alike() -> None:
    assert name(r"RULE:CN=([^]\[]+?),.*/$1/") == "kate"
    assert name(r"RULE:CN=([a-z&]+),\QOU=[Dev\E.*|CN=(.)ate.*/$2/") == "k"


@pytest.mark.parametrize("pattern", ["CN=((a+)+)b", "CN=(a|aa)*b", "CN=(.*)*x.*(.*)*y"])
def test_a_backtracking_rule_and_a_long_certificate_do_not_stop_the_broker(pattern: str) -> None:
    rules = parse_rules(f"RULE:{pattern}/$1/")
    subject = "CN=" + "a" * 1_000
    assert principal_name(rules, subject) is None
    assert rules[0].pattern is not None
    assert rules[0].pattern.work < 40 * len(subject)


def test_a_subject_that_takes_too_much_work_or_makes_too_long_a_name_is_refused() -> None:
    with pytest.raises(TooLongToMatch):
        principal_name(parse_rules("RULE:(.?){900}.*/$1/"), "CN=" + "a" * 2_000)
    with pytest.raises(TooLongToMatch):
        principal_name(parse_rules("RULE:CN=(.*)/" + "$1" * 100 + "/"), "CN=" + "a" * 2_000)
