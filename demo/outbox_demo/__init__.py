"""The demonstration of outbox on real servers: two harvesters, an application, a killed leader, an audit."""
