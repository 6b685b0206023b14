"""Lanes at work: their I/O, their threads, and the groups that one process runs."""
