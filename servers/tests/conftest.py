"""Fixtures for tests of the services."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user can reach.

    pytest makes its folders for their owner alone, and root runs database servers as another user.
    """
    for each in (tmp_path, *tmp_path.parents):
        if not each.stat().st_mode & 0o077:
            each.chmod(0o755)
    return tmp_path
