"""A plan by the SIMULATED method: the cheapest fleet that holds every objective, with the proof and the runners-up."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from inferplan import __version__
from inferplan.autoscaling.cold_start import expected_cold_start
from inferplan.autoscaling.derivation import SimulatedLoad, simulated_policy, target_rate_ratio
from inferplan.autoscaling.policy import AutoscalingPolicy, StatedColdStart
from inferplan.catalog import Accelerator, Catalog
from inferplan.errors import NothingFitsError, Violation
from inferplan.planning.coefficients import (
    NO_STORED_CALIBRATIONS,
    CalibrationSource,
    ChosenCoefficients,
    choose_coefficients,
    use_of,
    use_warnings,
)
from inferplan.planning.replica import ReplicaSetup, setup_violations
from inferplan.planning.resolve import ResolvedEngine, resolve_input
from inferplan.planning.simulated_steps import SimulatedFigures, simulated_steps
from inferplan.planning.simulation_options import simulation_router
from inferplan.planning.textbook_comparison import compare_with_textbook
from inferplan.resources.plan import Candidate, PlanContent, PlanInput, PlanMethod, ResolvedInput, SimulationOptions
from inferplan.simulation import Cancellation, requests_for_interval
from inferplan.sizing.bounds import RequestWork, least_prefill_seconds
from inferplan.sizing.capacity import MeasuredCapacity, replica_capacity, scaled_workload
from inferplan.sizing.efficiency import EfficiencyCoefficients
from inferplan.sizing.evaluation import (
    MEASURED_SHARE,
    EvaluationSettings,
    FleetEvaluation,
    evaluate_fleet,
    first_run_requests,
)
from inferplan.sizing.fleet import LimitingFactor, ReplicaCapacity
from inferplan.sizing.fleet_search import search
from inferplan.sizing.nearest import nearest_that_fits
from inferplan.sizing.operating_point import operating_point
from inferplan.sizing.parallelism import Parallelism
from inferplan.sizing.performance import Performance
from inferplan.sizing.sample import offered_requests_per_second, sampled_work, window_of
from inferplan.sizing.search_question import FleetLimits, SearchQuestion
from inferplan.sizing.search_result import RankedCandidate, RuledOut, SearchResult
from inferplan.sizing.traffic_requests import is_closed_loop
from inferplan.sizing.workload import LatencyMetric, Workload
from inferplan.storage.codec import request_digest

MOST_ALTERNATIVES = 10

STREAM_PERCENTILE = 99.0
"""The slowest steps that a draining replica is expected to take."""

_SEED_DIGITS = 15
"""Hexadecimal digits of the digest that make a seed: 60 bits, so that it fits a signed 64-bit field."""


def simulated_violations(plan_input: PlanInput, path: str) -> list[Violation]:
    """Runs that are bounded to fewer requests than the objectives' percentiles need for their intervals."""
    most = plan_input.simulation.maximum_requests if plan_input.simulation else None
    needed = _fewest_requests(plan_input)
    if most is None or most >= needed:
        return []
    return [
        Violation(
            f"{path}.simulation.maximum_requests",
            f"is {most:,}; the confidence intervals of the objectives' percentiles need at least {needed:,} requests",
            "TOO_FEW_REQUESTS",
        )
    ]


def simulated_setup_violations(catalog: Catalog, plan_input: PlanInput, path: str) -> list[Violation]:
    """What does not go together on any accelerator: fixed parallelism, settings, contexts. Names must be known."""
    resolved, engine = resolve_input(catalog, plan_input)
    first: list[Violation] = []
    for accelerator in resolved.accelerators:
        violations = setup_violations(_asked_setup(plan_input, resolved, engine, accelerator), path)
        if not violations:
            return []
        first = first or violations
    return first


def plan_by_simulation(
    catalog: Catalog,
    plan_input: PlanInput,
    cancellation: Cancellation | None = None,
    calibrations: CalibrationSource = NO_STORED_CALIBRATIONS,
) -> PlanContent:
    """Compute a plan; the same input gives the same plan.

    Raises NothingFitsError with the rule that each candidate broke and the nearest that would fit, CancelledError if
    the work was cancelled.
    """
    plan_input = dataclasses.replace(plan_input, method=PlanMethod.SIMULATED)
    resolved, engine = resolve_input(catalog, plan_input)
    coefficients = choose_coefficients(
        plan_input.calibration, engine.engine.id, plan_input.engine.version, calibrations
    )
    question = search_question(plan_input, resolved, engine, coefficients.efficiency)
    settings = evaluation_settings(plan_input, cancellation)
    try:
        result = search(question, settings)
    except NothingFitsError as error:
        others = tuple(
            accelerator
            for accelerator in catalog.accelerators()
            if accelerator.id not in {allowed.id for allowed in resolved.accelerators}
        )
        nearest = nearest_that_fits(question, settings, others)
        raise NothingFitsError("No configuration holds what is asked.", error.broken_rules, nearest) from None
    return _content(catalog, plan_input, resolved, coefficients, question, settings, result)


