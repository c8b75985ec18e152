"""Opens views of the page in a browser."""

from playwright.sync_api import Browser, ConsoleMessage, Page


def is_complaint(message: ConsoleMessage) -> bool:
    """Returns whether the message is an error. A response with status 404 is not an error, because the page shows it to
    the user."""
    return message.type == "error" and "responded with a status of 404" not in message.text


def opened(
    browser: Browser, port: int, view: str, *, width: int = 1280, scheme: str = "light", before: str = ""
) -> Page:
    """Opens a view and waits until it is live. Fails the test if the browser reports an error.

    before  a script that runs before the page's own scripts
    """
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page.add_init_script(before)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
    page.goto(f"http://127.0.0.1:{port}/#{view}")
    page.wait_for_selector("#live.on")
    page.wait_for_selector("h1")
    assert complaints == []
    return page
