"""Ids of the outbox that begin anew under a running harvester, on real servers."""

from __future__ import annotations

import pytest

from .harvesters import Fleet, until
from .shop import Shop


@pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.slow), "exactly-once"])
def test_an_outbox_that_is_truncated_goes_on_in_order_with_the_first_ids(
    shop: Shop, fleet: Fleet, delivery: str
) -> None:
    harvester = fleet.start("a", delivery=delivery)
    for turn in range(3):
        # Two transactions with rows on both sides of the last id of before.
        for part in range(2):
            shop.stash(1_500, keys=7, start=1 + 3_000 * turn + 1_500 * part)
        shop.wait_until_harvested(60)
        with shop.connect() as connection:
            connection.execute("TRUNCATE outbox RESTART IDENTITY")
    until(lambda: harvester.find("begin anew"), "the harvester says so", 60)
    result = shop.audit()
    assert (result.lost, result.out_of_order) == (0, 0), result.summary()
    assert result.repeated == 0
    harvester.leave()
