"""The policy's signals as an autoscaler reads them: queries, thresholds, and the companion that a queue needs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from inferplan.autoscaling.policy import AutoscalingSignal, SignalKind, SignalOrigin
from inferplan.autoscaling.rendering.losses import shown_signal
from inferplan.autoscaling.rendering.metrics import (
    GATEWAY_DIALECTS,
    MetricDialect,
    SeriesSelector,
    engine_dialect,
    fleet_query,
    gateway_dialect,
)
from inferplan.autoscaling.rendering.options import (
    METRIC_PREFIX,
    Option,
    ResolvedOptions,
    one_of,
    optional,
    whole_number,
)
from inferplan.autoscaling.rendering.request import RenderingLoss, RenderingRequest
from inferplan.errors import InvalidInputError

COMPANION_RATIO = 0.8
"""Share of max_num_seqs at which a running companion asks for a replica where the policy has none; guides use 0.7 to
0.85."""

_COUNTS = (SignalKind.QUEUE_DEPTH, SignalKind.RUNNING, SignalKind.ONGOING, SignalKind.QUEUED_TOKENS)

SIGNAL_OPTIONS = (
    Option("gateway", "", "gateway that reports signals of origin gateway", one_of("", *GATEWAY_DIALECTS)),
    Option(
        "running_target",
        "",
        "running requests a replica for the companion of a queue signal that has none; empty: 0.8 of max_num_seqs",
        optional(whole_number(1, 1_000_000)),
    ),
    Option("metric_prefix", "", "what a collector puts before the engine's metric names", METRIC_PREFIX),
)


@dataclass(frozen=True, slots=True)
class RenderedSignal:
    """One signal with its query over the fleet; `is_average` if the autoscaler is to divide by replicas."""

    signal: AutoscalingSignal
    dialect: MetricDialect
    query: str
    is_average: bool
    comment: str

    @property
    def threshold(self) -> str:
        """The target in plain decimals."""
        return plain_number(self.signal.target)


def plain_number(value: float) -> str:
    """Decimals without an exponent and without trailing zeros."""
    text = f"{Decimal(f'{value:.6g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_companion(
    request: RenderingRequest, options: ResolvedOptions
) -> tuple[tuple[AutoscalingSignal, ...], tuple[RenderingLoss, ...]]:
    """The signals, with a running companion added where a queue signal stands without one.

    With the queue alone, an empty queue drives replicas to the floor under full batches.
    """
    signals = request.policy.signals
    queues = [signal for signal in signals if signal.kind in (SignalKind.QUEUE_DEPTH, SignalKind.QUEUED_TOKENS)]
    if not queues or any(_is_companion(signal) for signal in signals):
        return signals, ()
    slots = request.configuration.max_num_seqs
    limit = min(slots, request.policy.maximum_concurrency_per_replica or slots)
    given = options.text("running_target")
    if given and int(given) > slots:
        raise InvalidInputError.single(
            "options[running_target]",
            f"{given} is more than max_num_seqs {slots}, so that it would never fire; legal is at most {slots}",
            "CONTRADICTION",
        )
    target = float(given) if given else float(max(1, int(COMPANION_RATIO * limit)))
    origin = queues[0].origin
    why = "as the option says" if given else f"{COMPANION_RATIO:g} of {limit}; option running_target sets another"
    loss = RenderingLoss(
        "signals",
        f"the policy has a queue signal without a running companion, which drives full replicas to the floor when the "
        f"queue is empty; running {target:g} a replica is added ({why})",
    )
    return (*signals, AutoscalingSignal(SignalKind.RUNNING, target, per_replica=True, origin=origin)), (loss,)


def _is_companion(signal: AutoscalingSignal) -> bool:
    return signal.kind in (SignalKind.RUNNING, SignalKind.ONGOING) and signal.per_replica


def rendered_signals(
    request: RenderingRequest,
    options: ResolvedOptions,
    *,
    ahead_replicas: int = 0,
    value_targets: bool = True,
    read_at: MetricDialect | None = None,
    labels: tuple[tuple[str, str], ...] = (),
) -> tuple[list[RenderedSignal], list[RenderingLoss]]:
    """Every signal that the target can read, and a loss for each that it cannot.

    `ahead_replicas` times the target is added to averages, so that the autoscaler's quotient is that many replicas
    more. `value_targets` false: the autoscaler divides everything by replicas, so that latency has no place. `read_at`
    reads all signals at one gateway. Raises InvalidInputError where no signal is left.
    """
    signals, losses = with_companion(request, options)
    found: list[RenderedSignal] = []
    missing: list[RenderingLoss] = list(losses)
    for index, signal in enumerate(signals):
        dialect = read_at or _dialect_of(request, options, signal)
        rendered = _rendered(request, options, signal, dialect, labels or _usual_labels(request, options, dialect))
        problem = _problem(signal, rendered, dialect, value_targets=value_targets)
        if problem or rendered is None:
            missing.append(RenderingLoss(f"signals[{index}]", f"{shown_signal(signal)}: {problem}; it is left out"))
            continue
        found.append(rendered if not ahead_replicas else _ahead(rendered, ahead_replicas))
        if ahead_replicas and not rendered.is_average:
            missing.append(
                RenderingLoss(
                    "warm_replicas", f"{ahead_replicas} ahead of the load are not added to {signal.kind.value}"
                )
            )
    if not found:
        raise InvalidInputError.single(
            "policy.signals",
            "has no signal that this target can read; legal here is a count per replica such as queue_depth with "
            "running",
            "NOTHING_TO_SCALE_ON",
        )
    return found, missing


def _problem(
    signal: AutoscalingSignal, rendered: RenderedSignal | None, dialect: MetricDialect, *, value_targets: bool
) -> str:
    if rendered is None:
        return f"{dialect.key} reports no such metric"
    if not signal.per_replica and signal.kind in _COUNTS:
        return "a target of the whole fleet would multiply replicas by a ratio that does not settle"
    if not rendered.is_average and not value_targets:
        return "the autoscaler divides every metric by replicas, which a latency does not stand"
    return ""


def _rendered(
    request: RenderingRequest,
    options: ResolvedOptions,
    signal: AutoscalingSignal,
    dialect: MetricDialect,
    labels: tuple[tuple[str, str], ...],
) -> RenderedSignal | None:
    prefix = "" if dialect.is_gateway else options.text("metric_prefix")
    query = fleet_query(dialect, signal.kind, SeriesSelector(labels, prefix))
    if query is None:
        return None
    comments = [
        derivation.formula
        for index, stated in enumerate(request.policy.signals)
        if stated == signal
        for derivation in request.policy.derivations
        if derivation.field == f"signals[{index}].target"
    ]
    is_average = signal.kind is not SignalKind.TTFT_P95
    return RenderedSignal(signal, dialect, query, is_average, comments[0] if comments else "")


def _ahead(rendered: RenderedSignal, replicas: int) -> RenderedSignal:
    if not rendered.is_average:
        return rendered
    extra = plain_number(replicas * rendered.signal.target)
    return RenderedSignal(rendered.signal, rendered.dialect, f"{rendered.query} + {extra}", True, rendered.comment)


def _dialect_of(request: RenderingRequest, options: ResolvedOptions, signal: AutoscalingSignal) -> MetricDialect:
    if signal.origin is SignalOrigin.ENGINE:
        return engine_dialect(request.metric_dialect)
    if not options.text("gateway"):
        raise InvalidInputError.single(
            "options[gateway]",
            f"must be set, since the policy reads {signal.kind.value} at the gateway; legal: "
            f"{', '.join(GATEWAY_DIALECTS)}",
            "REQUIRED",
        )
    return gateway_dialect(options.text("gateway"))


def _usual_labels(
    request: RenderingRequest, options: ResolvedOptions, dialect: MetricDialect
) -> tuple[tuple[str, str], ...]:
    return (("namespace", options.text("namespace")), (dialect.model_label, request.model_name))


def requests_per_replica(
    signals: tuple[AutoscalingSignal, ...],
) -> tuple[float | None, list[RenderingLoss]]:
    """The target of an autoscaler that counts running and queued requests together, and what it cannot see.

    An ongoing target stands as it is; otherwise it is running plus queue, the count at which both would fire.
    """
    counts = {signal.kind: signal.target for signal in signals if signal.per_replica}
    ongoing = counts.get(SignalKind.ONGOING)
    if ongoing is None and SignalKind.RUNNING in counts:
        ongoing = counts[SignalKind.RUNNING] + counts.get(SignalKind.QUEUE_DEPTH, 0.0)
    used = (SignalKind.ONGOING,) if SignalKind.ONGOING in counts else (SignalKind.RUNNING, SignalKind.QUEUE_DEPTH)
    losses = []
    for index, signal in enumerate(signals):
        if signal.kind not in used or not signal.per_replica:
            reason = "only requests in flight are counted; it is left out"
        elif signal.kind is not SignalKind.ONGOING:
            reason = f"running and queued requests are counted together, with the target {ongoing:g} for both"
        else:
            continue
        losses.append(RenderingLoss(f"signals[{index}]", f"{shown_signal(signal)}: {reason}"))
    return ongoing, losses