def search_question(
    plan_input: PlanInput, resolved: ResolvedInput, engine: ResolvedEngine, efficiency: EfficiencyCoefficients
) -> SearchQuestion:
    """A plan's input as a question to the search; `efficiency` holds on every accelerator."""
    hardware = plan_input.hardware
    return SearchQuestion(
        architecture=resolved.model.architecture,
        accelerators=resolved.accelerators,
        engine=engine.engine,
        workload=plan_input.workload,
        objectives=plan_input.objectives,
        settings=plan_input.engine,
        parallelism=hardware.parallelism,
        limits=FleetLimits(
            maximum_gpus=hardware.maximum_gpus,
            maximum_cost_usd_per_hour=hardware.maximum_cost_usd_per_hour,
            failures_to_survive=hardware.failures_to_survive or 0,
        ),
        efficiency=efficiency,
    )


def evaluation_settings(plan_input: PlanInput, cancellation: Cancellation | None) -> EvaluationSettings:
    """How the plan's simulations are run. A seed of 0 is derived from the input, so that it is the same each time."""
    options = plan_input.simulation or SimulationOptions()
    return EvaluationSettings(
        seed=options.seed or _seed_of(plan_input),
        router=simulation_router(options.router),
        maximum_requests=options.maximum_requests,
        cancellation=cancellation,
    )


def _seed_of(plan_input: PlanInput) -> int:
    return int(request_digest("", plan_input)[:_SEED_DIGITS], 16) or 1


def _fewest_requests(plan_input: PlanInput) -> int:
    """Requests of a run that resolves every objective, of the rarest class too."""
    percentiles = [objective.percentile for objective in plan_input.objectives]
    needed = max((requests_for_interval(percentile) for percentile in percentiles), default=1) / MEASURED_SHARE
    classes = plan_input.workload.traffic_classes
    loads = [traffic.requests_per_second or float(traffic.concurrency or 0) for traffic in classes]
    return math.ceil(needed * sum(loads) / min(loads))


def _asked_setup(
    plan_input: PlanInput, resolved: ResolvedInput, engine: ResolvedEngine, accelerator: Accelerator
) -> ReplicaSetup:
    """The replica with what was asked for, and the least for what was left open."""
    asked = plan_input.hardware.parallelism
    experts = asked.expert_parallel or 1
    return ReplicaSetup(
        model=resolved.model,
        accelerator=accelerator,
        engine=engine,
        settings=plan_input.engine,
        parallelism=Parallelism(asked.tensor_parallel or experts, asked.pipeline_parallel or 1, experts),
        longest_context_tokens=max(t.longest_context_tokens for t in plan_input.workload.traffic_classes),
    )


def _content(
    catalog: Catalog,
    plan_input: PlanInput,
    resolved: ResolvedInput,
    coefficients: ChosenCoefficients,
    question: SearchQuestion,
    settings: EvaluationSettings,
    result: SearchResult,
) -> PlanContent:
    chosen = result.chosen
    holding = chosen.proven.holding
    model = chosen.replica.model
    work = sampled_work(question.workload, window_of(model.coefficients), settings.seed)
    measured = replica_capacity(model, question.workload, question.objectives, work, settings)
    rate = offered_requests_per_second(question.workload) or holding.performance.requests_per_second
    point = operating_point(model.coefficients, model.engine, work, rate / chosen.fleet.active_replicas)
    comparison = compare_with_textbook(catalog, plan_input, question, chosen.fleet, settings)
    use = use_of(
        coefficients,
        chosen.replica.configuration,
        resolved.model.architecture,
        plan_input.workload,
        holding.performance.mean_running_sequences or 0.0,
    )
    return PlanContent(
        input=plan_input,
        resolved=resolved,
        configuration=chosen.replica.configuration,
        memory=chosen.replica.memory,
        fleet=chosen.fleet,
        replica_capacity=measured.capacity if measured else _share_as_capacity(chosen),
        performance=holding.performance,
        verdicts=holding.verdicts,
        steps=simulated_steps(SimulatedFigures(chosen, work, measured, rate, point)),
        autoscaling_policy=_policy(question, chosen, work, measured, settings, plan_input.cold_start),
        warnings=(
            *((comparison.warning,) if comparison else ()),
            *use_warnings(use),
            *chosen.replica.memory.warnings,
        ),
        calibration=coefficients.name,
        calibration_use=use,
        profiles=coefficients.calibration.profiles if coefficients.calibration else (),
        seed=settings.seed,
        service_version=__version__,
        evidence=(*result.evidence, *((comparison.evidence,) if comparison else ())),
        alternatives=_alternatives(result),
        pareto_front=tuple(candidate_of(ranked) for ranked in result.pareto_front),
    )


