"""docs/output.md names every metric of a lane."""

import re
from pathlib import Path

from outbox_core.events.metrics import LaneMetrics, as_numbers

PAGE = Path(__file__).parents[2] / "docs" / "output.md"


def test_every_metric_of_a_lane_is_documented() -> None:
    _, _, section = PAGE.read_text("utf-8").partition("\n## `outbox status`\n")
    _, _, listed = section.partition("\nMost are [metrics]")
    names = re.findall(r"`(\w+)`", listed.partition("\n\n")[0])
    assert sorted(names) == sorted(as_numbers(LaneMetrics(), 0.0))
