"""What an index shows of each distribution besides its ``pyproject.toml``; every build calls it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parents[1]
HOME = os.environ.get("OUTBOX_HOME", "https://outbox.example")
"""Where the files of the repository are read: a release names it."""
CLASSIFIERS = [
    "Development Status :: 4 - Beta",
    "Intended Audience :: Developers",
    "Operating System :: POSIX",
    *(f"Programming Language :: Python :: 3{minor}" for minor in ("", " :: Only", ".11", ".12", ".13")),
    "Topic :: Database",
    "Topic :: System :: Distributed Computing",
    "Typing :: Typed",
]
KEYWORDS = ["outbox", "transactional outbox", "kafka"]
LINK = re.compile(r"^```.*?^```|\]\((?!\w+:)([^)\s]+)\)", re.DOTALL | re.MULTILINE)
"""A link within the repository, or a block, in which nothing is a link."""


class IndexPage(MetadataHookInterface):  # type: ignore[misc]  # only builds have hatchling
    """Adds page, addresses, classifiers and keywords; those of one distribution are options of the hook."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds what is the same for all, with links that lead to ``HOME``: an index has no other files."""
        page = Path(self.root, "README.md")
        here = page.relative_to(ROOT).as_posix()

        def absolute(link: re.Match[str]) -> str:
            if not link[1]:
                return link[0]
            path = here + link[1] if link[1].startswith("#") else normpath(f"{here}/../{link[1]}")
            return f"]({HOME}/{path})"

        text = LINK.sub(absolute, page.read_text("utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {
            "Homepage": HOME,
            "Documentation": f"{HOME}/{here}",
            "Changelog": f"{HOME}/CHANGELOG.md",
        }
        metadata["classifiers"] = [*CLASSIFIERS, *self.config.get("classifiers", ())]
        metadata["keywords"] = [*KEYWORDS, *self.config.get("keywords", ())]
