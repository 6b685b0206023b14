"""Measures outbox and its peers side by side, on servers of its own; ``python -m bench.compare --help``.

Modules, from the bottom up: ``databases``; ``servers`` (a database, Kafka, a place for each candidate);
``candidates``, ``peers`` and ``loops`` (what is measured), all in the ``registry``; ``backlog`` and
``traffic`` (the work); ``meter`` (CPU, WAL, statements, memory); ``results`` (the dated file) and ``bench``
(rounds); ``drain``, ``steady``, ``standing`` and ``resident`` (how things are measured); ``tables``;
``report`` and ``plot``.
"""
