"""The conformance suites of dialects and publishers."""

import pytest

# The suites are tests: pytest must rewrite their assertions, so register them before they are imported.
pytest.register_assert_rewrite("outbox_testkit.conformance")
