"""Operators act on the page, and real harvesters, databases and brokers follow."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from outbox_api import DeadLetterStatus
from playwright.sync_api import Locator, Page, expect

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .scene import LARGE, NOWHERE, OPERATORS, Scene
from .visitors import Visitors

pytestmark = pytest.mark.slow

PATH = "/ops/outbox"
"""Below this path is all that these tests ask for; other files have it at the root."""


def row(page: Page, key: str) -> Locator:
    """The row of a key's parked or skipped record."""
    return page.locator(f'tr[data-key="{key}"]')


def choose(page: Page, key: str, verb: str) -> None:
    """Chooses a key's record in its list, and a verb, which then says what it would do."""
    row(page, key).get_by_role("checkbox").check()
    page.get_by_role("button", name=f"{verb}…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{verb} 1 record?")
    expect(page.locator("#affected").get_by_text(key)).to_be_visible()


def confirm(page: Page, reason: str) -> None:
    """Gives the reason, confirms, and waits until the page says what came of it."""
    page.get_by_label("Reason").fill(reason)
    page.locator("#confirm").click()
    expect(page.locator("#done")).to_be_visible()


def noted(page: Page, verb: str, reason: str) -> Locator:
    """The journal's entry on the page."""
    return page.locator(f'#journal tr[data-verb="{verb}"]').filter(has_text=reason)


def test_a_parked_key_is_looked_at_repaired_and_tried_again(scene: Scene, visitors: Visitors) -> None:
    page, before = visitors.signed_in(scene.url, OPERATORS["olga"]), len(scene.journal())
    expect(page.locator("#client")).to_have_text("olga")
    scene.stash(("repaired", "secret 1"), ("repaired", "secret 2"), topic=NOWHERE)
    scene.stash(("repaired", "secret 3"), ("other", "flows"))

    # It appears while the page is open.
    expect(row(page, "repaired")).to_contain_text(NOWHERE)
    expect(row(page, "repaired").locator("td.number").nth(1)).to_have_text("2")
    expect(page.locator("#verdict")).to_have_text("1 problem: parked keys.")
    expect(page).to_have_title(re.compile("^1 problem"))
    scene.wait_until_arrived("other", "flows")
    assert scene.arrived("repaired") == []

    row(page, "repaired").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("repaired")
    assert "secret" not in page.content()
    assert len(scene.journal()) == before, "nothing was done"
    page.get_by_role("button", name="Show them").click()
    expect(page.locator("#value")).to_have_text("secret 1")
    [seen, *former] = scene.journal()
    assert len(former) == before
    assert (seen.action.verb, seen.action.operator, seen.action.via) == ("reveal", "olga", "http")

    scene.repair("repaired")
    page.goto(scene.url)
    choose(page, "repaired", "Retry")
    expect(page.locator("#effect")).to_contain_text("The order of records is kept")
    assert len(scene.journal()) == before + 1, "asking changes nothing"
    confirm(page, "topic corrected, ticket 17")
    expect(page.locator("#done")).to_contain_text("1 record tried again")
    scene.wait_until_arrived("repaired", "secret 1", "secret 2", "secret 3")
    expect(row(page, "repaired")).to_have_count(0)
    expect(page.locator("#verdict")).to_have_text("All is well.")
    entry = noted(page, "retry", "topic corrected, ticket 17")
    expect(entry).to_contain_text("olga")
    expect(entry.locator("time")).to_be_visible()
    expect(page.locator('#journal tr[data-verb="reveal"]')).to_be_visible()
    assert not visitors.complaints


def test_a_record_is_skipped_and_redriven(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["oscar"])
    scene.stash(("skipped", LARGE), ("skipped", "behind it"))
    choose(page, "skipped", "Skip")
    expect(page.locator("#effect")).to_contain_text("consumers see a gap")
    confirm(page, "too large, and nobody needs it")
    scene.wait_until_arrived("skipped", "behind it")
    expect(page.locator("#skipped").get_by_role("link", name="skipped")).to_be_visible()
    expect(noted(page, "skip", "nobody needs it")).to_contain_text("oscar")

    scene.shop.allow(100_000)
    choose(page, "skipped", "Redrive")
    expect(page.locator("#effect")).to_contain_text("out of their original order")
    confirm(page, "somebody does, and the topic takes it now")
    scene.wait_until_arrived("skipped", "behind it", LARGE)
    expect(page.locator("#skipped")).to_have_count(0)
    expect(noted(page, "redrive", "the topic takes it now")).to_contain_text("oscar")
    assert not visitors.complaints


