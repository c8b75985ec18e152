"""Tests the two properties that Odradek adds to Kafka's meta.properties. They show which releases can read a
directory."""

import pytest

from odradek.files.releases import NONE, OWN, Releases, release_order, releases_in, with_releases

KAFKA_WROTE = (
    b"#\n#Sun Nov 29 20:54:47 UTC 2026\nnode.id=1\ndirectory.id=4__EQe1z8JTP-PgYNx8Liw\nversion=1\ncluster.id=b2R\n"
)
LATER = Releases("0.3.1", "0.2.0")


def test_kafkas_lines_stay_as_they_are() -> None:
    written = with_releases(KAFKA_WROTE, LATER)
    assert written == KAFKA_WROTE + b"odradek.version=0.3.1\nodradek.readable.since=0.2.0\n"
    assert releases_in(written) == LATER
    assert with_releases(with_releases(KAFKA_WROTE, OWN), LATER) == written


def test_a_last_line_without_an_end_is_no_part_of_the_next() -> None:
    assert with_releases(KAFKA_WROTE.rstrip(b"\n"), LATER) == with_releases(KAFKA_WROTE, LATER)


def test_a_directory_that_only_kafka_has_used_names_no_release() -> None:
    assert releases_in(KAFKA_WROTE) == NONE
    assert NONE.after(OWN) == OWN


def test_releases_are_compared_as_numbers_and_never_become_older() -> None:
    assert release_order("0.10.0") > release_order("0.9.9") > release_order("")
    assert LATER.after(Releases("0.10.0", "0.1.0")) == Releases("0.10.0", "0.2.0")
    assert LATER.after(Releases("0.2.0", "0.1.0")) == LATER


@pytest.mark.parametrize("text", ["1.0", "2.0.0rc1", "later"])
def test_a_text_that_is_no_release_counts_as_later(text: str) -> None:
    assert release_order(text) > release_order("999.999.999")


def test_every_release_can_read_what_it_writes() -> None:
    assert release_order(OWN.since) <= release_order(OWN.newest)
