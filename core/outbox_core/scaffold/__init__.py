"""Writes the distribution of a new dialect, whose conformance suite says what to write next."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from outbox_sdk.registry import DISTRIBUTIONS, installation, installed

_TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "outbox_{name}/__init__.py": "package.py",
    "outbox_{name}/dialect.py": "dialect.py",
    "outbox_{name}/idiom.py": "idiom.py",
    "outbox_{name}/py.typed": "",
    "tests/test_{name}_conformance.py": "conformance.py",
}
"""What is written → the template that it is made from, if there is anything in it."""


def objection(name: str) -> str:
    """Says why a driver cannot be called ``name``, with the cure, or nothing."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        return (
            f"'{name}' cannot be the name of a driver and of a Python package: "
            "write small letters, digits and single underscores, such as my_db"
        )
    for driver in installed():
        if driver.name == name:
            return f"the driver '{name}' is there already, in {driver.distribution}; take another name"
    if name in DISTRIBUTIONS:
        return f"the driver '{name}' is that of {DISTRIBUTIONS[name]}: {installation(name)}"
    if find_spec(f"outbox_{name}"):
        return f"a Python package outbox_{name} is installed already; take another name"
    return ""


def distribution(name: str) -> str:
    """Returns the name of a driver's distribution, which is that of its folder too."""
    return f"outbox-{name.replace('_', '-')}"


def write(name: str, folder: Path) -> list[Path]:
    """Writes the distribution of the driver ``name`` into ``folder``, which must not exist.

    Returns:
        The files.

    Raises:
        OSError: The folder exists, or cannot be written.
    """
    words = {
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "variable": f"OUTBOX_TEST_{name.upper()}",
        "distribution": distribution(name),
    }
    templates = files(__name__) / "templates"
    folder.mkdir(parents=True)
    written = []
    for pattern, template in _TEMPLATES.items():
        path = folder / pattern.format(name=name)
        path.parent.mkdir(exist_ok=True)
        text = (templates / f"{template}.txt").read_text("utf-8") if template else ""
        path.write_text(Template(text).substitute(words), "utf-8")
        written.append(path)
    return written
