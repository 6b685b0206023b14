"""PySpark's daemon, which forks Python workers; it and the workers ignore the signals that end a service.

A service manager, like a terminal, signals all processes of a service at once. Workers must live until their
leader has drained their lanes and ends them. Spark itself ends a worker by SIGKILL, and the daemon by closing
its standard input. A worker whose daemon has ended notices that at its next report.
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
