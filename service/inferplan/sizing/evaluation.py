"""What a fleet of equal replicas does under a workload, by simulation, with a verdict on every objective.

A verdict is given only where the percentile's confidence interval clears the objective. Otherwise the simulation is
extended, and past its bound the verdict is "too close to call". A fleet whose queue grows without bound fails every
objective that the queue enters, whatever the percentile of a run that had to end says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inferplan.catalog import Accelerator, EngineRelease, ModelArchitecture
from inferplan.errors import CancelledError, InvalidInputError
from inferplan.simulation import (
    Cancellation,
    EngineParameters,
    Fleet,
    LatencyObjective,
    LatencyReport,
    Metric,
    Router,
    Saturation,
    SimulationOutcome,
    StepTimeCoefficients,
    Verdict,
    assess_saturation,
    requests_for_interval,
    simulate_closed_loop,
    simulate_fleet,
)
from inferplan.simulation.outcome import Ending, ReplicaTotals
from inferplan.simulation.step_time import step_seconds
from inferplan.sizing.efficiency import EfficiencyCoefficients
from inferplan.sizing.memory import MemoryEstimate
from inferplan.sizing.performance import (
    LatencyPercentiles,
    ObjectiveVerdict,
    Outcome,
    PercentileValue,
    Performance,
)
from inferplan.sizing.step_time_model import step_time_coefficients
from inferplan.sizing.traffic_requests import (
    closed_loop_requests,
    is_closed_loop,
    open_loop_requests,
    total_requests_per_second,
)
from inferplan.sizing.workload import LatencyMetric, Objective, TrafficClass, Workload

REPORTED_PERCENTILES = (50.0, 90.0, 95.0, 99.0)

FEWEST_REQUESTS = 1000
EXTENSION_FACTOR = 4
LONGEST_EXTENSION = 64
"""A run is extended to at most this many times its first length before it is too close to call."""

MAXIMUM_REQUESTS = 2_000_000
MEASURED_SHARE = 0.9
"""The first tenth of a run, while an empty fleet fills up, is not measured."""

STAYS_PER_RUN = 60.0
"""A run lasts at least this many times the mean stay of a request, or its verdict is not given.

