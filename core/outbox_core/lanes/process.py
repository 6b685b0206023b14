"""A Python process for lanes, or for one stream of Spark, and nothing else."""

from __future__ import annotations

import gc
import sys


def dedicate_process(outboxes: int = 1) -> None:
    """Tunes this Python process for the records of so many outboxes and nothing else.

    The garbage collector runs more rarely: records are short-lived and have no reference cycles, so reference
    counting frees them. Lane threads run briefly and wait for each other, so Python switches between them
    every 0.5 ms instead of 5. Each thread that waits for its turn asks for it that often: where many do, as
    lanes of many outboxes, this would take more time than their work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    sys.setswitchinterval(min(0.0005 * outboxes, 0.005))
