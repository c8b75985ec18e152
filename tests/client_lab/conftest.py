"""Starts the Odradek process that provides the clusters for the rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.testing.sync import Odradek


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started