Requests that are in the system together wait for one another, so a run of few stays is one observation and not
thousands, and its interval is too narrow. Five replicas of the worked example fail; runs of 12 stays called them good
for one seed in eight, runs of 60 stays for one in forty, which is what a 95 % interval promises."""

LENGTHENING_SLACK = 1.1

UNLOADED_STAYS_IN_FIRST_RUN = 20.0

CLEARLY_BROKEN_RATIO = 1.5
"""A percentile beyond this many times its bound in a first, short run needs no longer one."""

REQUESTS_PER_CLIENT = 10
"""Of a closed loop, as benchmarks are commonly run."""

_QUEUED_METRICS = (LatencyMetric.TTFT, LatencyMetric.END_TO_END, LatencyMetric.QUEUE_WAIT)


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """What the simulator needs of one replica."""

    coefficients: StepTimeCoefficients
    engine: EngineParameters
    front_end_seconds: float


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """How simulations are run.

    `exact_requests` plays just so many and never extends a run; None plays what the percentiles need, at most
    `maximum_requests`. `progress` gets the share that is done, 0 to 1, between runs.
    """

    seed: int = 1
    router: Router = Router.LEAST_OUTSTANDING
    maximum_requests: int | None = None
    exact_requests: int | None = None
    cancellation: Cancellation | None = None
    progress: Callable[[float], None] | None = None


@dataclass(frozen=True, slots=True)
class FleetEvaluation:
    """What came of one fleet size. `holds` is None where it is too close to call."""

    performance: Performance
    verdicts: tuple[ObjectiveVerdict, ...]
    holds: bool | None
    saturated: bool
    first_broken_after_seconds: float | None
    simulated_requests: int


def replica_model(
    served: ModelArchitecture,
    accelerator: Accelerator,
    release: EngineRelease,
    memory: MemoryEstimate,
    efficiency: EfficiencyCoefficients,
) -> ReplicaModel:
    """The replica whose memory was estimated, as the simulator takes it.

    The KV cache is taken in tokens that every layer keeps; layers with a window keep fewer, so that it is a cautious
    figure.
    """
    configuration = memory.configuration
    coefficients = step_time_coefficients(
        served, accelerator, configuration.parallelism, configuration.kv_precision, efficiency
    )
    engine = EngineParameters(
        maximum_sequences=min(configuration.max_num_seqs, configuration.max_num_batched_tokens),
        maximum_batched_tokens=configuration.max_num_batched_tokens,
        kv_blocks=max(1, memory.kv_blocks),
        block_tokens=memory.kv_block_tokens,
        chunked_prefill=release.defaults.chunked_prefill,
        maximum_context_tokens=configuration.max_model_len_tokens,
    )
    return ReplicaModel(coefficients, engine, efficiency.front_end_seconds)


def evaluate_fleet(
    replica: ReplicaModel,
    workload: Workload,
    objectives: tuple[Objective, ...],
    replicas: int,
    settings: EvaluationSettings,
    replicas_down: int = 0,
) -> FleetEvaluation:
    """Play the workload on `replicas`, of which `replicas_down` do not serve, until every verdict is clear.

    Raises CancelledError if the run was cancelled.
    """
    serving = replicas - replicas_down
    count, bound = _run_lengths(replica, workload, objectives, settings)
    while True:
        outcome = _play(replica, workload, serving, settings, count)
        report = LatencyReport(outcome, replica.front_end_seconds)
        saturation = assess_saturation(outcome)
        saturated = bool(saturation and saturation.saturated) or outcome.ending is not Ending.COMPLETED
        verdicts = tuple(_verdict(report, objective, saturated) for objective in objectives)
        needed = _requests_for_stays(report, count)
        if count >= bound or outcome.requests.count < count or _is_hopeless(verdicts, saturated):
            break
        unclear = any(verdict.outcome is Outcome.TOO_CLOSE_TO_CALL for verdict in verdicts)
        fails = any(verdict.outcome is Outcome.FAILS for verdict in verdicts)
        if needed <= count and (fails or not unclear):
            break
        count = min(bound, max(needed, count * EXTENSION_FACTOR if needed <= count else 0))
    unclear = any(verdict.outcome is Outcome.TOO_CLOSE_TO_CALL for verdict in verdicts)
    failed = saturated or any(verdict.outcome is Outcome.FAILS for verdict in verdicts)
    # A recorded trace, or a number of requests that was asked for, is all that there is to judge by.
    too_short = needed > count and count >= bound and settings.exact_requests is None
    return FleetEvaluation(
        performance=_performance(report, workload, objectives, serving, saturation, saturated),
        verdicts=verdicts,
        holds=False if failed else None if unclear or too_short else True,
        saturated=saturated,
        first_broken_after_seconds=_first_broken(report, verdicts),
        simulated_requests=outcome.requests.count,
    )


def _is_hopeless(verdicts: tuple[ObjectiveVerdict, ...], saturated: bool) -> bool:
    """Whether a longer run could only say the same: the queue grows, or a percentile is far beyond its bound."""
    return saturated or any(
        verdict.outcome is Outcome.FAILS
        and verdict.predicted_seconds > CLEARLY_BROKEN_RATIO * verdict.objective.maximum_seconds
        for verdict in verdicts
    )


def _requests_for_stays(report: LatencyReport, count: int) -> int:
    """Requests of a run of STAYS_PER_RUN mean stays at this run's rate; 0 for a closed loop, whose clients wait."""
    outcome = report.outcome
    mean_stay = report.mean(Metric.END_TO_END)
    if not outcome.open_loop or mean_stay is None or not math.isfinite(mean_stay):
        return 0
    duration = float(outcome.arrival_seconds[-1] - outcome.arrival_seconds[0])
    needed = math.ceil(count * STAYS_PER_RUN * mean_stay / duration) if duration > 0 else 0
    # The mean stay of a longer run is a little different; without slack a run would be lengthened by a few requests.
    return needed if needed <= count else math.ceil(needed * LENGTHENING_SLACK)


