"""A proxy for the storms."""

from collections.abc import Iterator

import pytest

from tests.support.flaky_proxy import FlakyProxy


@pytest.fixture
def proxy() -> Iterator[FlakyProxy]:
    with FlakyProxy() as made:
        yield made