def _share_as_capacity(chosen: RankedCandidate) -> ReplicaCapacity:
    performance, replicas = chosen.proven.holding.performance, chosen.proven.replicas
    return ReplicaCapacity(
        requests_per_second=performance.requests_per_second / replicas,
        output_tokens_per_second=performance.output_tokens_per_second / replicas,
        limiting_factor=LimitingFactor.OBJECTIVE,
        limiting_detail="a replica alone holds the objectives at no load; as one of the fleet it carries its share",
        censored=True,
    )


def _policy(
    question: SearchQuestion,
    chosen: RankedCandidate,
    work: RequestWork,
    measured: MeasuredCapacity | None,
    settings: EvaluationSettings,
    stated: StatedColdStart | None,
) -> AutoscalingPolicy:
    replica, fleet = chosen.replica, chosen.fleet
    model = replica.model
    at_capacity = measured.holding if measured else chosen.proven.holding
    rate = at_capacity.performance.requests_per_second / (1 if measured else fleet.active_replicas)
    prefill = least_prefill_seconds(
        model.coefficients, model.engine, float(np.mean(work.computed_tokens)), float(np.mean(work.prefill_pairs))
    )
    bounds = [objective.maximum_seconds for objective in question.objectives if objective.metric is LatencyMetric.TTFT]
    cold_start, derivation = expected_cold_start(
        replica.memory.weights_bytes * replica.gpus,
        routed_experts=question.architecture.experts is not None,
        stated=stated,
    )
    return simulated_policy(
        SimulatedLoad(
            active_replicas=fleet.active_replicas,
            spare_replicas=fleet.spare_replicas,
            completions_per_second=rate,
            running_sequences=_running_at_target(question, chosen, at_capacity, settings),
            maximum_sequences=replica.configuration.max_num_seqs,
            unloaded_ttft_seconds=model.front_end_seconds + prefill,
            longest_stream_seconds=_longest_stream_seconds(question.workload, chosen.proven.holding.performance),
            ttft_objective_seconds=min(bounds) if bounds else None,
            allowed_replicas=question.limits.most_replicas(replica.gpus, replica.accelerator.cost_usd_per_gpu_hour),
        ),
        cold_start,
        derivation,
    )


def _running_at_target(
    question: SearchQuestion, chosen: RankedCandidate, at_capacity: FleetEvaluation, settings: EvaluationSettings
) -> float:
    """Sequences that run on one replica at the share of its capacity at which it is to get company.

    They grow faster than the rate, since fuller steps take longer; so they are played at that rate, and not scaled
    from those at capacity. Clients that wait for their answers run at once whatever the rate.
    """
    model, workload = chosen.replica.model, question.workload
    ratio = target_rate_ratio(chosen.fleet.active_replicas)
    offered = offered_requests_per_second(workload)
    if is_closed_loop(workload) or not offered:
        return ratio * (at_capacity.performance.mean_running_sequences or 0.0)
    replicas = chosen.fleet.active_replicas if at_capacity is chosen.proven.holding else 1
    share = ratio * at_capacity.performance.requests_per_second / replicas / offered
    brief = dataclasses.replace(settings, brief_requests=first_run_requests(model, workload, ()))
    played = evaluate_fleet(model, scaled_workload(workload, share), (), 1, brief)
    return played.performance.mean_running_sequences or 0.0


def _longest_stream_seconds(workload: Workload, performance: Performance) -> float:
    """P99 of TTFT, then the longest output at P99 of TPOT."""
    tail = {
        latency.metric: value.value_seconds
        for latency in performance.latencies
        for value in latency.percentiles
        if not latency.traffic_class_id and value.percentile == STREAM_PERCENTILE
    }
    tokens = max(traffic.longest_output_tokens for traffic in workload.traffic_classes)
    return tail.get(LatencyMetric.TTFT, 0.0) + tokens * tail.get(LatencyMetric.TPOT, 0.0)


def _alternatives(result: SearchResult) -> tuple[Candidate, ...]:
    """The runners-up, then what came nearest to holding: candidates that were simulated or bounded and broke a rule."""
    others = [candidate_of(ranked) for ranked in result.candidates[1:]]
    others += [_ruled_out(entry) for entry in result.ruled_out if entry.replica is not None]
    return tuple(others[:MOST_ALTERNATIVES])


def candidate_of(ranked: RankedCandidate) -> Candidate:
    """A ranked configuration as plans keep it."""
    return Candidate(
        configuration=ranked.replica.configuration,
        feasible=True,
        fleet=ranked.fleet,
        performance=ranked.proven.holding.performance,
        on_pareto_front=ranked.on_pareto_front,
    )


def _ruled_out(entry: RuledOut) -> Candidate:
    assert entry.replica is not None, "the caller left out what is no configuration"
    return Candidate(
        configuration=entry.replica.configuration,
        feasible=False,
        performance=entry.evaluation.performance if entry.evaluation else None,
        broken_rules=(entry.rule,),
    )
