"""Packages whose modules are imported late offer their names as others do."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "from outbox_api import *; Stasher",
        "import outbox_api as package; dir(package).index('Stasher')",
        "from outbox_api.portable import *; PortableDialect",
        "import outbox_api.portable as package; dir(package).index('PortableDialect')",
    ],
)
def test_names_are_there_before_their_module_is_imported(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)
