"""Fixtures of the page in a browser."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from outbox_servers.services import Kafka, Postgres
from playwright.sync_api import Browser, sync_playwright

from ..harvesters import Fleet  # noqa: TID252 - pytest gives tests no absolute name
from .scene import LONG_SESSION, Scene, opened
from .visitors import Visitors


@pytest.fixture(scope="module")
def scene(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_broker: Kafka,
    postgres_server: Postgres,
) -> Iterator[Scene]:
    """A scene that the tests of a file share; each leaves two harvesters running, and has keys of its own.

    Its pages are below the path that the file names as ``PATH``.
    """
    folder, path = tmp_path_factory.mktemp("page"), getattr(request.module, "PATH", "")
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres_server.create_database(name)
    topic = name.replace("_", "-")
    with opened(folder, kafka_broker, topic, path=path, dsn=dsn, session=LONG_SESSION) as scene:
        yield scene
    postgres_server.drop_database(name)


@pytest.fixture
def fleet(scene: Scene) -> Fleet:
    """The scene's harvesters, whose logs are added to the report of a failed test."""
    return scene.fleet


@pytest.fixture(scope="module")
def browser(chromium_url: str) -> Iterator[Browser]:
    """The browser of the session, driven by Playwright.

    For one file only: while Playwright runs, no test of the process can run an event loop.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium_url)
        yield browser
        browser.close()


@pytest.fixture
def visitors(browser: Browser, fleet: Fleet) -> Iterator[Visitors]:
    """Opens pages, which are closed after the test."""
    visitors = Visitors(browser)
    yield visitors
    visitors.leave()
