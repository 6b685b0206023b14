"""Durations as Go writes them, and days."""

import pytest
from outbox_core.text.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("10ms", 0.01),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("7d12h", 648_000.0),
        ("100us", 0.0001),
        ("100µs", 0.0001),
        ("100\u03bcs", 0.0001),
        ("5ns", 5e-9),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("1h2m3s4ms", 3723.004),
        ("0", 0.0),
        ("0s", 0.0),
        ("876000h", 3.1536e9),
    ],
)
def test_what_go_reads(text: str, seconds: float):
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["", "5", "-1s", "1 s", "1w", "s", "1s ", "1S", "1m30", "1e3s", ".s", "+1s"])
def test_what_is_no_duration(text: str):
    with pytest.raises(ValueError, match="expected a duration such as 500ms, 5s or 1m30s"):
        parse_duration(text)


def test_longer_than_a_hundred_years():
    with pytest.raises(ValueError, match="a hundred years"):
        parse_duration("876000h1s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "0.4ms"),
        (0.25, "250ms"),
        (5, "5s"),
        (12.34, "12.3s"),
        (125, "2m05s"),
        (11400, "3h10m"),
    ],
)
def test_how_people_read_them(seconds: float, text: str):
    assert format_duration(seconds) == text
