"""Prometheus recording rules of the signals, and alerts on the objectives and on missing metrics."""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.policy import SignalKind
from inferplan.autoscaling.rendering.documents import Commented, header_lines, yaml_file
from inferplan.autoscaling.rendering.losses import policy_losses
from inferplan.autoscaling.rendering.metrics import (
    MetricDialect,
    SeriesSelector,
    engine_dialect,
    fleet_query,
    latency_quantile,
    objective_histograms,
    per_pod,
)
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import (
    METRIC_PREFIX,
    Option,
    ResolvedOptions,
    matching,
    name_options,
    one_of,
)
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.sizing.workload import Objective

_SEVERITY = "warning"


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    dialect = engine_dialect(request.metric_dialect)
    name = object_name(request, options)
    labels = (("namespace", options.text("namespace")), (dialect.model_label, request.model_name))
    selector = SeriesSelector(labels, options.text("metric_prefix"))
    alerts, losses = _objective_alerts(request, options, dialect, selector)
    groups = [
        {"name": f"inferplan-{name}-records", "rules": _records(request, dialect, selector, name)},
        {"name": f"inferplan-{name}-alerts", "rules": [*alerts, *_missing_alerts(options, dialect, selector, name)]},
    ]
    document: dict[str, Any] = {"groups": groups}
    if options.text("format") == "prometheus-rule":
        document = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": metadata(name, options),
            "spec": document,
        }
    losses += policy_losses(request.policy, (), "rules record and alert, they scale nothing; render a scaler too")
    header = header_lines(request, "Recording rules of the signals, alerts on the objectives.")
    return Rendering((yaml_file("prometheus-rules.yaml", header, [document]),), tuple(losses))


def _records(
    request: RenderingRequest, dialect: MetricDialect, selector: SeriesSelector, name: str
) -> list[dict[str, Any]]:
    """The signals per replica, and the P95 of TTFT; every rule gives one series."""
    labels = {"deployment": name}
    rules: list[dict[str, Any]] = []
    replicas = _replicas(dialect, selector)
    for kind, record in (
        (SignalKind.QUEUE_DEPTH, "inferplan:queue_requests:per_replica"),
        (SignalKind.RUNNING, "inferplan:running_requests:per_replica"),
        (SignalKind.KV_CACHE_RATIO, "inferplan:kv_cache_ratio:per_replica"),
    ):
        query = fleet_query(dialect, kind, selector)
        if query is not None:
            targets = [signal.target for signal in request.policy.signals if signal.kind is kind]
            rules.append(
                Commented(
                    {"record": record, "expr": f"{query} / {replicas}", "labels": labels},
                    {"record": f"target {targets[0]:g}" if targets else ""},
                )
            )
    if dialect.ttft_histogram:
        query = latency_quantile((dialect.ttft_histogram,), 95.0, selector)
        rules.append({"record": "inferplan:ttft_seconds:p95", "expr": query, "labels": labels})
    return rules


def _replicas(dialect: MetricDialect, selector: SeriesSelector) -> str:
    """Pods that report, counted once each whatever ranks they have."""
    return f"count(count by (pod) ({selector.of(dialect.running or '')}))"


def _objective_alerts(
    request: RenderingRequest, options: ResolvedOptions, dialect: MetricDialect, selector: SeriesSelector
) -> tuple[list[dict[str, Any]], list[RenderingLoss]]:
    alerts, losses = [], []
    for index, objective in enumerate(request.objectives):
        histograms = objective_histograms(dialect, objective.metric)
        if not histograms:
            losses.append(
                RenderingLoss(f"objectives[{index}]", f"{objective.label}: {dialect.key} reports no such histogram")
            )
            continue
        if objective.traffic_class_id:
            losses.append(
                RenderingLoss(
                    f"objectives[{index}]",
                    f"{objective.label}: engines do not know traffic classes; all traffic is judged",
                )
            )
        alerts.append(
            _objective_alert(objective, latency_quantile(histograms, objective.percentile, selector), options)
        )
    return alerts, losses


def _objective_alert(objective: Objective, query: str, options: ResolvedOptions) -> dict[str, Any]:
    words = "".join(part.capitalize() for part in objective.metric.value.split("_"))
    bound = f"{objective.maximum_seconds:.10g}"
    return {
        "alert": f"Inferplan{words}ObjectiveMissed",
        "expr": f"({query}) > {bound}",
        "for": options.text("alert_for"),
        "labels": {"severity": _SEVERITY, "percentile": f"{objective.percentile:g}"},
        "annotations": {"summary": f"{objective.label} is {{{{ $value | humanizeDuration }}}}, above {bound} s"},
    }


def _missing_alerts(
    options: ResolvedOptions, dialect: MetricDialect, selector: SeriesSelector, name: str
) -> list[dict[str, Any]]:
    return [
        {
            "alert": "InferplanMetricsMissing",
            "expr": f"absent({per_pod(dialect, selector.of(metric))})",
            "for": options.text("alert_for"),
            "labels": {"severity": _SEVERITY, "metric": metric},
            "annotations": {"summary": f"No replica of {name} reports {metric}: the autoscaler is blind"},
        }
        for metric in (dialect.waiting, dialect.running)
        if metric is not None
    ]


TARGET = Target(
    "prometheus",
    "Prometheus recording and alert rules",
    (
        *name_options(),
        Option("format", "rules", "a rule file, or a PrometheusRule object", one_of("rules", "prometheus-rule")),
        Option(
            "alert_for",
            "5m",
            "how long an objective is missed before it alerts",
            matching(r"[1-9][0-9]{0,4}[smh]", "such as 5m"),
        ),
        Option("metric_prefix", "", "what a collector puts before the engine's metric names", METRIC_PREFIX),
    ),
    _render,
)
