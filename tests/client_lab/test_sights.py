"""Tests that applications show the bugs with old releases of clients, and do not show them with the fixed releases.

Run with `make old-clients`, or `make old-clients ARGS="-k sarama"` for tests whose names contain "sarama".
"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.client_lab.row import Row, Sight, check_sight
from tests.client_lab.rows import ROWS

SIGHTS = [pytest.param(row, sight, id=row.bug) for row in ROWS for sight in row.evidence if isinstance(sight, Sight)]


@pytest.mark.parametrize(("row", "sight"), SIGHTS)
def test_the_application_sees_the_old_release_fail_and_the_mended_one_pass(
    row: Row, sight: Sight, odradek: Odradek
) -> None:
    check_sight(row, sight, odradek)