def _run_lengths(
    replica: ReplicaModel, workload: Workload, objectives: tuple[Objective, ...], settings: EvaluationSettings
) -> tuple[int, int]:
    """Requests of the first run, and of the longest that it may be extended to."""
    if settings.exact_requests is not None:
        return settings.exact_requests, settings.exact_requests
    count = first_run_requests(replica, workload, objectives)
    bound = min(settings.maximum_requests or MAXIMUM_REQUESTS, count * LONGEST_EXTENSION)
    return min(count, bound), bound


def first_run_requests(replica: ReplicaModel, workload: Workload, objectives: tuple[Objective, ...]) -> int:
    """Requests of the shortest run: enough for every interval, and for the fleet to fill up long before its end."""
    percentiles = {*REPORTED_PERCENTILES, *(objective.percentile for objective in objectives)}
    needed = max(requests_for_interval(percentile) for percentile in percentiles) / MEASURED_SHARE
    if is_closed_loop(workload):
        clients = sum(traffic.concurrency or 0 for traffic in workload.traffic_classes)
        return math.ceil(max(needed, clients * REQUESTS_PER_CLIENT))
    shares = [(traffic.requests_per_second or 0.0) for traffic in workload.traffic_classes]
    smallest_share = min(shares) / sum(shares)
    stay = UNLOADED_STAYS_IN_FIRST_RUN * _longest_stay_seconds(replica, workload) * total_requests_per_second(workload)
    return math.ceil(max(FEWEST_REQUESTS, needed / smallest_share, stay))


def _longest_stay_seconds(replica: ReplicaModel, workload: Workload) -> float:
    """Longest of the classes' mean stays on an idle replica: a prefill, then one step a token."""
    return max(_stay_seconds(replica, traffic) for traffic in workload.traffic_classes)


def _stay_seconds(replica: ReplicaModel, traffic: TrafficClass) -> float:
    context = max(1, round(traffic.mean_input_tokens))
    step = float(step_seconds(replica.coefficients.as_array(), 1, 1, context, context, 0.0, 0.0))
    prefill = context * replica.coefficients.compute_seconds_per_token
    return prefill + traffic.mean_output_tokens * step


def _play(
    replica: ReplicaModel, workload: Workload, serving: int, settings: EvaluationSettings, count: int
) -> SimulationOutcome:
    if is_closed_loop(workload):
        clients = sum(traffic.concurrency or 0 for traffic in workload.traffic_classes)
        requests = closed_loop_requests(workload, settings.seed, max(1, math.ceil(count / serving)))
        outcome = simulate_closed_loop(
            replica.coefficients,
            replica.engine,
            requests,
            max(1, math.ceil(clients / serving)),
            cancellation=settings.cancellation,
        )
    else:
        outcome = simulate_fleet(
            replica.coefficients,
            replica.engine,
            open_loop_requests(workload, settings.seed, count),
            Fleet(serving, settings.router),
            seed=settings.seed,
            cancellation=settings.cancellation,
        )
    if outcome.ending is Ending.CANCELLED:
        raise CancelledError("the simulation was cancelled")
    return outcome


def _verdict(report: LatencyReport, objective: Objective, saturated: bool) -> ObjectiveVerdict:
    result = report.judge(
        LatencyObjective(
            Metric(objective.metric.value), objective.percentile, objective.maximum_seconds, objective.traffic_class_id
        )
    )
    outcome = {
        Verdict.HOLDS: Outcome.HOLDS,
        Verdict.BREAKS: Outcome.FAILS,
        Verdict.UNCLEAR: Outcome.TOO_CLOSE_TO_CALL,
    }[result.verdict]
    if saturated and objective.metric in _QUEUED_METRICS:
        outcome = Outcome.FAILS
    return ObjectiveVerdict(objective, result.measured_seconds, outcome)


