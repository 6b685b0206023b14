"""A demonstration with real servers: two harvesters, an application, a killed leader, and an audit."""
