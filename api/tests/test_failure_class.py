"""Classes of failures: read from the sentences with which records are parked."""

from __future__ import annotations

import pytest
from outbox_api.base.bounds import MESSAGE_TOO_LARGE, PermittedTopics, too_large, too_long
from outbox_api.seams.parking import FailureClass, failure_class


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (MESSAGE_TOO_LARGE, FailureClass.TOO_LARGE),
        (too_large(1 << 40, 1 << 20), FailureClass.TOO_LARGE),
        (too_long(1, 1 << 20) or "", FailureClass.TOO_LARGE),
        (PermittedTopics(["a*"]).refusal("UNKNOWN_TOPIC"), FailureClass.NOT_PERMITTED),
        (PermittedTopics().refusal("x.neli"), FailureClass.NOT_PERMITTED),
        (PermittedTopics().refusal("__consumer_offsets"), FailureClass.NOT_PERMITTED),
        ("after its transforms, the topic 'x.neli' is one that outbox itself uses", FailureClass.TRANSFORM),
        ("transform 'filter' raised KeyError (f.py, line 3)", FailureClass.TRANSFORM),
        ("the row has headers of different length", FailureClass.OTHER),
        ("", FailureClass.OTHER),
    ],
)
def test_a_reason_has_a_class(reason: str, expected: FailureClass) -> None:
    assert failure_class(reason) is expected
