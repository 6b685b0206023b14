"""The HTTP server of a harvester; imported only where the configuration asks for one."""
