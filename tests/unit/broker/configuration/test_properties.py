"""Tests that settings can be read from Java properties, and from the environment variables of the apache/kafka
image."""

import pytest

from odradek.broker.configuration.environment import settings_of_environment
from odradek.protocol.java_properties import parse_properties


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ("a=b", ("a", "b")),
        ("a:b", ("a", "b")),
        ("a b", ("a", "b")),
        ("  a  =  b c ", ("a", "b c ")),
        ("a", ("a", "")),
        ("a=b=c", ("a", "b=c")),
        (r"a\=b=c", ("a=b", "c")),
        (r"a\ b c", ("a b", "c")),
        (r"a=\u00e9\t\n\\", ("a", "é\t\n\\")),
        (r"a=\q", ("a", "q")),
        (r"a=\u12", ("a", "u12")),
    ],
)
def test_a_line_is_a_name_and_a_value_as_java_reads_it(line: str, pair: tuple[str, str]) -> None:
    assert parse_properties(line) == dict([pair])


def test_comments_and_blank_lines_are_ignored() -> None:
    assert parse_properties("# a=b\n\n  ! c=d\n  e=f") == {"e": "f"}


def test_a_backslash_at_the_end_joins_the_next_line_without_its_indentation() -> None:
    assert parse_properties("listeners=A,\\\n    B\nx=1") == {"listeners": "A,B", "x": "1"}


def test_two_backslashes_at_the_end_are_one_in_the_value() -> None:
    assert parse_properties("a=b\\\\\nc=d") == {"a": "b\\", "c": "d"}


def test_a_comment_sign_in_a_continued_line_belongs_to_the_value() -> None:
    assert parse_properties("a=b\\\n#c") == {"a": "b#c"}


def test_of_a_repeated_name_the_last_value_counts() -> None:
    assert parse_properties("a=1\na=2") == {"a": "2"}


def test_all_kinds_of_line_ends_are_understood() -> None:
    assert parse_properties("a=1\r\nb=2\rc=3") == {"a": "1", "b": "2", "c": "3"}


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_LISTENER_NAME_X___Y_SSL_KEY", "listener.name.x-y.ssl.key"),
    ],
)
def test_a_variable_of_the_image_becomes_a_setting(variable: str, name: str) -> None:
    assert settings_of_environment({variable: "v"}) == {name: "v"}


@pytest.mark.parametrize(
    "variable", ["KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS", "KAFKA_LOG4J_LOGGERS", "KAFKA_VERSION", "PATH"]
)
def test_variables_for_java_and_for_others_are_no_settings(variable: str) -> None:
    assert settings_of_environment({variable: "v"}) == {}


def test_the_images_cluster_id_names_the_cluster_of_a_new_directory() -> None:
    assert settings_of_environment({"CLUSTER_ID": "abc"}) == {"odradek.cluster.id": "abc"}
