"""Measures outbox and its peers side by side, on servers of its own: ``python -m bench.compare --help``.

Modules, from the bottom up: ``servers`` (PostgreSQL, Kafka, a place for each candidate), ``candidates``, ``peers``
and ``loops`` (what is measured), ``backlog`` and ``traffic`` (what it is measured with), ``meter`` (CPU, WAL,
statements, memory), ``results`` (the dated file), one module for each group of tables, ``report`` and ``plot``.
"""
