"""Tests the documentation site in headless Chromium. `mkdocs` builds the site, and a web server serves it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page

from tests.support.oracle import REPOSITORY

PAGES = (
    "index.html",
    "start.html",
    "questions.html",
    "testing.html",
    "judge.html",
    "fixtures.html",
    "dual-write.html",
    "using-spark.html",
    "using-transactions.html",
    "docker.html",
    "compatibility.html",
    "spec/transactions.html",
    "adr/0005-when-an-acknowledgement-waits-for-fsync.html",
)
WITH_DIAGRAMS = ("using-transactions.html", "using-groups.html")
LAST_IN_SEARCH = ("spec/", "adr/", "formats/", "scenarios.html", "changes.html", "verdicts")


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves a directory like a static page host, with 404.html for unknown paths."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = Path(self.directory, "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Builds and serves the site and yields its URL."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SiteHandler, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def shown(browser: Browser, site: str, path: str, *, width: int = 1280) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(f"{site}/{path}")
    return page


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_wider_than_the_window(browser: Browser, site: str, path: str, width: int) -> None:
    page = shown(browser, site, path, width=width)
    beyond = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    page.close()
    assert beyond <= 0


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("path", PAGES)
def test_no_line_of_code_is_cut(browser: Browser, site: str, path: str, width: int) -> None:
    page = shown(browser, site, path, width=width)
    cut = page.eval_on_selector_all(
        "pre > code",
        "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => each.innerText.slice(0, 200))",
    )
    page.close()
    assert cut == []


@pytest.mark.parametrize("words", ["EndTxn", "dead-letter queue", "transaction", "TLS"])
def test_a_search_leads_to_guides_before_rules_and_decisions(browser: Browser, site: str, words: str) -> None:
    page = shown(browser, site, "index.html")
    page.fill("[data-md-component=search-query]", words)
    page.wait_for_selector(".md-search-result__item > a")
    links = page.eval_on_selector_all(".md-search-result__item > a", "all => all.map(each => each.href)")
    page.close()
    found = [link.removeprefix(f"{site}/") for link in links]
    is_last = [each.startswith(LAST_IN_SEARCH) for each in found]
    assert len(found) > 5
    assert not is_last[0]
    assert is_last == sorted(is_last), found


@pytest.mark.parametrize("path", WITH_DIAGRAMS)
def test_a_diagram_is_drawn_and_nothing_comes_from_elsewhere(browser: Browser, site: str, path: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{site}/{path}")
    # The theme replaces a diagram's text with this element when it has drawn the diagram.
    page.wait_for_selector("div.mermaid")
    box = page.locator("div.mermaid").first.bounding_box()
    left = page.locator("pre.mermaid").count()
    page.close()
    assert box is not None
    assert box["height"] > 150
    assert left == 0
    assert [url for url in requested if not url.startswith((site, "data:", "blob:"))] == []


def test_a_page_without_diagrams_does_not_load_mermaid(browser: Browser, site: str) -> None:
    page = shown(browser, site, "testing.html")
    scripts = page.eval_on_selector_all("script[src]", "all => all.map(each => each.src)")
    page.close()
    assert [each for each in scripts if "mermaid" in each] == []


def test_the_home_leads_to_a_guide_of_each_kind(browser: Browser, site: str) -> None:
    page = shown(browser, site, "")
    links = page.eval_on_selector_all(".cards a", "all => all.map(each => each.getAttribute('href'))")
    tabs = page.locator(".md-tabs__link").all_inner_texts()
    page.close()
    assert {"start.html", "testing.html", "judge.html", "dual-write.html", "docker.html", "compatibility.html"} <= set(
        links
    )
    assert tabs == ["Home", "Guides", "Reference", "Inside", "Rules", "Decisions"]


def test_an_address_without_a_page_leads_back(browser: Browser, site: str) -> None:
    page = browser.new_page()
    answer = page.goto(f"{site}/guides/no-such-page.html")
    assert answer is not None
    assert answer.status == 404
    assert page.inner_text("h1") == "There is no page here"
    page.click("article a:text('By question')")
    page.wait_for_url(f"{site}/questions.html")
    page.close()
