"""A page without a mouse, for tests."""

from __future__ import annotations

from playwright.sync_api import Page


def unreached(page: Page) -> list[str]:
    """What can be focused and is in sight, and is not reached by Tab alone from the top of the page."""
    page.evaluate("""() => {
      document.activeElement.blur();
      scrollTo(0, 0);
      const able = "a[href], button, select, input, summary, [tabindex='0']";
      const seen = (one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility();
      window.waiting = new Set([...document.querySelectorAll(able)].filter(seen));
      addEventListener("focusin", ({ target }) => waiting.delete(target));
    }""")
    for _ in range(page.evaluate("waiting.size") + 10):
        page.keyboard.press("Tab")
    found: list[str] = page.evaluate("[...waiting].map((one) => one.outerHTML.slice(0, 120))")
    return found
