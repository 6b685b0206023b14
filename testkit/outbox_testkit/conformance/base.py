"""The base class of the suite's themes: an outbox with its tables, and skips by capability."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

import pytest
from outbox_api import Capability

from outbox_testkit.conformance.under_test import Box, OutboxUnderTest

NOT_DECLARED = "the plugin does not declare: "
"""The beginning of the reason of every skip; the capability follows."""

Test = TypeVar("Test", bound=Callable[..., object])


def needs(capability: Capability) -> Callable[[Test], Test]:
    """Skips a test if the dialect does not declare a capability."""

    def note(test: Test) -> Test:
        test.__needs__ = capability  # type: ignore[attr-defined]  # a note of our own on the function
        return test

    return note


class Conformance:
    """A theme. The plugin's subclass provides the fixture ``outbox``, an :class:`OutboxUnderTest`."""

    @pytest.fixture
    def stack(self) -> Iterator[ExitStack]:
        """Closes at the end of a test what the test opened."""
        with ExitStack() as opened:
            yield opened

    @pytest.fixture
    def bare(self, outbox: OutboxUnderTest, stack: ExitStack, request: pytest.FixtureRequest) -> Box:
        """The outbox under test, without its tables."""
        box = Box(outbox, stack)
        needed = getattr(request.function, "__needs__", None)
        if needed and needed not in box.dialect.capabilities:
            pytest.skip(f"{NOT_DECLARED}{needed}")
        return box

    @pytest.fixture
    def box(self, bare: Box) -> Box:
        """The outbox under test."""
        bare.dialect.create()
        return bare

    @pytest.fixture
    def impatient_box(self, bare: Box, stack: ExitStack) -> Box:
        """The outbox under test; where the dialect has an option for it, locks are waited for briefly."""
        brief = {"lock_timeout": 1.0} if hasattr(bare.options, "lock_timeout") else {}
        box = Box(replace(bare.under, options={**bare.under.options, **brief}), stack)
        box.dialect.create()
        return box

    @pytest.fixture
    def apart(self, bare: Box, stack: ExitStack) -> Box:
        """The outbox under test, without its tables, of which it shares none with other outboxes."""
        return Box(bare.under.apart(), stack)

    @pytest.fixture
    def bytes_box(self, bare: Box, stack: ExitStack) -> Box:
        """The outbox under test, with values of bytes."""
        box = Box(bare.under.of_bytes(), stack, bytes_values=True)
        box.dialect.create()
        return box
