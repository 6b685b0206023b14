"""PySpark's daemon, which forks Python workers, and the workers too: deaf to what ends a service.

A service manager tells all processes of a service to end at once, as a terminal does. Workers have to live on
until their leader has drained their lanes; it ends them then. Spark itself ends a worker by SIGKILL, and the
daemon by closing its standard input. A worker that has lost its daemon learns it at its next beat.
"""

from __future__ import annotations

import signal

from pyspark.daemon import manager

SERVICE_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Runs PySpark's daemon."""
    # Blocked and not ignored: that is inherited by workers, where PySpark sets these signals' handlers anew.
    signal.pthread_sigmask(signal.SIG_BLOCK, SERVICE_SIGNALS)
    manager()


if __name__ == "__main__":
    main()
