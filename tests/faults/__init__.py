"""Injects real faults into real servers and harvester processes: ``python -m tests.faults``."""
