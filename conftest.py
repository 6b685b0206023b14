"""How tests are spread over processes: those of one file together, and those with Spark one by one."""

from __future__ import annotations

import pytest

SPARK_SECONDS = 480
"""The longest that a test with Spark may take: on a slow machine a JVM alone takes half a minute to start."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests with Spark first, as they take longest, and all of them into one process."""
    for item in items:
        spark = item.get_closest_marker("spark")
        item.add_marker(pytest.mark.xdist_group("spark" if spark else item.path.stem))
        if spark:
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
