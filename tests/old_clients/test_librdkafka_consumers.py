"""Old releases of librdkafka: consumers, groups and metadata. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

LIBRDKAFKA = Client("confluent-kafka", "librdkafka_consumers.py")

ROWS = (
    Row(
        "confluentinc/librdkafka#3265", LIBRDKAFKA, "1.6.0", "1.6.1", "read_in_a_group", states.unstable_offsets,
        "dies of SIGABRT", "read a, b", states.offsets_become_stable, python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3020", LIBRDKAFKA, "1.5.0", "1.6.0", "read_two", states.compressed_aborted_batch,
        "read aborted, aborted", "read a, b", python="3.8",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
