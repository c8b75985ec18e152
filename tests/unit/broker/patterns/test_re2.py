"""Tests that patterns have the same meaning as in RE2, and that matching time is bounded for every pattern."""

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.patterns.re2 import WORK_PER_STEP, InvalidPattern, Pattern, TooMuchWork

# Each row contains a pattern, texts that match it, and texts that do not. Most rows were also tried on Kafka 4.3.1.
MATCHES: list[tuple[str, list[str], list[str]]] = [
    ("pay-.*", ["pay-", "pay-1"], ["prepay-1", "pay"]),
    ("pay", ["pay"], ["payx", "xpay", ""]),
    ("a|bc|", ["a", "bc", ""], ["ab", "c"]),
    ("(ab)+c?", ["ab", "ababc"], ["c", "abcab"]),
    ("a{2,3}b{2}c{1,}", ["aabbc", "aaabbccc"], ["abbc", "aaaabbc", "aabb"]),
    ("x{,3}", ["x{,3}"], ["x", "xxx"]),
    ("a{", ["a{"], ["a"]),
    ("[a-c0]+[^x-z]", ["a0b", "cc-"], ["abx", "d", "a"]),
    ("[]a]+[^]b]", ["]a]c"], ["]a]", "ab"]),
    ("[a-]+", ["a-a"], ["b"]),
    (r"\d+\.\w*", ["12.ab_9", "1."], ["a.", "1a"]),
    (r"[^\d\s]+", ["ab"], ["a1", "a b"]),
    (r"\Qa.b*\E+", ["a.b**"], ["axb*", "a.b"]),
    (r"\x41\x{42}\101\n", ["ABA\n"], ["AB\n"]),
    (r"\pL+\p{Lu}\PN", ["äßÄx"], ["a1A", "Ä"]),
    (r"\p{Greek}+|\p{^Latin}", ["αβγ", "1"], ["a"]),
    ("[[:alpha:]]+[[:^digit:]]", ["abx"], ["ab1", "1x"]),
    ("^a.*b$", ["ab", "axxb"], ["a\nb", "ba"]),
    (r"(?s)\Aa.b\z", ["a\nb"], ["a\n\nb"]),
    ("(?m)a$\n^b", ["a\nb"], ["a\n b"]),
    ("(?i)pAy[x-z]", ["PaYX", "payz"], ["paya"]),
    ("(?i:p)ay", ["Pay"], ["PAY"]),
    ("a(?i)b|c", ["aB", "C"], ["AB"]),
    ("(?P<name>a)(?:b)(?<other>c)", ["abc"], ["ab"]),
    (r"a\b-\Bb?", ["a-"], ["a-b"]),
    ("a*?b+?c??", ["aabbc", "b"], ["a"]),
    ("(a*)*b", ["b", "aab"], ["aa"]),
    ("", [""], ["a"]),
]
INVALID = [
    "(pay",
    "pay)",
    "[a",
    "a**",
    "a++",
    "*a",
    "a{1001}",
    "a{3,2}",
    "(?=a)b",
    "(?!a)b",
    "(?<=a)b",
    "(?>a)",
    r"(a)\1",
    r"\Z",
    r"\C",
    r"\g",
    "[b-a]",
    "[[:nope:]]",
    r"\p{Nope}",
    r"\x{110000}",
    r"\xg1",
    "a\\",
    "(?P<>a)",
    "(?z)a",
    "((a{1000}){1000}){1000}",
    "(" * 1000 + ")" * 1000,
]


@pytest.mark.parametrize(("pattern", "matching", "others"), MATCHES)
def test_a_pattern_matches_the_whole_text_or_not(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in matching if not compiled.matches(text)] == []
    assert [text for text in others if compiled.matches(text)] == []


@pytest.mark.parametrize("pattern", INVALID)
def test_an_invalid_re2_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)*b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){50}a{50}b"])
def test_a_pattern_that_keeps_others_busy_for_years_is_matched_at_once(pattern: str) -> None:
    assert not Pattern(pattern).matches("a" * 5_000)
    assert Pattern("(a?){50}a{50}").matches("a" * 60)


