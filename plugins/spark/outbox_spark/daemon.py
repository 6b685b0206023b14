"""PySpark's daemon, which forks Python workers; it and the workers ignore the signals that end a service.

A service manager, like a terminal, signals all processes of a service at once. Workers must live until their
leader has drained their lanes and ends them. Spark itself ends a worker by SIGKILL, and the daemon by closing
its standard input. A worker whose daemon has ended notices that at its next report.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

SERVICE_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Runs PySpark's daemon."""
    drop_copies()
    from pyspark.daemon import manager  # noqa: PLC0415 - by the path above

    # Blocked and not ignored: that is inherited by workers, where PySpark sets these signals' handlers anew.
    signal.pthread_sigmask(signal.SIG_BLOCK, SERVICE_SIGNALS)
    manager()


def drop_copies() -> None:
    """Drops the zips of an installed PySpark from ``sys.path``.

    Spark puts them in front of the package itself. Python compiles a module from a zip at every start.
    """
    sys.path[:] = [entry for entry in sys.path if not is_copy(entry)]


def is_copy(entry: str) -> bool:
    """Tells whether an entry of ``sys.path`` is a zip inside an installed PySpark that is on the path."""
    package = Path(entry).parents[2:4]  # of …/pyspark/python/lib/pyspark.zip
    return (
        entry.endswith(".zip")
        and len(package) == 2  # noqa: PLR2004 - the package, and the folder that it is installed in
        and (package[0] / "daemon.py").is_file()
        and str(package[1]) in sys.path
    )


if __name__ == "__main__":
    main()
