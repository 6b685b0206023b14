"""Which harvester's name a log line carries."""

from __future__ import annotations

import logging
from threading import Thread

import pytest
from outbox_api.support.context_thread import ContextThread
from outbox_core.text.log_context import HarvesterFilter, log_as


@pytest.fixture
def names():
    """Returns the names that lines of this test carry, by what the lines say."""
    found: dict[str, str] = {}

    class Handler(logging.Handler):
        def emit(self, record):
            found[record.getMessage()] = record.harvester

    handler, log = Handler(), logging.getLogger(__name__)
    handler.addFilter(HarvesterFilter("default"))
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)


def say(text):
    logging.getLogger(__name__).warning(text)


def finish(thread):
    thread.start()
    thread.join()


def test_lines_of_two_harvesters_carry_their_names_in_all_their_threads(names):
    def harvest():
        say("harvest")
        finish(ContextThread(target=say, args=("lane",)))

    one = ContextThread(target=harvest)
    with log_as("one"):
        one.start()
        with log_as("two"):
            finish(ContextThread(target=say, args=("other lane",)))
        say("again")
    one.join()
    say("outside")
    assert names == {
        "harvest": "one",
        "lane": "one",
        "other lane": "two",
        "again": "one",
        "outside": "default",
    }


def test_threads_that_no_harvester_has_started_carry_the_default(names):
    with log_as("one"):
        finish(Thread(target=say, args=("stranger",)))
    assert names == {"stranger": "default"}
