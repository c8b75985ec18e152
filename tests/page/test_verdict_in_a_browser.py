"""Tests the report of `odradek judge --html` in headless Chromium. The report covers three clients, one of which breaks
a rule."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

REPOSITORY = Path(__file__).resolve().parents[2]
PICTURE = REPOSITORY / "docs" / "pictures" / "verdict.png"
# The tours test IDM.6, the rule about producers after OUT_OF_ORDER_SEQUENCE_NUMBER. aiokafka breaks it, because it
# continues with the same epoch.
CLIENTS = """
import os, subprocess, sys
from odradek.testing.sync import Odradek
host, port = os.environ["ODRADEK_CONTROL"].split(":")
for tour in sys.argv[1:]:
    Odradek(host, int(port)).default.fault(
        {"match": {"api": "Produce"}, "do": {"error": "OUT_OF_ORDER_SEQUENCE_NUMBER"}, "after": 2, "times": 1}
    )
    subprocess.run([sys.executable, tour], check=True, timeout=60)
"""
BROKEN = "button.broken"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Judges three clients and returns the URL of the report."""
    path = tmp_path_factory.mktemp("verdict") / "verdict.html"
    tours = [
        str(REPOSITORY / "tests/client_lab/programs" / f"tour_{name}.py")
        for name in ("confluent", "kafka_python", "aiokafka")
    ]
    judge = [sys.executable, "-m", "odradek", "judge", "--odd", "0", "--html", str(path), "--"]
    judged = subprocess.run([*judge, sys.executable, "-c", CLIENTS, *tours], check=False, stdout=subprocess.DEVNULL)
    assert judged.returncode == 1, "no rule was broken"
    return path.as_uri()


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, report: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=request.param)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report)
    yield page
    page.close()
    assert complaints == []


@pytest.mark.parametrize("proof_is_open", [False, True])
def test_the_report_is_accessible(page: Page, proof_is_open: bool) -> None:
    if proof_is_open:
        page.locator(BROKEN).first.click()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_cell_opens_the_exchange_that_proves_it_by_keyboard(page: Page) -> None:
    page.locator(BROKEN).first.focus()
    page.keyboard.press("Enter")
    proof = page.locator("dialog")
    assert "IDM.6" in proof.inner_text()
    assert '"api": "Produce"' in proof.locator("details[open] pre").inner_text()
    page.keyboard.press("Escape")
    assert not proof.is_visible()


@pytest.mark.parametrize("width", [360, 1280, 2000])
def test_the_clients_stay_in_sight_and_only_the_matrix_scrolls(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.locator(BROKEN).first.scroll_into_view_if_needed()
    assert page.locator("thead th").first.is_visible()
    assert page.evaluate("document.querySelector('thead th').getBoundingClientRect().top") >= 0
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_the_picture_of_the_readme_is_regenerated(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 640})
    page.locator(BROKEN).first.evaluate("cell => cell.scrollIntoView({block: 'center'})")
    page.screenshot(path=PICTURE)
    assert PICTURE.stat().st_size > 10_000
