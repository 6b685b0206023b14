"""What the engine uses of PySpark beyond its documentation: a version that changes it fails here first."""

from __future__ import annotations

import inspect
from socketserver import BaseServer

from pyspark import SparkContext, accumulators, daemon, find_spark_home, java_gateway


def test_the_context_remembers_its_jvm_where_the_engine_makes_it_forget():
    """:func:`outbox_spark.application._forget` sets these."""
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        assert hasattr(SparkContext, name)
        assert f"SparkContext.{name}" in inspect.getsource(SparkContext)


def test_errors_of_accumulators_are_told_by_a_server_that_the_engine_silences():
    assert "self._accumulatorServer" in inspect.getsource(SparkContext)
    assert hasattr(BaseServer, "handle_error")
    assert "AccumulatorTCPServer" in inspect.getsource(accumulators)


def test_a_jvm_that_is_there_already_is_connected_to():
    source = inspect.getsource(java_gateway.launch_gateway)
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        assert name in source
    assert callable(find_spark_home._find_spark_home)


def test_workers_are_forked_by_a_function_of_the_daemon():
    assert callable(daemon.manager)
