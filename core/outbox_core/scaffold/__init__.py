"""Writes the distribution of a new driver, with its conformance suite."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from outbox_api.application.registry import DISTRIBUTIONS, Seam, installation, installed


@dataclass(frozen=True, slots=True)
class _Scaffold:
    """What a new driver of a seam begins with."""

    what: str  # what it is, for its description
    client: str  # what it may depend on beside outbox-api
    modules: Sequence[str]  # its modules beside __init__, each made from the template of its name


_SCAFFOLDS = {
    Seam.DIALECT: _Scaffold("A dialect", "the database's driver", ("dialect", "idiom")),
    Seam.ELECTOR: _Scaffold("An elector", "the coordinator's client", ("lease", "options")),
    Seam.PUBLISHER: _Scaffold("A publisher", "the broker's client", ("sender",)),
    Seam.ENGINE: _Scaffold("An engine", "what starts its processes", ("workers",)),
}


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


def write(seam: Seam, name: str, folder: Path) -> list[Path]:
    """Writes the distribution of the driver ``name`` into ``folder``, which must not exist."""
    scaffold = _SCAFFOLDS[seam]
    words = {
        "what": scaffold.what,
        "client": scaffold.client,
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "variable": f"OUTBOX_TEST_{name.upper()}",
        "distribution": distribution(name),
    }
    templates = files(__name__) / "templates"
    folder.mkdir(parents=True)
    written = []
    package = f"outbox_{name}"
    made_from = {
        "pyproject.toml": "pyproject.toml",
        "README.md": f"{seam}/README.md",
        f"{package}/__init__.py": f"{seam}/package.py",
        **{f"{package}/{module}.py": f"{seam}/{module}.py" for module in scaffold.modules},
        f"{package}/py.typed": "",
        f"tests/test_{name}_conformance.py": f"{seam}/conformance.py",
    }
    for place, template in made_from.items():
        path = folder / place
        path.parent.mkdir(exist_ok=True)
        text = (templates / f"{template}.txt").read_text("utf-8") if template else ""
        path.write_text(Template(text).substitute(words), "utf-8")
        written.append(path)
    return written
