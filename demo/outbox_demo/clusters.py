"""``python -m outbox_demo.clusters``: three clusters with one replicated outbox, of which one is lost.

Each has a PostgreSQL, a Kafka broker and a harvester. About a minute. Exits with 1 if a record was lost, or
delivered by a cluster that should not have.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from outbox_api import OutboxError
from outbox_core.cli.terminal import output
from rich.table import Table

from outbox_demo.site import CLUSTERS, DELAY, Site

RECORDS = 400
"""Records that each cluster writes at a time."""
_EMPTY_SECONDS = 60.0
_START_SECONDS = 60.0

Counts = dict[int, dict[int, int]]
"""Cluster that wrote → cluster that delivered → messages."""


class Demonstration:
    """The steps of the demonstration.

    Args:
        sites: The clusters by number.
    """

    def __init__(self, sites: dict[int, Site]) -> None:
        self._sites = sites
        self._console = output()
        self._began = time.monotonic()
        self._before: Counts = {}
        self.good = True

    def run(self) -> None:
        """Runs all steps."""
        self._say("starting three databases and three brokers …")
        with ThreadPoolExecutor(CLUSTERS) as pool:
            list(pool.map(Site.open, self._sites.values()))
        for own in self._sites.values():
            for other in self._sites.values():
                if own is not other:
                    own.follow(other)
            own.start_harvester()
        for own in self._sites.values():
            own.wait_until_leading(_START_SECONDS)
        self._say("each database receives what the two others write; a harvester runs in each cluster")
        self._step("normal operation", {1: 1, 2: 2, 3: 3})
        self._sites[1].kill_harvester()
        self._say(f"cluster 1 is lost: its harvester is killed. After {DELAY} s the next one takes over …")
        self._step("cluster 1 is lost", {1: 2, 2: 2, 3: 3})
        self._sites[2].kill_harvester()
        self._say(f"cluster 2 is lost, too. The last one waits {2 * DELAY} s for records of cluster 1 …")
        self._step("clusters 1 and 2 are lost", {1: 3, 2: 3, 3: 3})
        self._sites[1].start_harvester()
        self._sites[2].start_harvester()
        for number in (1, 2):
            self._sites[number].wait_until_leading(_START_SECONDS)
        self._say("both are back")
        self._step("normal operation again", {1: 1, 2: 2, 3: 3})

    def _step(self, title: str, expected: dict[int, int]) -> None:
        """Has every cluster write, waits until all is delivered, and shows who has delivered what."""
        began = time.monotonic()
        for site in self._sites.values():
            site.write(RECORDS)
        for site in self._sites.values():
            site.wait_until_empty(_EMPTY_SECONDS)
        now = self._count()
        new = {
            origin: {by: count - self._before.get(origin, {}).get(by, 0) for by, count in each.items()}
            for origin, each in now.items()
        }
        self._before = now
        right = new == {
            origin: {by: RECORDS if by == expected[origin] else 0 for by in self._sites} for origin in new
        }
        self.good &= right
        self._show(title, time.monotonic() - began, new, right=right)

    def _count(self) -> Counts:
        delivered = {number: site.delivered() for number, site in self._sites.items()}
        return {
            origin: {
                by: sum(times for (wrote, _), times in each.items() if wrote == origin)
                for by, each in delivered.items()
            }
            for origin in self._sites
        }

    def _show(self, title: str, seconds: float, counts: Counts, *, right: bool) -> None:
        table = Table(title=f"{title} ({seconds:.0f} s)", title_justify="left")
        table.add_column(f"{RECORDS} records of")
        for by in self._sites:
            table.add_column(f"delivered by {by}", justify="right")
        for origin, each in counts.items():
            table.add_row(f"cluster {origin}", *(str(count or "") for count in each.values()))
        self._console.print(table)
        if not right:
            self._console.print("This is not as it should be.")

    def _say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:5.1f} s  {text}", soft_wrap=True)


def main() -> int:
    """Runs the demonstration; returns the exit code."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-clusters-"))).resolve()
        sites = {number: Site(number, folder) for number in range(1, CLUSTERS + 1)}
        for site in sites.values():
            stack.callback(site.close)
        demonstration = Demonstration(sites)
        try:
            demonstration.run()
        except OutboxError as error:
            output().print(f"BAD: {error}", markup=False)
            return 1
        except KeyboardInterrupt:
            output().print("stopped; nothing is left running")
            return 130
    good = demonstration.good
    verdict = "every record was delivered once, by one cluster" if good else "see above"
    output().print(f"{'GOOD' if good else 'BAD'}: {verdict}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
