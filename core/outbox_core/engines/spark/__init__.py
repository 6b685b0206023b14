"""The Spark engine; the only importer of PySpark. Nothing here: the daemon that forks workers loads this."""
