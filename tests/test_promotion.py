"""The short form of ``python -m tests.promotion``: a replica that lags takes over."""

from __future__ import annotations

from pathlib import Path

import pytest
from outbox_servers.services import Kafka

from .faults.fault import EXACTLY_ONCE
from .harvesters import Measure
from .promotion import BACKLOG, trial


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_what_the_promoted_database_has_arrives(
    tmp_path: Path, kafka_broker: Kafka, measure: Measure
) -> None:
    count = trial(tmp_path, kafka_broker, "postgres", EXACTLY_ONCE, "partition", lag=1.0)
    assert count.fenced, "a token was given twice"
    assert count.sold > BACKLOG
    assert (count.lost, count.overtaken) == (0, 0)
    assert count.published >= BACKLOG, "the replica did not lag"
    # A row that comes back is published again once, if the former leader has published it or still does.
    assert count.repeats <= count.rows
    measure("records that arrived and are unknown to the promoted database", count.phantoms)
    measure("records that arrived again", count.repeats)
