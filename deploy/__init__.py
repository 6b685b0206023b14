"""Makes the files with which Prometheus and Grafana watch outboxes: ``python -m deploy.make``."""
