"""Chromium through Playwright, where both can be had."""

import contextlib
import os
import shutil

import pytest

CHROMIUM = os.environ.get("LIKEWISE_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextlib.contextmanager
def chromium():
    """A browser, or a skipped test that says what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if not os.path.exists(CHROMIUM):
        pytest.skip("there is no Chromium: apt-get install chromium, or name it in LIKEWISE_CHROMIUM")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def visit(browser, address, *, width=1280, height=860, dark=False, panel="look"):
    """A page whose console must stay free of errors, and which requests nothing from other hosts."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.problems = problems
    try:
        page.goto(f"{address}#{panel}")
        yield page
        assert not problems, problems
        own = (address, "blob:", "data:")
        assert all(url.startswith(own) for url in requests), requests
    finally:
        context.close()
