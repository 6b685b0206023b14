"""``python -m tests.dashboard``: shows the dashboard in a real Grafana, checks it, and takes its pictures.

The environment variable ``GRAFANA_HOME`` names the folder of an unpacked Grafana.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from outbox_servers.services import ChromiumBrowser
from outbox_servers.services.grafana import GrafanaServer, find_installation
from playwright.sync_api import sync_playwright

from deploy.make import FOLDER

from ..alarms.faults import CLUSTER  # noqa: TID252 - as the tests beside it
from ..alarms.site import INTERVAL, Site, own_servers  # noqa: TID252 - as the tests beside it
from ..page.visitors import Visitors  # noqa: TID252 - as the tests beside it
from .life import live
from .look import DASHBOARD, Shown, Viewer

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def tell(line: str) -> None:
    """Prints a line without delay."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dashboard", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long the graphs are (default 10)")
    minutes = parser.parse_args().minutes
    installation = find_installation()  # before anything that takes long
    # A signal must end all servers, like the normal end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with (
        tempfile.TemporaryDirectory(prefix="dashboard-") as folder,
        own_servers() as servers,
        Site(servers, Path(folder) / "site", 1, CLUSTER) as site,
        GrafanaServer(
            site.prometheus.url,
            [FOLDER / "grafana"],
            interval=INTERVAL,
            installation=installation,
            progress=tell,
        ) as grafana,
        ChromiumBrowser(progress=tell) as chromium,
        sync_playwright() as playwright,
    ):
        version = grafana.get("health")["version"]
        tell(f"Grafana {version}; records flow for {minutes:g} minutes")
        import_by_hand(grafana)
        began = time.time()
        live(site, minutes * 60)
        visitors = Visitors(playwright.chromium.connect_over_cdp(chromium.url))
        viewer = Viewer(grafana.url, visitors, began, time.time())
        wrong = [
            problem
            for theme in ("light", "dark")
            for problem in judge(viewer.look(theme, PICTURES), f"{theme}: ")
        ]
        visitors.leave()
    for each in wrong:
        tell(f"WRONG: {each}")
    tell(f"Grafana {version}: {len(wrong)} wrong")
    return 1 if wrong else 0


def import_by_hand(grafana: GrafanaServer) -> None:
    """Imports the dashboard once more, with another name, as the documents say."""
    copy = {**DASHBOARD, "uid": "copy", "title": "Copy"}
    answer = grafana.post("dashboards/db", {"dashboard": copy, "overwrite": True})
    assert answer["status"] == "success", answer
    kept = grafana.get("dashboards/uid/copy")["dashboard"]
    assert [each["title"] for each in kept["panels"]] == [each["title"] for each in DASHBOARD["panels"]]


def judge(shown: Shown, where: str) -> list[str]:
    """Returns what is wrong with what was shown."""
    tell(f"{where}{len(shown.answers)} panels answered; pictures: {json.dumps(shown.sizes)}")
    return [f"{where}{each}" for each in (*shown.problems(), *shown.complaints)]


if __name__ == "__main__":
    sys.exit(main())
