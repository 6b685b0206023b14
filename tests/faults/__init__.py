"""Real faults against real servers and harvester processes, over and over: ``python -m tests.faults``."""
