"""People who look at the page, each with a browser of their own."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect

PATIENCE = 60_000
"""Milliseconds for which a condition is waited for."""
EAGER = """
const later = setTimeout;
window.setTimeout = (what, pause, ...more) => later(what, Math.min(pause || 0, 250), ...more);
"""
"""Makes a page ask for what is new more often than the server says, so that tests need not wait for that."""

expect.set_options(timeout=PATIENCE)


class Visitors:
    """Opens pages, each in a context of its own: with cookies and preferences of its own.

    Args:
        browser: The browser.

    Attributes:
        complaints: What the browser has complained of in any of them, such as errors of scripts.
    """

    def __init__(self, browser: Browser) -> None:
        self.complaints: list[str] = []
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    def open(self, *, eager: bool = True, **preferences: Any) -> Page:
        """Opens an empty page, with preferences as Playwright calls them.

        Args:
            eager: Whether it asks for what is new more often than it is told.
            preferences: Those of the browser.
        """
        context = self._browser.new_context(
            **{"locale": "en-GB", "viewport": {"width": 1200, "height": 900}, **preferences}
        )
        context.set_default_timeout(PATIENCE)
        if eager:
            context.add_init_script(EAGER)
        self._contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._heard(said.type, said.text))
        return page

    def signed_in(self, url: str, token: str, **preferences: Any) -> Page:
        """Opens a page, whose browser is asked for a token and has it."""
        known = {"username": "anybody", "password": token, "send": "always"}
        page = self.open(http_credentials=known, **preferences)
        page.goto(url)
        expect(page.locator("#live")).to_be_visible()
        page.wait_for_load_state()  # and so it has its styles
        return page

    def leave(self) -> None:
        """Closes all pages."""
        for context in self._contexts:
            context.close()

    def _heard(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)
