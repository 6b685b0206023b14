"""Libraries that come with extras of the distribution, and are imported only where they are asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from outbox_sdk.errors import ConfigError

_LIBRARIES = frozenset({"opentelemetry"})


class MissingLibrary(ConfigError):  # noqa: N818 - reads as what happened, like its siblings
    """A library is not installed that the configuration or the environment asks for.

    Attributes:
        what: What asks for it, and what is missing.
        cure: How to install it.
    """

    def __init__(self, what: str, cure: str) -> None:
        super().__init__(f"{what}: {cure}")
        self.what = what
        self.cure = cure


@contextmanager
def needs(extra: str, why: str) -> Iterator[None]:
    """Imports in the block need the libraries of an extra.

    Raises:
        MissingLibrary: One of them is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] not in _LIBRARIES:
            raise
        raise MissingLibrary(
            f"{why}, but {missing} is not installed",
            f"install outbox-core with the extra '{extra}': in a clone of outbox, beside what is installed, "
            f"pip install './core[{extra}]'",
        ) from error
