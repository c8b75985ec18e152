"""Tests that both forms of `odradek.testing`, asyncio and blocking, have the same names."""

import subprocess
import sys

import pytest

import odradek.testing
from odradek.testing import asynchronous, sync


@pytest.mark.parametrize("name", ["Odradek", "Cluster", "Clock"])
def test_both_forms_have_the_same_methods(name: str) -> None:
    def public(one: type) -> set[str]:
        return {each for each in vars(one) if not each.startswith("_")}

    assert public(getattr(sync, name)) <= public(getattr(asynchronous, name)) | {"plain", "threads"}


def test_the_package_gives_the_form_on_asyncio() -> None:
    assert odradek.testing.Odradek is asynchronous.Odradek
    assert odradek.testing.Unmet is sync.Unmet
    with pytest.raises(AttributeError):
        _ = odradek.testing.Kafka


@pytest.mark.linux  # for other systems, tests/elsewhere imports asyncio first
def test_the_blocking_form_loads_no_asyncio() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import sys, odradek.testing.sync; print('asyncio' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "False"
