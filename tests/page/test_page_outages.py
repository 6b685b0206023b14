"""An open page asks for what is new, and processes and databases go away meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from outbox_servers.services import Kafka
from playwright.sync_api import Route, expect

from .scene import NOWHERE, OPERATORS, VIEWER, Scene, opened
from .visitors import Visitors

pytestmark = pytest.mark.slow

BEHIND = "fetch('/static/icon.svg').then(() => null)"
"""A request that is answered when those that the page made before have been noticed."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, kafka_broker: Kafka) -> Iterator[Scene]:
    """A scene whose server and leaders these tests end."""
    with opened(tmp_path_factory.mktemp("page"), kafka_broker, f"test-{uuid.uuid4().hex}") as scene:
        yield scene


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
    changed = watching.locator('#events li[data-code="leader-changed"]').first
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
    expect(page.locator("#verdict")).to_contain_text("The database does not answer: what is shown is of")
    expect(page.locator(".verdict")).to_have_attribute("data-state", "away")
    expect(page.locator("#state.stale")).to_have_count(1)
    expect(page.locator("#leader-name")).to_have_text(leader)
    page.reload()
    expect(page.locator("#leader-name")).to_have_text(leader)
    assert "password" not in page.content().lower()
    scene.server.start()
    expect(page.locator("#verdict")).to_have_text("All is well.")
    expect(page.locator("#state.stale")).to_have_count(0)
    scene.stash(("after the outage", "flows"))
    scene.wait_until_arrived("after the outage", "flows")


def test_what_has_not_changed_is_not_sent_again(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, VIEWER)
    with page.expect_response(lambda answer: "/outbox/live" in answer.url and answer.status == 304):
        pass
    scene.stash(("after the same", "1"), topic=NOWHERE)
    expect(page.locator('tr[data-key="after the same"]')).to_be_visible()
    expect(page.locator("#connection")).to_be_empty()
    assert not visitors.complaints


def test_the_page_asks_when_the_server_says(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, VIEWER, eager=False)
    page.goto("about:blank")
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.headers.get("if-none-match", ""))
        told = {"Outbox-Pause": "7.5", "ETag": f'"{len(asked)}"'}
        route.fulfill(body=f'<p id="said">{len(asked)}</p>', headers=told, content_type="text/html")

    page.route("**/outbox/live*", answer)
    page.clock.install(time=0)
    page.clock.pause_at(3_600_000)  # from now on the page's time advances by the tests' will only
    page.goto(scene.url)
    page.clock.run_for(2000)  # no further: a request that time runs past is given up
    expect(page.locator("#said")).to_have_text("1")
    before = len(asked)
    page.clock.run_for(7000)
    page.evaluate(BEHIND)
    assert len(asked) == before
    page.clock.run_for(1000)
    expect(page.locator("#said")).to_have_text(str(before + 1))
    assert asked[-1] == f'"{before}"'
