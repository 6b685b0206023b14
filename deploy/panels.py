"""The kinds of panels that the dashboard has, built with Grafana's own library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
)
from grafana_foundation_sdk.builders import timeseries as timeseries_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from deploy.queries import Query

OPERATIONS = "runbook.md#"
"""The page on which the cures are."""
WIDTH = 24
"""The columns of a dashboard."""
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
Made = timeseries_builders.Panel | stat.Panel | statetimeline.Panel | heatmap.Panel


@dataclass(frozen=True, slots=True)
class Panel:
    """What every panel has.

    Attributes:
        title: Its title.
        about: What it shows, and what is healthy.
        unit: The unit of its values, by Grafana's name.
        queries: What it shows.
        page: The page and section that explain it, below the folder of documents.
        limit: The value from which on it is not healthy; ``None`` for none.
    """

    title: str
    about: str
    unit: str
    queries: Sequence[Query]
    page: str = "monitoring.md#the-metrics"
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel of one kind.

    Attributes:
        panel: What it shows.
        made: Its builder.
    """

    panel: Panel
    made: Made

    def complete(self, docs: str, number: int) -> Builder[models.Panel]:
        """Returns the panel with its number and its link; ``docs`` is the address of the documents."""
        return self.made.id(number).links([link("What it means", f"{docs}/{self.panel.page}")])


def link(title: str, address: str) -> dashboard.DashboardLink:
    """Returns a link that opens a new tab."""
    made = dashboard.DashboardLink(title).type(models.DashboardLinkType.LINK).url(address)
    return made.icon("doc").target_blank(True)


def curves(panel: Panel, columns: int, *, stacked: bool = False) -> Shown:
    """Returns a panel of curves over time, with a table of their last and greatest values below."""
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.TABLE).show_legend(True)
    legend = legend.placement(common_models.LegendPlacement.BOTTOM).calcs(["lastNotNull", "max"])
    made = timeseries_builders.Panel().legend(legend).min(0).fill_opacity(20 if stacked else 0)
    made.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    if stacked:
        made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    if panel.limit is not None:
        style = common.GraphThresholdsStyleConfig().mode(common_models.GraphTresholdsStyleMode.DASHED)
        made.thresholds_style(style)
    made.thresholds(_limits([("green", None), ("red", panel.limit)]))
    return _shown(made.height(8).span(columns), panel)


def figure(panel: Panel, *steps: tuple[str, float | None]) -> Shown:
    """Returns a panel with one figure for each outbox.

    Args:
        panel: What it shows.
        steps: Colours, and the value from which on each is shown; by default red from the panel's limit on.
    """
    made = stat.Panel().color_mode(common_models.BigValueColorMode.BACKGROUND).no_value("no data")
    made.graph_mode(common_models.BigValueGraphMode.NONE)
    made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    made.thresholds(_limits(steps or [("green", None), ("red", panel.limit)]))
    # The present value, or none: the last one of a range may be that of a process which has ended since.
    return _shown(made.height(4).span(WIDTH // 8), panel, instant=True)


def states(panel: Panel, columns: int, texts: Mapping[int, tuple[str, str]]) -> Shown:
    """Returns a panel with a strip over time for each series; ``texts``: value → its text and colour."""
    results = {
        str(value): models.ValueMappingResult(text=text, color=color)
        for value, (text, color) in texts.items()
    }
    made = statetimeline.Panel().merge_values(True).mappings([models.ValueMap(options=results)])
    made.show_value(common_models.VisibilityMode.NEVER).no_value("none")
    return _shown(made.height(8).span(columns), panel)


def spread(panel: Panel, columns: int) -> Shown:
    """Returns a panel that shows the buckets of a histogram over time."""
    made = heatmap.Panel().calculate(False).y_axis(heatmap.YAxisConfig().unit(panel.unit))
    made.show_tooltip().height(8).span(columns)
    return _shown(made, panel, prometheus_models.PromQueryFormat.HEATMAP)


def _shown(
    made: Made,
    panel: Panel,
    form: prometheus_models.PromQueryFormat = prometheus_models.PromQueryFormat.TIME_SERIES,
    *,
    instant: bool = False,
) -> Shown:
    made.title(panel.title).description(panel.about).unit(panel.unit).datasource(SOURCE)
    targets = [
        prometheus.Dataquery()
        .expr(each.expression)
        .legend_format(each.legend)
        .format(form)
        .datasource(SOURCE)
        for each in panel.queries
    ]
    for reference, each in zip(ascii_uppercase, targets, strict=False):
        (each.instant() if instant else each.range()).ref_id(reference)
    made.targets(list[Builder[Dataquery]](targets))
    return Shown(panel, made)


def _limits(steps: Sequence[tuple[str, float | None]]) -> dashboard.ThresholdsConfig:
    """Returns colours, each with the value from which on it is shown; the first is for all values below."""
    first = [models.Threshold(value=None, color=steps[0][0])]
    later = [models.Threshold(value=value, color=color) for color, value in steps[1:] if value is not None]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(first + later)
