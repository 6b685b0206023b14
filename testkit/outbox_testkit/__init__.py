"""How a plugin is proven: the conformance suites of dialects and publishers."""

import pytest

# The suites are tests: pytest must rewrite their assertions, and be told before they are imported.
pytest.register_assert_rewrite("outbox_testkit.conformance")
