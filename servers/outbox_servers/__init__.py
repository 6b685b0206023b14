"""Real servers for tests, demonstrations and benchmarks, with pytest fixtures.

The classes of :mod:`outbox_servers.services` start servers. :mod:`outbox_servers.finding` chooses a server:
one that the environment names, an embedded one, a local installation, or a container.
"""