ATOMS = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", r"\d", r"\w", "^", "$", "(?:)"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.text("ab-1", max_size=8))
def test_where_pythons_syntax_means_the_same_it_matches_the_same(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


# The reference is RE2 itself, from google-re2. Kafka's RE2/J does not accept \C and accepts fewer nested groups than
# RE2, so the tests do not generate them.
SYNTAX = st.lists(
    st.one_of(
        ATOMS,
        st.sampled_from(
            [
                "(",
                ")",
                "(?:",
                "(?i)",
                "(?s)",
                "(?m:",
                "(?P<n>",
                "|",
                "*",
                "+",
                "??",
                "{2}",
                "{,2}",
                "{1,3}?",
                "[a-",
                "]",
            ]
        ),
        st.sampled_from(
            [
                "[^",
                "[[:alpha:]]",
                r"\pL",
                r"\p{Greek}",
                r"\PN",
                r"\x41",
                r"\b",
                r"\B",
                r"\A",
                r"\z",
                r"\Q",
                r"\E",
                "\\",
                "é",
            ]
        ),
    ),
    max_size=8,
).map("".join)
QUIET = re2.Options()
QUIET.log_errors = False


@given(SYNTAX, st.text("ab-1Aé\n", max_size=6))
def test_re2_itself_takes_the_same_patterns_and_matches_the_same(pattern: str, text: str) -> None:
    try:
        expected = re2.compile(pattern, QUIET).fullmatch(text) is not None
    except re2.error:
        with pytest.raises(InvalidPattern):
            Pattern(pattern)
        return
    assert Pattern(pattern).matches(text) == expected


def test_a_state_for_each_position_costs_no_more_than_one_state() -> None:
    text = "ab" * 120
    small, large = Pattern(".*a.{2}"), Pattern(".*a.{100}")
    small.matches(text)
    large.matches(text)
    assert large.work <= small.work + 200  # the table of followed jumps is built only once


@pytest.mark.parametrize("pattern", ["(.?){1000}x", "((a?){100}){40}b", "(.*a){300}", "(a|b|ab|ba){900}c"])
def test_work_is_counted_and_pauses_are_made_in_proportion(pattern: str) -> None:
    compiled = Pattern(pattern)
    pauses = sum(1 for _ in compiled.steps("ab" * 120))
    assert compiled.work // WORK_PER_STEP - 1 <= pauses <= compiled.work // WORK_PER_STEP


def captured(pattern: str, text: str, *, whole: bool = True) -> list[str | None] | None:
    found = Pattern(pattern, captures=True).capture(text, 0, whole=whole, max_work=10**6)
    if found is None:
        return None
    return [None if end < 0 else text[begin:end] for begin, end in zip(found[::2], found[1::2], strict=True)]


CAPTURING = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["+", "?", "{2}", "{1,2}", "+?", "??"])).map(
            lambda pair: f"(x{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(CAPTURING, st.text("abx-1", max_size=8), st.booleans())
def test_groups_capture_what_re2_captures(pattern: str, text: str, whole: bool) -> None:
    compiled = re2.compile(pattern)
    found = compiled.fullmatch(text) if whole else compiled.search(text)
    assert captured(pattern, text, whole=whole) == (None if found is None else [found.group(), *found.groups()])


def test_capturing_ends_with_an_error_at_the_limit_of_work() -> None:
    with pytest.raises(TooMuchWork):
        Pattern("(.*a){300}").capture("ab" * 5_000, 0, whole=True, max_work=10_000)


def test_a_pattern_that_keeps_pythons_re_busy_for_years_captures_within_its_bound() -> None:
    assert captured("((a+)+)b", "a" * 200) is None
    assert captured("((a+)+)b", "aab") == ["aab", "aa", "aa"]
