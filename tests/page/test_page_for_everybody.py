"""The page serves everybody: keyboards, phones, dark rooms, browsers without scripts, and screen readers."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from .scene import NOWHERE, OPERATORS, Scene
from .visitors import Visitors

pytestmark = pytest.mark.slow

PHONE = {"width": 360, "height": 740}
MOST_TABS = 60
"""Presses of the tabulator key within which everything is reached."""


@pytest.fixture(scope="module")
def parked(scene: Scene) -> str:
    """The key of a record that stays parked, and has a long value and a long name."""
    key = "invoice/2026-11-23/customer/4711/line/" + "0" * 40
    scene.stash((key, "a value " * 100), (key, "behind it"), topic=NOWHERE)
    return key


def row(key: str) -> str:
    return f'tr[data-key="{key}"]'


def addresses(page: Page, scene: Scene, key: str) -> dict[str, str]:
    """Returns what there is to show → its address."""
    shown = page.locator(row(key))
    expect(shown).to_be_visible()
    number = shown.get_attribute("data-id")
    return {
        "an outbox": scene.url,
        "a dead letter": f"{scene.url}/letter?outbox=outbox&id={number}&count=1",
        "what a verb would do": f"{scene.url}/do/skip?outbox=outbox&id={number}",
        "found dead letters": f"{scene.url}/letters?outbox=outbox&reason=topic",
        "what waits": f"{scene.url}/waiting?outbox=outbox",
        "rows of a key": f"{scene.url}/waiting/key?outbox=outbox&id={number}",
        "which topic to pause": f"{scene.url}/do/pause?outbox=outbox",
        "what a pause would do": f"{scene.url}/do/pause?outbox=outbox&topic={scene.shop.topic}",
        "the journal": f"{scene.url}/journal?outbox=outbox",
        "kept records": f"{scene.url}/kept?outbox=outbox",
        "help": f"{scene.url}/help",
    }


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    """Presses Tab until an element has the focus; each that has it on the way can be seen to have it."""
    for _ in range(MOST_TABS):
        page.keyboard.press(key)
        style = page.evaluate(
            "(({outlineStyle, outlineWidth}) => `${outlineStyle} ${outlineWidth}`)"
            "(getComputedStyle(document.activeElement))"
        )
        assert not style.startswith("none"), page.evaluate("document.activeElement.outerHTML")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{selector} is not reached by {key}")


def wait_for_update(page: Page) -> None:
    """Waits until the page has asked for what is new, and been told something."""
    with page.expect_response(lambda answer: "/outbox/live" in answer.url and answer.status == 200) as answer:
        pass
    answer.value.finished()


def test_a_retry_needs_no_mouse(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["oscar"])
    scene.stash(("typed", "1"), ("typed", "2"), topic=NOWHERE)
    expect(page.locator(row("typed"))).to_be_visible()
    scene.repair("typed")
    tab_to(page, "a.skip")
    tab_to(page, f"{row('typed')} input")
    page.keyboard.press("Space")
    wait_for_update(page)
    expect(page.locator(f"{row('typed')} input")).to_be_focused()
    expect(page.locator(f"{row('typed')} input")).to_be_checked()
    tab_to(page, "#retry", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Retry 1 record?")
    tab_to(page, "#reason")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#done")).to_contain_text("1 record tried again")
    scene.wait_until_arrived("typed", "1", "2")
    assert not visitors.complaints


def test_a_pause_needs_no_mouse(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["oscar"])
    tab_to(page, "#pause-topic")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Pause which topic?")
    tab_to(page, "#topic")
    page.keyboard.type(scene.shop.topic)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Pause topic {scene.shop.topic}?")
    tab_to(page, "#lasts input")
    page.keyboard.press("Space")
    tab_to(page, "#reason")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#done")).to_contain_text(f"Topic {scene.shop.topic} is paused until")
    row = page.locator(f'#paused tr[data-subject="topic {scene.shop.topic}"]')
    expect(row).to_have_attribute("data-effect", "yes")
    scene.stash(("paused by keyboard", "1"))
    assert not Axe().run(page).response["violations"]
    tab_to(page, "#paused a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Resume topic {scene.shop.topic}?")
    tab_to(page, "#reason")
    page.keyboard.type("and resumed")
    page.keyboard.press("Enter")
    expect(row).to_have_count(0)
    scene.wait_until_arrived("paused by keyboard", "1")
    assert not visitors.complaints


def test_without_scripts_it_is_read_and_used_by_loading_it_anew(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"], java_script_enabled=False)
    anew = page.locator("noscript a")  # whose text Playwright overlooks elsewhere
    expect(anew).to_have_text("Reload this page")
    expect(page.locator("#figure-backlog svg")).to_be_visible()
    scene.stash(("unscripted", "1"), ("unscripted", "2"), topic=NOWHERE)
    for _ in range(100):
        anew.click()
        if page.locator(row("unscripted")).count():
            break
        page.wait_for_timeout(300)
    scene.repair("unscripted")
    page.locator(row("unscripted")).get_by_role("checkbox").check()
    page.get_by_role("button", name="Retry…").click()
    page.get_by_label("Reason").fill("without scripts")
    page.locator("#confirm").click()
    expect(page.locator("#done")).to_contain_text("1 record tried again")
    scene.wait_until_arrived("unscripted", "1", "2")


def test_without_scripts_the_outbox_is_paused(scene: Scene, visitors: Visitors) -> None:
    page = visitors.signed_in(scene.url, OPERATORS["olga"], java_script_enabled=False)
    page.get_by_role("link", name="Pause the outbox…").click()
    page.locator("#lasts").get_by_label("until it is resumed").check()
    page.get_by_label("Reason").fill("without scripts")
    page.locator("#confirm").click()
    expect(page.locator("#done")).to_contain_text("The whole outbox is paused until it is resumed.")
    row = page.locator('#paused tr[data-subject="the whole outbox"]')
    for _ in range(100):
        page.locator("noscript a").click()
        if row.get_attribute("data-effect") == "yes":
            break
        page.wait_for_timeout(300)
    assert row.get_attribute("data-effect") == "yes"
    scene.stash(("paused without scripts", "1"))
    page.wait_for_timeout(1000)
    assert scene.arrived("paused without scripts") == []
    row.get_by_role("link", name="Resume…").click()
    page.get_by_label("Reason").fill("without scripts")
    page.locator("#confirm").click()
    expect(page.locator("#done")).to_contain_text("The whole outbox is resumed.")
    scene.wait_until_arrived("paused without scripts", "1")


def test_a_phone_shows_it_without_scrolling_sideways(scene: Scene, visitors: Visitors, parked: str) -> None:
    phone = {"viewport": PHONE, "is_mobile": True, "has_touch": True}
    page = visitors.signed_in(scene.url, OPERATORS["olga"], **phone)
    too_wide = "document.documentElement.scrollWidth - window.innerWidth"
    for what, address in addresses(page, scene, parked).items():
        page.goto(address)
        assert page.evaluate("window.innerWidth") == PHONE["width"], what
        assert page.evaluate(too_wide) <= 0, what
    page.get_by_role("navigation", name="Place").get_by_role("link", name="outbox").tap()
    page.get_by_role("link", name="Stop the leader…").tap()
    expect(page.locator("#confirm")).to_be_in_viewport()


def luminance(page: Page, name: str) -> float:
    """Returns how bright a colour of the page is, from 0 to 1."""
    parts = page.evaluate(
        """(name) => {
            const canvas = document.createElement("canvas").getContext("2d");
            canvas.fillStyle = getComputedStyle(document.body)[name];
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
        }""",
        name,
    )
    return sum(map(float, parts[:3])) / 3 / 255


@pytest.mark.parametrize(("scheme", "darker"), [("light", "color"), ("dark", "backgroundColor")])
def test_nobody_is_kept_out_in_light_or_in_the_dark(
    scene: Scene, visitors: Visitors, parked: str, scheme: str, darker: str
) -> None:
    axe, found = Axe(), []

    def examine(what: str, page: Page) -> None:
        for each in axe.run(page).response["violations"]:
            where = [node["html"][:200] for node in each["nodes"]]
            found.append(f"{what}, {scheme}: {each['impact']} {each['id']}: {each['help']}: {where}")

    wrong = {"username": "olga", "password": "wrong, and long enough"}
    page = visitors.open(http_credentials=wrong, color_scheme=scheme)
    page.goto(scene.url)
    expect(page.locator("#error")).to_be_visible()
    examine("a wrong token", page)
    page = visitors.signed_in(scene.url, OPERATORS["olga"], color_scheme=scheme)
    [lighter] = {"color", "backgroundColor"} - {darker}
    assert luminance(page, darker) + 0.5 < luminance(page, lighter)
    for what, address in addresses(page, scene, parked).items():
        page.goto(address)
        examine(what, page)
    assert not found, "\n".join(found)