def _first_broken(report: LatencyReport, verdicts: tuple[ObjectiveVerdict, ...]) -> float | None:
    moments = [
        report.first_broken_seconds(
            LatencyObjective(
                Metric(verdict.objective.metric.value),
                verdict.objective.percentile,
                verdict.objective.maximum_seconds,
                verdict.objective.traffic_class_id,
            )
        )
        for verdict in verdicts
        if verdict.outcome is Outcome.FAILS and verdict.objective.metric is not LatencyMetric.INTER_TOKEN
    ]
    known = [moment for moment in moments if moment is not None]
    return min(known) if known else None


def _performance(
    report: LatencyReport,
    workload: Workload,
    objectives: tuple[Objective, ...],
    serving: int,
    saturation: Saturation | None,
    saturated: bool,
) -> Performance:
    outcome = report.outcome
    names = [""] + [item.traffic_class_id for item in workload.traffic_classes if len(workload.traffic_classes) > 1]
    latencies = [
        found
        for name in names
        for metric in LatencyMetric
        if (found := _latency(report, metric, name, objectives)) is not None
    ]
    totals = outcome.replicas
    busy = sum(total.busy_seconds for total in totals)
    scale = serving if is_closed_loop(workload) else 1
    judged = [
        LatencyObjective(Metric(item.metric.value), item.percentile, item.maximum_seconds, item.traffic_class_id)
        for item in objectives
    ]
    return Performance(
        latencies=tuple(latencies),
        requests_per_second=scale * report.throughput_requests_per_second(),
        output_tokens_per_second=scale * report.throughput_output_tokens_per_second(),
        goodput_requests_per_second=scale * report.goodput_requests_per_second(judged) if judged else None,
        mean_kv_cache_occupancy=_weighted(totals, "kv_occupancy", busy),
        mean_running_sequences=sum(total.sequence_seconds for total in totals) / busy if busy else 0.0,
        preemptions_per_request=sum(total.preemptions for total in totals) / outcome.requests.count,
        saturated=saturated if outcome.open_loop else None,
        queue_growth_requests_per_second=max(0.0, saturation.growth_requests_per_second) if saturation else None,
        simulated_requests=outcome.requests.count,
    )


def _latency(
    report: LatencyReport, metric: LatencyMetric, name: str, objectives: tuple[Objective, ...]
) -> LatencyPercentiles | None:
    own = Metric(metric.value)
    mean = report.mean(own, name)
    if mean is None or not math.isfinite(mean):
        return None
    wanted = {*REPORTED_PERCENTILES, *(item.percentile for item in objectives if item.metric is metric)}
    values = (_percentile_value(report, own, percentile, name) for percentile in sorted(wanted))
    return LatencyPercentiles(metric, mean, name, tuple(value for value in values if value is not None))


def _percentile_value(report: LatencyReport, metric: Metric, percentile: float, name: str) -> PercentileValue | None:
    """One percentile, without an interval where the requests are too few for it; None where they cannot resolve it."""
    try:
        value = report.percentile(metric, percentile, name)
    except InvalidInputError:
        return None
    if not math.isfinite(value):
        return None
    try:
        interval = report.interval(metric, percentile, name)
    except InvalidInputError:
        return PercentileValue(percentile, value)
    if not math.isfinite(interval.upper):
        return PercentileValue(percentile, value)
    return PercentileValue(percentile, value, max(0.0, interval.lower), interval.upper)


def _weighted(totals: Sequence[ReplicaTotals], name: str, busy_seconds: float) -> float:
    """Mean over the replicas, each by its busy time."""
    if busy_seconds <= 0:
        return 0.0
    return float(sum(getattr(total, name) * total.busy_seconds for total in totals) / busy_seconds)