@pytest.mark.parametrize("scripts", [True, False])
def test_all_that_match_are_found_and_tried_again(scene: Scene, visitors: Visitors, scripts: bool) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"], java_script_enabled=scripts)
    keys = [f"many-{scripts}-{number}" for number in range(3)]
    scene.stash(*((key, str(turn)) for key in keys for turn in range(2)), topic=NOWHERE)
    scene.stash(("stays", "1"), topic="another topic!")
    until(lambda: _parked(scene) >= {*keys, "stays"}, "they are parked", 60)
    page.goto(f"{scene.url}/waiting")
    page.locator("#topics").get_by_role("link", name=NOWHERE).click()
    expect(page.locator("#main, main")).to_contain_text("Parked keys of it: 3.")
    page.locator("#keys").get_by_role("link", name=keys[0]).click()
    expect(page.locator("#rows")).to_have_text("2")

    until(lambda: _found(page, scene, "many-") == "3", "they are read anew", 60)
    assert "many" not in page.url
    page.get_by_role("link", name="All", exact=True).click()
    page.get_by_role("link", name=NOWHERE).click()
    expect(page.locator("#total")).to_have_text("3")
    assert "topic=" in page.url
    for key in keys:
        scene.repair(key)
    page.get_by_role("button", name="Retry all…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Retry 3 records?")
    scene.stash(("late", "1"), topic=NOWHERE)
    until(lambda: "late" in _parked(scene), "it is parked", 60)
    confirm(page, "all of the topic")
    expect(page.locator("#done")).to_contain_text("3 records tried again")
    for key in keys:
        scene.wait_until_arrived(key, "0", "1")
    assert _parked(scene) == {"stays", "late"}, "what was parked later, and what does not match"
    page.goto(f"{scene.url}/journal")
    page.get_by_label("Verb").select_option("retry")
    page.get_by_label("Operator").fill("olg")
    page.get_by_role("button", name="Find").click()
    expect(page.locator('tr[data-verb="retry"]').first).to_contain_text("all of the topic")
    page.goto(f"{scene.url}/do/skip?all=1")
    confirm(page, "tidied up")
    assert not visitors.complaints


def _found(page: Page, scene: Scene, prefix: str) -> str:
    """Looks for parked keys; returns how many are found."""
    page.goto(f"{scene.url}/letters")
    page.get_by_label("Key", exact=True).last.fill(prefix)
    page.get_by_label("How the key is compared").select_option("begins with")
    page.get_by_role("button", name="Find").click()
    return page.locator("#total").inner_text()


def _parked(scene: Scene) -> set[str]:
    with closing(scene.shop.database.dialect.dead_letters(read_only=True)) as dead:
        return {each.record.key for each in dead.find(status=DeadLetterStatus.PARKED, whole=False)}


def test_a_form_that_is_sent_twice_acts_once(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"])
    page.get_by_role("link", name="Stop the leader…").click()
    page.get_by_label("Reason").fill("pressed twice")
    form = page.evaluate("Object.fromEntries(new FormData(document.getElementById('do')))")
    origin = {"Sec-Fetch-Site": "same-origin"}
    for _ in range(2):
        answer = page.request.post(f"{scene.url}/do/raise-fence", form=form, headers=origin)
        assert answer.ok
        assert "The fence is raised" in answer.text()
    assert [each.action.reason for each in scene.journal()].count("pressed twice") == 1


def test_the_fence_is_raised_and_the_leader_continues(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"])
    # Another test may have raised the fence just before.
    expect(page.locator("#leader-name")).to_have_text(re.compile("^harvester"))
    before = int(page.locator("#leader-token").inner_text())
    page.get_by_role("link", name="Stop the leader…").click()
    expect(page.locator("#effect")).to_contain_text("The present leader is fenced")
    expect(page.get_by_text(f"leads, with token {before}.")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    assert int(page.locator("#leader-token").inner_text()) == before
    page.get_by_role("link", name="Stop the leader…").click()
    confirm(page, "the leader hangs")
    expect(page.locator("#leader-token")).not_to_have_text(str(before))
    assert int(page.locator("#leader-token").inner_text()) > before
    scene.stash(("after the fence", "flows"))
    scene.wait_until_arrived("after the fence", "flows")
    expect(noted(page, "raise-fence", "the leader hangs")).to_contain_text("olga")
    assert not visitors.complaints
