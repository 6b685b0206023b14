"""For tests of applications: what was stashed, as the test's own transaction sees it.

A ``TestCase`` rolls back what its tests do, so no other connection sees their records: this reads over
Django's own.
"""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections
from outbox_api import Record
from outbox_api.application.testing import Stashed

from outbox_django.models import StashedRecord


def stashed(topic: str | None = None, key: str | None = None, using: str = DEFAULT_DB_ALIAS) -> list[Record]:
    """Returns the records of a topic, a key, or both, in the order in which they were stashed.

    Args:
        topic: The topic; ``None`` for any.
        key: The key; ``None`` for any.
        using: The database's alias.
    """
    return _stashed(using).of(topic, key)


class StashedMixin:
    """Assertions for Django's test cases: ``class OrderTest(StashedMixin, TestCase)``."""

    def assertStashed(  # noqa: N802 - named as Django's own
        self, topic: str | None = None, key: str | None = None, using: str = DEFAULT_DB_ALIAS
    ) -> Record:
        """Returns the only record of a topic, a key, or both.

        Raises:
            AssertionError: There is none, or there are several; the message lists what was stashed.
        """
        return _stashed(using).one(topic, key)

    def assertNotStashed(  # noqa: N802 - named as Django's own
        self, topic: str | None = None, key: str | None = None, using: str = DEFAULT_DB_ALIAS
    ) -> None:
        """Makes sure that no record of a topic, a key, or both was stashed.

        Raises:
            AssertionError: There is one; the message lists what was stashed.
        """
        if found := stashed(topic, key, using):
            raise AssertionError(f"{len(found)} records instead of none; {_stashed(using)!r}")


def _stashed(using: str) -> Stashed:
    return Stashed(connections[using], StashedRecord._meta.db_table, earlier=True)  # noqa: SLF001 - Django's
