"""What an entry of a journal is made of."""

from __future__ import annotations

from uuid import RFC_4122

import pytest
from outbox_api.portable.rows import fitting
from outbox_api.seams.journal import new_entry_id


def test_a_later_id_is_greater_and_none_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [1_700_000_000_000_000_000 + step for step in (0, 300, 999_999, 1_000_000, 10**9, 10**18)]
    left = iter(moments)
    monkeypatch.setattr("time.time_ns", lambda: next(left))
    ids = [new_entry_id() for _ in moments]
    assert ids == sorted(ids)
    assert [str(each) for each in ids] == sorted(map(str, ids)), "as texts, too"
    assert {(each.version, each.variant) for each in ids} == {(7, RFC_4122)}
    monkeypatch.setattr("time.time_ns", lambda: moments[0])
    assert len({new_entry_id() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("text", "encoding", "found"),
    [
        ("retry", "utf-8", "retry"),
        ("", "utf-8", ""),
        ("ä" * 6, "utf-8", "ä" * 5),
        ("123456789ä", "utf-8", "123456789"),
        ("🌍🌍🌍", "utf-8", "🌍🌍"),
        ("\0\0\0\0\0\0", "utf-8", r"\0" * 5),
        ("\udc80", "utf-8", r"\udc80"),
        ("ä", "ascii", r"\xe4"),
    ],
)
def test_a_text_is_made_to_fit_ten_bytes_without_half_a_character(
    text: str, encoding: str, found: str
) -> None:
    assert fitting(text, 10, encoding) == found
