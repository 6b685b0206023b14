"""Processes and databases go away while the page is open."""

from __future__ import annotations

from playwright.sync_api import expect

from .scene import OPERATORS, VIEWER, Scene
from .visitors import Visitors


def test_the_page_of_another_process_shows_the_takeover(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"])
    expect(page.locator("#verdict")).to_have_text("All is well.")
    leader = page.locator("#leader-name").inner_text()
    assert leader in scene.running
    for name in ("backlog", "oldest", "rate"):
        expect(page.locator(f"#figure-{name} svg")).to_be_visible()
    [other] = [name for name in scene.running if name != leader]
    watching = visitors.signed_in(scene.urls[other], VIEWER)
    expect(watching.locator("#leader-name")).to_have_text(leader)
    of_leader = visitors.signed_in(scene.urls[leader], VIEWER)

    scene.harvester(leader).kill()
    expect(watching.locator("#leader-name")).to_have_text(other)
    changed = watching.locator('#happenings li[data-code="leader-changed"]').first
    expect(changed).to_contain_text(leader)
    expect(changed).to_contain_text(other)
    expect(of_leader.locator("#connection")).to_contain_text("No answer since")
    expect(of_leader.locator("#leader-name")).to_have_text(
        leader
    )  # what was known stays, and is told to be old
    scene.stash(("after the takeover", "flows"))
    scene.wait_until_arrived("after the takeover", "flows")
    expect(watching.locator("#verdict")).to_have_text("All is well.")
    scene.start()


def test_the_page_says_that_the_database_is_away_and_recovers(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"])
    expect(page.locator("#verdict")).to_have_text("All is well.")
    leader = page.locator("#leader-name").inner_text()
    scene.server.stop()
    expect(page.locator("#verdict")).to_contain_text("The database has not answered since")
    expect(page.locator(".verdict")).to_have_attribute("data-state", "away")
    expect(page.locator("#age")).to_contain_text("was last seen")
    expect(page.locator("#leader-name")).to_have_text(leader)
    page.reload()
    expect(page.locator("#leader-name")).to_have_text(leader)
    assert "password" not in page.content().lower()
    scene.server.start()
    expect(page.locator("#verdict")).to_have_text("All is well.")
    expect(page.locator("#age")).to_have_count(0)
    scene.stash(("after the outage", "flows"))
    scene.wait_until_arrived("after the outage", "flows")
