"""Whether this process is traced, where its spans go, and how a lane's sender gets them.

A program that has given OpenTelemetry a tracer provider is traced by that one. Otherwise the standard
variables decide: ``OTEL_TRACES_EXPORTER`` switches traces on, and OpenTelemetry's SDK reads the others.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points, version
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from outbox_api import Sender, TransactionalSender

from outbox_core.tracing import conventions

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from outbox_core.tracing.spans import DeliverySpans

log = logging.getLogger("outbox.tracing")

_EXPORTER = "OTEL_TRACES_EXPORTER"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_CURE = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"

_setting_up = Lock()
_is_set_up = False


def tracer() -> Tracer | None:
    """Returns what makes this process's spans, or ``None`` if it is not traced.

    The first call sets OpenTelemetry up if the environment asks for it. What is wrong with that is one
    warning in the log, and no reason not to harvest.
    """
    _set_up()
    if "opentelemetry.trace" not in sys.modules:
        return None
    # Whoever asked for traces has imported the package already.
    from opentelemetry.trace import (  # noqa: PLC0415
        NoOpTracerProvider,
        ProxyTracerProvider,
        get_tracer_provider,
    )

    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None
    return provider.get_tracer("outbox", version("outbox-harvester"), schema_url=conventions.SCHEMA_URL)


def flush(seconds: float) -> None:
    """Has the spans that have ended exported, for at most so many seconds: a collector may be away."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    force_flush = getattr(trace and trace.get_tracer_provider(), "force_flush", None)
    if force_flush is not None:
        # Its own time limit is no limit for every exporter.
        thread = Thread(target=force_flush, name="flush-spans", daemon=True)
        thread.start()
        thread.join(seconds)


def wanted_exporters(variables: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the names of the exporters that the environment asks for, as entry points have them."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    names = [name.strip() for name in variables.get(_EXPORTER, "").split(",")]
    protocol = next((found for name in _PROTOCOLS if (found := variables.get(name, ""))), "http/protobuf")
    otlp = _OTLP.get(protocol.strip(), protocol)
    return [otlp if name == "otlp" else name for name in names if name and name != "none"]


def _set_up() -> None:
    global _is_set_up  # noqa: PLW0603 - as is the provider, which can be set once for each process
    with _setting_up:
        names = [] if _is_set_up else wanted_exporters()
        _is_set_up = True
        if not names:
            return
        try:
            _provide(names)
        except Exception as error:  # noqa: BLE001 - of the SDK, or of an exporter, whoever wrote it
            log.warning("not traced, though %s is set: %s: %s", _EXPORTER, type(error).__name__, error)


def _provide(names: list[str]) -> None:
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.trace import (  # noqa: PLC0415
            ProxyTracerProvider,
            get_tracer_provider,
            set_tracer_provider,
        )
    except ImportError:
        log.warning("not traced, though %s is set: OpenTelemetry's SDK is missing: %s", _EXPORTER, _CURE)
        return
    if not isinstance(get_tracer_provider(), ProxyTracerProvider):
        return  # the program, or whoever instruments it, has set one
    provider = TracerProvider()
    for name in names:
        found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
        if not found:
            log.warning("not traced to '%s' of %s, which is not installed: %s", name, _EXPORTER, _CURE)
            continue
        provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
        if isinstance(get_tracer_provider(), ProxyTracerProvider):
            set_tracer_provider(provider)  # once there is anywhere for spans to go


class LaneTracing:
    """Traces one lane, or does nothing: an untraced lane calls its sender directly."""

    def __init__(self, outbox: str, lane: int, token: int, system: str) -> None:
        self._system = system
        self._attributes: dict[str, str | int] = {
            conventions.OUTBOX: outbox,
            conventions.LANE: lane,
            conventions.TOKEN: token,
        }

    def sender(self, sender: Sender) -> Sender:
        """Returns the sender that the lane is to use in place of this one."""
        spans = self._spans()
        if spans is None:
            return sender
        from outbox_core.tracing.senders import TracedSender  # noqa: PLC0415 - imports OpenTelemetry

        return TracedSender(sender, spans)

    def transactional(self, sender: TransactionalSender) -> TransactionalSender:
        """Returns the sender that the lane is to use in place of this one."""
        spans = self._spans()
        if spans is None:
            return sender
        from outbox_core.tracing.senders import TracedTransactionalSender  # noqa: PLC0415 - likewise

        return TracedTransactionalSender(sender, spans)

    def _spans(self) -> DeliverySpans | None:
        making = tracer()
        if making is None:
            return None
        from outbox_core.tracing.spans import DeliverySpans  # noqa: PLC0415 - likewise

        return DeliverySpans(making, self._system, self._attributes)
