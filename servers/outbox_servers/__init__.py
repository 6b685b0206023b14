"""Real servers for tests, demonstrations and benchmarks, and pytest's fixtures of them.

Start one with a class of :mod:`outbox_servers.services`, or have :mod:`outbox_servers.finding` look for one:
in the environment, embedded, local, or in Docker.
"""
