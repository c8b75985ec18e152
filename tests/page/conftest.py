"""Provides one headless Chromium for all test files."""

from collections.abc import Iterator
from shutil import which

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "Chromium is missing (Debian: apt install chromium)"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()
