"""The documents show the pictures that there are, each with a text for those who cannot see it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 150_000
"""Bytes of a picture: the repository keeps every one that was ever made."""


def test_every_picture_is_small_and_shown_with_a_text() -> None:
    shown = {
        target: text
        for page in DOCS.glob("*.md")
        for text, target in re.findall(r"!\[([^]]*)\]\((pictures/[^)]+)\)", page.read_text("utf-8"))
    }
    pictures = {str(each.relative_to(DOCS)): each.stat().st_size for each in (DOCS / "pictures").iterdir()}
    assert pictures
    assert set(shown) == set(pictures)
    assert all(shown.values()), "a picture without a text"
    assert max(pictures.values()) < LARGEST
