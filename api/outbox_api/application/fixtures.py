"""Fixtures for the tests of an application; pytest finds them by itself.

A test module or ``conftest.py`` says where the outbox is::

    @pytest.fixture
    def outbox_database(tmp_path):
        return "sqlite", str(tmp_path / "shop.db")

    def test_an_order_is_announced(stashed):
        place_order(42)
        assert stashed.one(topic="orders").key == "42"
"""

from __future__ import annotations

from typing import Any

import pytest

from outbox_api.application.testing import Stashed


@pytest.fixture
def outbox_database() -> Any:
    """Where the outbox is; see :class:`outbox_api.application.testing.Stashed`. Tests define their own."""
    pytest.fail("define a fixture 'outbox_database' that returns, say, ('sqlite', '/path/of/shop.db')")


@pytest.fixture
def stashed(outbox_database: Any) -> Stashed:
    """What the test stashes and commits."""
    return Stashed(outbox_database)
