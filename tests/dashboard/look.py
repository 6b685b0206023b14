"""Looks at the dashboard in a browser, and at what Grafana answers to each of its panels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Response

from deploy.make import FOLDER

from ..harvesters import until  # noqa: TID252 - as the tests beside it
from ..page.visitors import Visitors  # noqa: TID252 - as the tests beside it

DASHBOARD = json.loads((FOLDER / "grafana" / "outbox.json").read_text("utf-8"))
PANELS = {each["id"]: each for each in DASHBOARD["panels"] if each["type"] != "row"}
WIDTH = 1100
ROW = 38
"""Pixels of a row of a dashboard's grid."""
MARGIN = 16
"""Pixels above the first row."""
PICTURED = 31
"""Rows that are in the picture: the verdict, the backlog, and what flows."""
PATIENCE = 300.0
"""Seconds that Grafana may take to draw everything."""


@dataclass
class Shown:
    """What was seen.

    Attributes:
        answers: Number of a panel → the results of its queries, by their letters.
        complaints: What the browser complained of.
        sizes: Name of a picture → its bytes.
    """

    answers: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    complaints: Sequence[str] = ()
    sizes: dict[str, int] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        """Yields what is wrong with each panel: an error, or no data."""
        for number, panel in PANELS.items():
            results = self.answers.get(number)
            if results is None:
                yield f"{panel['title']}: no answer"
                continue
            for target in panel["targets"]:
                result = results.get(target["refId"], {"error": "no result"})
                if error := result.get("error"):
                    yield f"{panel['title']}: {target['expr']}: {error}"
            if not any(has_values(each) for each in results.values()):
                yield f"{panel['title']}: no data"


def has_values(result: Mapping[str, Any]) -> bool:
    """Returns whether the result of a query has a value."""
    return any(
        value is not None
        for frame in result.get("frames", ())
        for values in frame["data"]["values"][1:]
        for value in values
    )


class Viewer:
    """Looks at a dashboard.

    Args:
        url: The address of Grafana.
        visitors: Opens pages.
        began: The beginning of what is shown, in seconds since the epoch.
        ended: Its end.
    """

    def __init__(self, url: str, visitors: Visitors, began: float, ended: float) -> None:
        self._address = f"{url}/d/{DASHBOARD['uid']}/?kiosk&from={began * 1000:.0f}&to={ended * 1000:.0f}"
        self._visitors = visitors

    def look(self, theme: str, folder: Path) -> Shown:
        """Shows the dashboard with a theme, and takes its picture when all panels have been answered."""
        shown = Shown()
        heard = len(self._visitors.complaints)
        # As high as the dashboard: a panel that is out of sight asks for nothing.
        height = ROW * max(each["gridPos"]["y"] + each["gridPos"]["h"] + 4 for each in PANELS.values())
        page = self._visitors.open(viewport={"width": WIDTH, "height": height})
        page.on("response", lambda response: note(response, shown))
        page.goto(f"{self._address}&theme={theme}", wait_until="commit", timeout=PATIENCE * 1000)
        until_quiet(page, shown)
        picture = folder / ("dashboard.png" if theme == "light" else f"dashboard-{theme}.png")
        page.screenshot(
            path=picture,
            clip={"x": 0, "y": 0, "width": WIDTH, "height": MARGIN + ROW * PICTURED},
            animations="disabled",
            caret="hide",
            timeout=PATIENCE * 1000,
        )
        shown.sizes[picture.name] = picture.stat().st_size
        shown.complaints = self._visitors.complaints[heard:]
        return shown


def until_quiet(page: Page, shown: Shown) -> None:
    """Waits until every panel has its answer and has drawn it."""

    def answered() -> bool:
        page.wait_for_timeout(200)  # in which responses are heard
        return len(shown.answers) == len(PANELS)

    with suppress(AssertionError):  # the report names those without
        until(answered, "every panel is answered", PATIENCE)
    # Not until the network is idle: it never is, as a worker of Grafana's pages stays connected.
    page.wait_for_timeout(5000)  # while it draws


def note(response: Response, shown: Shown) -> None:
    """Keeps the answer to the queries of a panel."""
    request = response.request
    number = request.headers.get("x-panel-id")
    if "/api/ds/query" not in request.url or number is None:
        return
    results = response.json().get("results") or {"": {"error": f"{response.status} {response.text()}"}}
    shown.answers[int(number)] = results
