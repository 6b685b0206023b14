"""``python -m tests.alarms``: makes every alarm fire and clear, or those that are named."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from deploy.alerts import alarms
from deploy.series import duration

from .faults import FAULTS
from .site import Site, own_servers
from .trial import Outcome, conduct

FACTOR = 30.0
"""By what durations and limits are divided."""


def tell(line: str) -> None:
    """Prints a line without delay."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    options = _options()
    # A signal must end all servers, like the normal end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="alarms-"))
    tell(f"durations and limits are divided by {options.factor:g}; logs in {folder}")
    outcomes: list[Outcome] = []
    wrong = 0
    with own_servers() as servers:
        for number, fault in enumerate(FAULTS):
            wanted = [each for each in fault.alarms if each in options.alarms]
            if not wanted:
                continue
            began = time.monotonic()
            try:
                with Site(servers, folder / f"site-{number}", options.factor, fault.harvest) as site:
                    found = conduct(site, fault, wanted)
            except AssertionError as error:
                wrong += 1
                tell(f"FAILED: {fault.title}: {error}")
            else:
                outcomes += found
                for each in found:
                    tell(
                        f"{each.alarm}: {fault.title}: fires after {each.fired:.1f} s, clears after "
                        f"{each.cleared:.1f} s; besides: {', '.join(each.others) or 'none'} "
                        f"({time.monotonic() - began:.0f} s in all)"
                    )
    for line in table(outcomes, options.factor):
        tell(line)
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


def table(outcomes: Iterable[Outcome], factor: float) -> list[str]:
    """Returns the lines of a table in Markdown."""
    real = {each.name: each for each in alarms()}
    scaled = {each.name: each for each in alarms(factor)}
    lines = [
        "| alarm | fault | `for` | in the trial | fires after | clears after | fires, too |",
        "|---|---|---|---|--:|--:|---|",
    ]
    for each in outcomes:
        lasts = [duration(of[each.alarm].seconds) for of in (real, scaled)]
        others = ", ".join(f"`{other}`" for other in each.others)
        measured = f"{each.fired:.1f} s | {each.cleared:.1f} s"
        lines.append(f"| `{each.alarm}` | {each.fault} | {' | '.join(lasts)} | {measured} | {others} |")
    return lines


def _options() -> argparse.Namespace:
    known = [alarm for fault in FAULTS for alarm in fault.alarms]
    parser = argparse.ArgumentParser(prog="python -m tests.alarms", description=__doc__)
    parser.add_argument("alarms", nargs="*", metavar="ALARM", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--factor", type=float, default=FACTOR, help=f"default {FACTOR:g}")
    options = parser.parse_args()
    if unknown := set(options.alarms) - set(known):
        parser.error(f"unknown alarms: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    options.alarms = options.alarms or known
    return options


if __name__ == "__main__":
    sys.exit(main())
