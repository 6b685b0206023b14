"""The page of very many outboxes in a browser: searched while somebody types, one line for one cause."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from outbox_core.config import load
from outbox_servers.services import Kafka
from playwright.sync_api import Browser, expect

from ..harvesters import Harvester  # noqa: TID252 - pytest gives tests no absolute name
from .scene import VIEWER
from .visitors import Visitors

pytestmark = pytest.mark.slow

TENANTS, LOST = 30, 12
_SERVING = "serving on http://"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, kafka_broker: Kafka) -> Iterator[str]:
    """The page of a harvester of outboxes in two files, of which one does not exist."""
    folder = tmp_path_factory.mktemp("many")
    database = folder / "shop.db"
    here = {f"tenant_{number}": {"outboxTable": f"t{number}"} for number in range(1, TENANTS + 1)}
    lost = {
        f"lost_{number}": {"outboxTable": f"l{number}", "dataSource": str(folder / "lost.db")}
        for number in range(1, LOST + 1)
    }
    harvest = {
        "baseKafkaConfig": {"bootstrap.servers": kafka_broker.bootstrap},
        "dialect": "sqlite",
        "dataSource": str(database),
        "elector": "static",
        "engine": "inline",
        "limits": {"sendConcurrency": 1},
    }
    http = {"listen": "127.0.0.1:0", "viewerTokens": [VIEWER]}
    file = folder / "many.yaml"
    file.write_text(json.dumps({"harvest": harvest, "outboxes": here | lost, "http": http}))
    for outbox in load(file).outboxes[:TENANTS]:
        outbox.dialect.create().create()
    harvester = Harvester("many", file)
    try:
        yield "http://" + harvester.wait_for(_SERVING, 60).text.rpartition(_SERVING)[2].strip()
    finally:
        harvester.close()


@pytest.fixture
def visitors(browser: Browser) -> Iterator[Visitors]:
    visitors = Visitors(browser)
    yield visitors
    visitors.leave()


def test_outboxes_are_found_while_somebody_types(url: str, visitors: Visitors) -> None:
    page = visitors.signed_in(url, VIEWER)
    expect(page.locator("#verdict")).to_have_text(f"{LOST} of {TENANTS + LOST} outboxes need attention.")
    fold = page.locator("details.fold")
    expect(fold).to_have_count(1)
    expect(fold).to_contain_text(f"no answer: {LOST} outboxes")
    rows = page.locator("#outboxes tr[data-outbox]")
    expect(rows).to_have_count(TENANTS)
    assert [each.get_attribute("data-outbox") for each in rows.all()[:3]] == [
        "tenant_1",
        "tenant_2",
        "tenant_3",
    ]
    assert not Axe().run(page).response["violations"]

    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(fold.get_by_role("link", name="lost_12")).to_be_visible()
    page.get_by_label("Search").focus()
    page.keyboard.type("Tenant_1")
    expect(rows).to_have_count(11)
    expect(page.locator("#shown")).to_have_text("11 shown.")
    expect(page).to_have_url(re.compile(r"\?q=Tenant_1$"))
    page.keyboard.type("2")
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Search")).to_be_focused()
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_label("Search").fill("")
    page.get_by_label("only those with problems").check()
    expect(rows).to_have_count(0)
    expect(page.locator("#shown")).to_have_text(f"{LOST} shown.")
    expect(fold).to_be_visible()
    assert not visitors.complaints


def test_outboxes_are_found_without_scripts(url: str, visitors: Visitors) -> None:
    page = visitors.signed_in(url, VIEWER, java_script_enabled=False)
    page.get_by_label("Search").fill("_7")
    page.get_by_label("Search").press("Enter")
    expect(page.locator("[data-outbox]")).to_have_count(2)
    page.get_by_role("link", name="tenant_7").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("tenant_7")
