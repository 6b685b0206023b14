"""The conformance suites: a plugin's test subclasses one, and provides one fixture.

The complete test file of a dialect::

    from outbox_testkit.conformance import DialectConformance, OutboxUnderTest

    class TestPostgres(DialectConformance):
        @pytest.fixture
        def outbox(self, postgres_dsn):
            return OutboxUnderTest("postgres", {"data_source": postgres_dsn})

The suites test the contract of the seam and nothing else. A test is skipped only if the plugin does not
declare the capability that it needs. If a database is slow to create, the fixture may return another table of
the same database each time.

``python -m outbox_testkit.conformance report.xml …`` prints a table of plugins and tests from pytest's
reports (``--junit-xml``).
"""

from outbox_testkit.conformance.affinity import AffinityConformance, AffinityUnderTest
from outbox_testkit.conformance.contender import ElectorUnderTest, ServiceUnderTest
from outbox_testkit.conformance.dialect import DailyConformance, DialectConformance
from outbox_testkit.conformance.elector import ElectorConformance
from outbox_testkit.conformance.engine import EngineConformance, EngineUnderTest
from outbox_testkit.conformance.publisher import (
    Message,
    PublisherConformance,
    PublisherUnderTest,
    RunConformance,
    TransactionalConformance,
)
from outbox_testkit.conformance.recording import RecordingCandidate
from outbox_testkit.conformance.under_test import OutboxUnderTest

__all__ = [
    "AffinityConformance",
    "AffinityUnderTest",
    "DailyConformance",
    "DialectConformance",
    "ElectorConformance",
    "ElectorUnderTest",
    "EngineConformance",
    "EngineUnderTest",
    "Message",
    "OutboxUnderTest",
    "PublisherConformance",
    "PublisherUnderTest",
    "RecordingCandidate",
    "RunConformance",
    "ServiceUnderTest",
    "TransactionalConformance",
]
