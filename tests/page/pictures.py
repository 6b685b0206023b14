"""Makes the pictures of the documents anew: ``python -m tests.page.pictures``."""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outbox_servers.services import ChromiumBrowser, KafkaBroker
from playwright.sync_api import Locator, Page, expect, sync_playwright

from ..harvesters import until  # noqa: TID252 - as the tests beside it
from .scene import LARGE, NOWHERE, OPERATORS, Scene, opened
from .visitors import Visitors

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDE = {"width": 1280, "height": 1150}
PHONE = {"width": 390, "height": 844}


def main() -> None:
    """Lets an outbox live for some minutes, and takes pictures of its page."""
    parser = argparse.ArgumentParser(prog="python -m tests.page.pictures", description=__doc__)
    parser.add_argument("--minutes", type=float, default=6, help="how long the graphs are (default 6)")
    minutes = parser.parse_args().minutes
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaBroker(progress=print) as kafka,
        opened(Path(folder), kafka, f"orders-{uuid.uuid4().hex[:4]}") as scene,
        ChromiumBrowser(progress=print) as chromium,
        sync_playwright() as playwright,
    ):
        visitors = Visitors(playwright.chromium.connect_over_cdp(chromium.url))
        live(scene, kafka, visitors, minutes * 60)
        take(scene, visitors)
        visitors.leave()


def live(scene: Scene, broker: KafkaBroker, visitors: Visitors, seconds: float) -> None:
    """Has records flow, the broker hang, a leader die, and an operator act."""
    page = visitors.signed_in(scene.urls["harvester-2"], OPERATORS["olga"], viewport=WIDE)
    began, number = time.monotonic(), 1
    planned = [
        (0.25, broker.pause),
        (0.33, broker.resume),
        (0.6, scene.harvester("harvester-1").kill),
        (0.62, scene.start),
    ]
    while (passed := time.monotonic() - began) < seconds:
        some = 100 + 60 * (int(passed / 10) % 7)
        scene.shop.stash(some, keys=50, start=number)
        number += some
        if planned and passed > planned[0][0] * seconds:
            planned.pop(0)[1]()
        time.sleep(1)
    scene.stash(("customer-17", "order 1"), ("customer-17", "order 2"), topic=NOWHERE)
    scene.stash(("customer-23", LARGE), ("customer-23", "order 2"))
    expect(row(page, "customer-17")).to_be_visible()
    # Events are found every ten seconds: what is freed before is none.
    parked = page.locator('#events [data-code="keys-parked"]')
    until(parked.count, "the page tells that keys are parked", 60, pause=1)
    scene.repair("customer-17")
    decide(page, "customer-17", "Retry", "the topic's name is corrected, ticket 4711")
    decide(page, "customer-23", "Skip", "the customer has sent the order again, in parts")
    told = page.locator('#events [data-code="keys-freed"]')
    until(told.count, "the page tells that keys were freed", 60, pause=1)
    scene.stash(("customer-42", "order 1"), ("customer-42", "order 2"), topic="orders archive")
    expect(row(page, "customer-42")).to_be_visible()


def row(page: Page, key: str) -> Locator:
    """Returns the row of a parked key."""
    return page.locator(f'#parked tr[data-key="{key}"]')


def choose(page: Page, key: str, verb: str, reason: str) -> None:
    """Goes as far as an operator does before confirming."""
    row(page, key).get_by_role("checkbox").check()
    page.get_by_role("button", name=f"{verb}…").click()
    page.get_by_label("Reason").fill(reason)


def decide(page: Page, key: str, verb: str, reason: str) -> None:
    """Frees a parked key."""
    choose(page, key, verb, reason)
    page.locator("#confirm").click()
    expect(row(page, key)).to_have_count(0)


def take(scene: Scene, visitors: Visitors) -> None:
    """Takes the pictures."""
    url = scene.urls["harvester-2"]
    seen: Mapping[str, Mapping[str, Any]] = {
        "page": {"viewport": WIDE},
        "page-dark": {"viewport": WIDE, "color_scheme": "dark"},
        "page-phone": {"viewport": PHONE, "is_mobile": True},
    }
    for name, preferences in seen.items():
        page = visitors.signed_in(url, OPERATORS["olga"], **preferences)
        expect(page.locator("#parked")).to_contain_text("customer-42")
        keep(page, name)
    page = visitors.signed_in(url, OPERATORS["olga"], viewport={"width": 1280, "height": 480})
    choose(page, "customer-42", "Retry", "the topic's name is corrected, ticket 4712")
    keep(page, "page-retry")
    page.goto(f"{url}/journal?outbox=outbox")
    page.set_viewport_size({"width": 1280, "height": 560})
    keep(page, "page-journal")


def keep(page: Page, name: str) -> None:
    """Writes a picture of what is seen."""
    file = FOLDER / f"{name}.png"
    page.screenshot(path=file, animations="disabled", caret="hide")
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")  # noqa: T201 - a program that reports


if __name__ == "__main__":
    main()
