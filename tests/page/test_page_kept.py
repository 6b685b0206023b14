"""Kept records in a browser: found, shown, replayed through a real broker, and forgotten."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .scene import OPERATORS, VIEWER, Scene
from .visitors import Visitors

pytestmark = pytest.mark.slow

PATH = "/ops"


def find(page: Page, scene: Scene, key: str) -> None:
    """Looks for the kept records of a key, which have been delivered by now."""
    page.goto(f"{scene.url}/kept?outbox=outbox")
    page.locator("#key").fill(key)
    page.get_by_role("button", name="Find").click()


def confirm(page: Page, reason: str) -> None:
    """Gives the reason, confirms, and waits until the page says what came of it."""
    page.get_by_label("Reason").fill(reason)
    page.locator("#confirm").click()
    expect(page.locator("#done")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_what_was_delivered_is_found_shown_replayed_and_forgotten(
    scene: Scene, visitors: Visitors, *, scripts: bool
) -> None:
    key = f"order-{scripts}"
    scene.stash((key, "secret 1"), (key, "secret 2"))
    scene.wait_until_arrived(key, "secret 1", "secret 2")
    page = visitors.signed_in(scene.url, OPERATORS["olga"], java_script_enabled=scripts)
    page.locator("#kept-more").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Kept records of outbox")
    rows = page.locator(f'#found tr[data-key="{key}"]')
    for _ in range(50):
        find(page, scene, key)  # a purge follows the acknowledgements
        if rows.count() == 2:
            break
        page.wait_for_timeout(200)
    assert key not in page.url
    rows.first.get_by_role("link").click()
    assert "secret" not in page.content()
    page.get_by_role("button", name="Show them").click()
    expect(page.locator("#value")).to_have_text("secret 1")
    assert scene.journal()[0].action.verb == "reveal"

    find(page, scene, key)
    page.locator("#name").fill(key)
    page.get_by_role("button", name="Replay…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Replay 2 records?")
    expect(page.locator("#effect")).to_contain_text("consumers see old states of a key again")
    confirm(page, "the search index is lost")
    expect(page.locator("#done")).to_contain_text(f"The replay {key} has begun: 2 records to stash.")
    ended = page.locator(f'#replay-{key}[data-state="ended"]')
    if scripts:  # the progress comes by itself
        expect(ended).to_contain_text("2 of 2 records stashed")
    scene.wait_until_arrived(key, "secret 1", "secret 2", "secret 1", "secret 2")
    page.goto(f"{scene.url}/kept?outbox=outbox")
    expect(ended).to_contain_text("2 of 2 records stashed")

    page.locator("#erase-key").fill(key)
    page.get_by_role("button", name="Erase…").click()
    page.get_by_label("Type the key again").fill(key)
    confirm(page, "request 17")
    expect(page.locator("#done")).to_contain_text(re.compile(r"Erased key sha256:\w+: [24] kept records"))
    assert key not in page.url
    assert not visitors.complaints


def test_a_replay_is_given_up_while_others_look(scene: Scene, visitors: Visitors) -> None:
    scene.stash(*[(f"many-{number % 5}", "value") for number in range(400)])
    scene.wait_until_arrived("many-0", "value")
    watching = visitors.signed_in(scene.url, VIEWER)
    watching.goto(f"{scene.url}/kept?outbox=outbox")
    expect(watching.locator("#forget")).to_have_count(0)
    page = visitors.signed_in(scene.url, OPERATORS["oscar"])
    page.goto(f"{scene.url}/kept?outbox=outbox")
    page.locator("#name").fill("slow")
    page.locator("#rate").fill("10")
    page.get_by_role("button", name="Replay…").click()
    confirm(page, "a test")
    expect(watching.locator('#replay-slow[data-state="runs here"]')).to_be_visible()
    page.locator("#replay-slow").get_by_role("link", name="Give up…").click()
    confirm(page, "the wrong topic")
    expect(page.locator("#done")).to_contain_text("The replay slow is given up")
    expect(watching.locator('#replay-slow[data-state="ended"]')).to_contain_text("given up")
    assert not visitors.complaints
