"""Makes run events of the events of a harvest: a run is one leadership."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import version

import requests
from openlineage.client import event_v2 as run_events
from openlineage.client import facet_v2 as facets
from openlineage.client.event_v2 import RunState
from openlineage.client.transport.http import HttpConfig, HttpTransport, TokenProvider
from outbox_api import DriverError, HarvestEvent, OutboxError, present_text
from outbox_api.portable.sources import COLUMNS

from outbox_openlineage.options import OpenLineageOptions

_STATES = {
    "LeaderAcquired": RunState.START,
    "MeterRead": RunState.RUNNING,
    "LeaderRevoked": RunState.COMPLETE,
    "LeaderFenced": RunState.ABORT,
}
_EVENT_REFUSED = {400, 413, 415, 422}
"""Answers that are about the event; with others the server may take the same event later."""


class _ApiKey(TokenProvider):
    """Reads the key anew for each event, as its file may be replaced."""

    def __init__(self, options: OpenLineageOptions) -> None:
        super().__init__({})
        self._options = options

    def get_bearer(self) -> str | None:
        key = self._options.api_key
        return None if key is None else f"Bearer {present_text(key)}"


class Lineage:
    """The listener ``openlineage``."""

    events: Collection[str] = _STATES.keys()

    def __init__(self, options: OpenLineageOptions) -> None:
        self._options = options
        run_events.set_producer(f"pkg:pypi/outbox-openlineage@{version('outbox-openlineage')}")
        base = options.url.rstrip("/") + "/"
        self._transport = HttpTransport(
            HttpConfig(base, options.endpoint, options.timeout, auth=_ApiKey(options), retry={"total": 0})
        )
        self._run = ""  # its id; empty between two leaderships
        self._told = 0.0  # when it was told of last

    def handle(self, happened: HarvestEvent) -> None:
        """Sends a run event.

        Raises:
            DriverError: The server is away or refuses it.
        """
        state, at = _STATES[happened.event], happened.at.timestamp()
        if state is RunState.START:
            self._run = str(happened.fields["leader_id"])
        if not self._run or (state is RunState.RUNNING and at < self._told + self._options.interval):
            return  # a hand-over may end in both LeaderFenced and LeaderRevoked
        self._send(self._event(happened, state))
        self._told = at
        if state in (RunState.COMPLETE, RunState.ABORT):
            self._run = ""

    def _send(self, event: run_events.RunEvent) -> None:
        try:
            self._transport.emit(event)
        except (requests.RequestException, OutboxError) as error:
            response = getattr(error, "response", None)
            code = 0 if response is None else response.status_code
            why = f"HTTP {code}" if code else type(error).__name__
            raise DriverError(f"{self._options.url}: {why}", retryable=code not in _EVENT_REFUSED) from None

    def _event(self, happened: HarvestEvent, state: RunState) -> run_events.RunEvent:
        error, rows, topics = happened.fields.get("error"), happened.purged, self._options.outputs
        why = error or happened.fields.get("reason")
        about = {"errorMessage": facets.error_message_run.ErrorMessageRunFacet(why, "PYTHON")} if why else {}
        streams = facets.job_type_job.JobTypeJobFacet("STREAMING", "OUTBOX", "JOB")
        columns = [facets.schema_dataset.SchemaDatasetFacetFields(name) for name in COLUMNS]
        read = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rows)
        table = run_events.InputDataset(
            *self._options.dataset(),
            {"inputStatistics": read},
            facets={"schema": facets.schema_dataset.SchemaDatasetFacet(columns)},
        )
        written = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows)
        # How many records went to which of several topics is not known.
        counted = {"outputStatistics": written} if len(topics) == 1 else {}
        return run_events.RunEvent(
            eventType=RunState.FAIL if error else state,
            eventTime=happened.at.isoformat(),
            run=run_events.Run(self._run, {**about}),
            job=run_events.Job(self._options.namespace, happened.outbox, {"jobType": streams}),
            inputs=[table],
            outputs=[run_events.OutputDataset(*topic, {**counted}) for topic in topics],
        )
