"""The pages that are not stored in the repository, because `make docs` writes them into the documentation's site.

Stored pages cannot link to a generated page, because readers of the repository do not have it. They link to the code
from which the page is written. On the site, such a link leads to the page instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support import apis_page, commands_page, presets_page, scenarios_page

GENERATED: Mapping[str, Callable[[], str]] = {
    "apis.md": apis_page.page,
    "commands.md": commands_page.page,
    "presets.md": presets_page.page,
    "scenarios.md": scenarios_page.page,
}
# The code that a link names, and the page, possibly with an anchor, to which the link leads on the site.
WRITTEN_FROM: Mapping[str, str] = {
    "odradek/broker/api/served.py": "apis.md",
    "odradek/broker/control/odd/odd.py": "presets.md#lawful-but-rare",
    "odradek/broker/control/presets/table.py": "presets.md",
}


def page_instead(text: str, code: str) -> str | None:
    """Returns the page to which a link with this text leads on the site, instead of to a file of code. Returns None if
    no page is written from this file, or if the text is the name of the file, because then the link is about code."""
    return None if text.startswith("`") else WRITTEN_FROM.get(code)
