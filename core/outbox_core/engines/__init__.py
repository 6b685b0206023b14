"""Where lanes run: in threads of the harvester, or in Spark's workers."""
