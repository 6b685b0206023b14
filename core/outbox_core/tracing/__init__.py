"""Spans of deliveries, linked to the spans in which applications stashed the records (ADR 41).

Nothing here imports OpenTelemetry unless this process is to be traced.
"""
