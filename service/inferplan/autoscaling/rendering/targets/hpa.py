"""HorizontalPodAutoscaler (autoscaling/v2) and the Prometheus adapter's rules that serve its metrics."""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.policy import MissingMetricBehavior, SignalKind
from inferplan.autoscaling.rendering.behavior import KUBERNETES_OPTION, hpa_behavior
from inferplan.autoscaling.rendering.documents import Commented, header_lines, yaml_file
from inferplan.autoscaling.rendering.losses import concurrency_loss, drain_losses, shown_missing
from inferplan.autoscaling.rendering.metrics import pod_metric, pod_query
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import METRIC_NAME, Option, ResolvedOptions, name_options, one_of, optional
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.replicas import never_zero, replica_bounds
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.scale_target import SCALE_TARGET_OPTIONS, scale_target_reference
from inferplan.autoscaling.rendering.signals import SIGNAL_OPTIONS, RenderedSignal, rendered_signals
from inferplan.errors import InvalidInputError

_NAME_KEYS = {kind: f"{kind.value}_metric" for kind in SignalKind}


def quantity(value: float) -> str:
    """A Kubernetes quantity: whole numbers as they are, others in thousandths, the finest that an autoscaler reads."""
    thousandths = max(1, round(value * 1000))
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    policy = request.policy
    if "<<" in request.model_name:
        raise InvalidInputError.single("model_name", "holds <<, which the Prometheus adapter takes for a template")
    name = object_name(request, options)
    as_pods = options.text("metric_source") == "pods"
    bounds = replica_bounds(policy, can_run_ahead=not as_pods)
    signals, signal_losses = rendered_signals(request, options, ahead_replicas=bounds.ahead)
    floor, zero_losses = never_zero(policy, bounds, "an autoscaler of Kubernetes keeps one replica")
    behavior, behavior_losses = hpa_behavior(policy, options.text("kubernetes_version"))
    reference = scale_target_reference(request, options, name)
    spec = Commented(
        {
            "scaleTargetRef": reference,
            "minReplicas": floor,
            "maxReplicas": bounds.most,
            "metrics": [_metric(signal, options, as_pods) for signal in signals],
            "behavior": behavior,
        },
        {"minReplicas": bounds.floor_comment, "maxReplicas": bounds.most_comment},
    )
    document = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(name, options),
        "spec": spec,
    }
    header = header_lines(
        request,
        f"HorizontalPodAutoscaler. Nothing else may write the replicas of {reference['kind']} {reference['name']}: no "
        "ScaledObject, and no `replicas` in its manifest. prometheus-adapter-values.yaml serves its metrics.",
    )
    rules = yaml_file(
        "prometheus-adapter-values.yaml",
        header_lines(
            request, "Values of the Helm chart prometheus-adapter: the metrics that horizontalpodautoscaler.yaml reads."
        ),
        [{"rules": _adapter_rules(signals, options, as_pods)}],
    )
    losses = (
        *bounds.losses,
        *signal_losses,
        *zero_losses,
        *behavior_losses,
        *_missing_losses(request),
        *concurrency_loss(policy),
        *drain_losses(policy),
    )
    return Rendering((yaml_file("horizontalpodautoscaler.yaml", header, [document]), rules), losses)


def _missing_losses(request: RenderingRequest) -> list[RenderingLoss]:
    """Without a metric the autoscaler never lowers replicas; it knows no number to run instead."""
    policy = request.policy
    if policy.missing_metrics is MissingMetricBehavior.HOLD and policy.missing_metrics_replicas is None:
        return []
    return [
        RenderingLoss(
            "missing_metrics", f"{shown_missing(policy)}: replicas are held while a metric is missing, nothing else"
        )
    ]


def _is_pod_metric(signal: RenderedSignal, as_pods: bool) -> bool:
    on_pods = not signal.dialect.is_gateway and pod_metric(signal.dialect, signal.signal.kind) is not None
    return as_pods and signal.is_average and on_pods


def _metric_name(signal: RenderedSignal, options: ResolvedOptions) -> str:
    return options.text(_NAME_KEYS[signal.signal.kind]) or f"inferplan_{signal.signal.kind.value}"


def _metric(signal: RenderedSignal, options: ResolvedOptions, as_pods: bool) -> dict[str, Any]:
    value = quantity(signal.signal.target)
    kind = "AverageValue" if signal.is_average else "Value"
    field = "averageValue" if signal.is_average else "value"
    target = Commented({"type": kind, field: value}, {field: signal.comment})
    name = _metric_name(signal, options)
    if _is_pod_metric(signal, as_pods):
        return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def _adapter_rules(signals: list[RenderedSignal], options: ResolvedOptions, as_pods: bool) -> dict[str, Any]:
    """Pod metrics name the series and leave selection to the adapter; external ones hold the whole query."""
    custom, external = [], []
    for signal in signals:
        name = _metric_name(signal, options)
        series = f"{options.text('metric_prefix')}{pod_metric(signal.dialect, signal.signal.kind) or ''}"
        if _is_pod_metric(signal, as_pods):
            custom.append(
                {
                    "seriesQuery": f'{series}{{namespace!="",pod!=""}}',
                    "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
                    "name": {"as": name},
                    "metricsQuery": pod_query(signal.dialect, signal.signal.kind, "<<.Series>>{<<.LabelMatchers>>}"),
                }
            )
        else:
            external.append(
                {
                    "seriesQuery": _series_of(signal, options),
                    "resources": {"namespaced": False},
                    "name": {"as": name},
                    "metricsQuery": signal.query,
                }
            )
    return {key: rules for key, rules in (("custom", custom), ("external", external)) if rules}


def _series_of(signal: RenderedSignal, options: ResolvedOptions) -> str:
    """A series whose presence makes the adapter offer the metric."""
    dialect = signal.dialect
    prefix = "" if dialect.is_gateway else options.text("metric_prefix")
    known = dialect.liveness or dialect.running or dialect.ongoing
    return f"{prefix}{known}"


TARGET = Target(
    "hpa",
    "HorizontalPodAutoscaler (autoscaling/v2) and rules of the Prometheus adapter",
    (
        *name_options(),
        *SCALE_TARGET_OPTIONS,
        Option(
            "metric_source",
            "pods",
            "whether engine counts are metrics of pods or external ones",
            one_of("pods", "external"),
        ),
        *(
            Option(
                key,
                "",
                f"name under which the adapter serves {kind.value}; empty: inferplan_{kind.value}",
                optional(METRIC_NAME),
            )
            for kind, key in _NAME_KEYS.items()
        ),
        KUBERNETES_OPTION,
        *SIGNAL_OPTIONS,
    ),
    _render,
)
