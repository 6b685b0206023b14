"""The conformance suites: whoever writes a plugin subclasses one, and gives a fixture, nothing more.

A dialect's whole test file::

    from outbox_testkit.conformance import DialectConformance, OutboxUnderTest

    class TestPostgres(DialectConformance):
        @pytest.fixture
        def outbox(self, postgres_dsn):
            return OutboxUnderTest("postgres", {"data_source": postgres_dsn})

The suite asks for what the contract of the seam says and for nothing else. A test is skipped only when the
plugin does not declare the capability that it needs. Where a database takes long to make, the fixture may
give another table of the same database each time.

``python -m outbox_testkit.conformance report.xml …`` makes a table of databases and tests from pytest's
reports (``--junit-xml``).
"""

from outbox_testkit.conformance.dialect import DialectConformance
from outbox_testkit.conformance.publisher import (
    PublisherConformance,
    PublisherUnderTest,
    TransactionalConformance,
)
from outbox_testkit.conformance.under_test import OutboxUnderTest

__all__ = [
    "DialectConformance",
    "OutboxUnderTest",
    "PublisherConformance",
    "PublisherUnderTest",
    "TransactionalConformance",
]
