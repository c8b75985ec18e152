"""Tests that records deleted while a request is looking for them are left out, and that the next request resumes after
them."""

import pytest

from odradek.broker.http.page.record_browsing import RecordSource, browse
from odradek.broker.http.page.record_filter import RecordSelection
from tests.support.log_builder import LogOnDisk

RECORDS, DELETED = 100, 60


@pytest.mark.parametrize("newest_first", [False, True])
def test_records_that_are_deleted_meanwhile_are_left_out(newest_first: bool) -> None:
    given = LogOnDisk()
    for _ in range(RECORDS):
        given.append()
    start, end = 0, RECORDS
    found: list[int] = []
    for request in range(5):
        source = RecordSource(0, given.log.reader, start, end, {})
        if request == 0:
            given.log.delete_records_before(DELETED)  # the request has already read the bounds of the log
        browsed = browse([source], RecordSelection(), newest_first=newest_first, most=RECORDS)
        found += [each.record.offset for each in browsed.records]
        if browsed.is_done:
            break
        start = max(given.log.log_start_offset, start if newest_first else browsed.positions[0])
        end = max(start, browsed.positions[0]) if newest_first else end
    assert browsed.is_done
    left = range(DELETED, RECORDS)
    assert found == list(reversed(left) if newest_first else left)
