"""The ways to harvest an outbox, each in its simplest honest form, on the same histories.

``history`` generates histories and finds the smallest one with an anomaly; ``world`` executes them on a real
PostgreSQL and a real broker; ``judge`` says what a consumer saw. The methods are in ``offsets``, ``heads``,
``windows``, ``tailing``, ``dirty`` and ``marking``; ``product`` is this project's harvester.
"""
