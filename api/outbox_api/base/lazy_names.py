"""Names of a package whose modules are imported when one of them is first asked for (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Returns a package's ``__getattr__``; ``dir`` and ``import *`` know the names, too.

    Args:
        package: The package.
        modules: Module → the names that are in it, with spaces between.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}
    there = vars(sys.modules[package])
    there["__all__"] = sorted(homes)
    there["__dir__"] = lambda: sorted({*there, *homes})

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        there[name] = value = getattr(import_module(homes[name]), name)
        return value

    return find
