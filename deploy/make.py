"""Makes the rules of Prometheus and the dashboard of Grafana that lie beside this file.

``python -m deploy.make --docs https://wiki.example.com/outbox`` puts the address of your copy of the
documents into their links. A test compares the committed files with what this program makes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.alerts import rules
from deploy.dashboard import render

FOLDER = Path(__file__).parent
DOCS = "https://outbox.example/docs"
"""The address of the documents in the committed files: nobody's."""
NOTE = "# Made by `python -m deploy.make`: do not edit.\n"


def rules_text(data: Mapping[str, Any]) -> str:
    """Returns a file of rules as text."""
    return NOTE + yaml.safe_dump(dict(data), sort_keys=False, width=1000, allow_unicode=True)


def files(docs: str) -> dict[str, str]:
    """Returns path, relative to this folder → text of all files that are made."""
    return {"prometheus/outbox.rules.yaml": rules_text(rules(docs)), "grafana/outbox.json": render(docs)}


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(prog="python -m deploy.make", description=__doc__)
    parser.add_argument("--docs", default=DOCS, help="address of the folder docs/, for links")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder to write to (default: this one)")
    options = parser.parse_args()
    for path, text in files(options.docs.rstrip("/")).items():
        file = options.into / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
