"""A plan by the TEXTBOOK method: six steps, the replica's memory, what it would cost, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from inferplan import __version__
from inferplan.autoscaling.policy import textbook_policy
from inferplan.catalog import Catalog
from inferplan.errors import BrokenRule, NothingFitsError, Violation
from inferplan.planning.coefficients import DATASHEET
from inferplan.planning.replica import ReplicaSetup, replica_memory, setup_violations
from inferplan.planning.resolve import resolve_input
from inferplan.resources.plan import Hardware, PlanContent, PlanInput, PlanMethod, ResolvedInput
from inferplan.sizing.explanation import PlanWarning
from inferplan.sizing.fleet import Fleet, LimitingFactor, ReplicaCapacity, fleet_of
from inferplan.sizing.memory import MemoryEstimate
from inferplan.sizing.parallelism import Parallelism, legal_tensor_parallel_values
from inferplan.sizing.parameters import count_parameters
from inferplan.sizing.performance import LatencyPercentiles, ObjectiveVerdict, Outcome, Performance
from inferplan.sizing.textbook import (
    TextbookAnswer,
    TextbookAssumptions,
    TextbookQuestion,
    solve_textbook,
    textbook_mean_seconds,
    textbook_verdicts,
)
from inferplan.sizing.textbook_warnings import LeftOut, textbook_warnings
from inferplan.sizing.workload import LatencyMetric, TrafficClass

DEFAULT_SPARES = 1
"""The worked example keeps one warm spare."""


def textbook_violations(plan_input: PlanInput, path: str) -> list[Violation]:
    """What the method cannot take: it knows one accelerator, one kind of traffic, an arrival rate, and no search."""
    violations = []
    hardware = plan_input.hardware
    if len(hardware.accelerators) > 1:
        violations.append(
            Violation(
                f"{path}.hardware.accelerators",
                f"names {len(hardware.accelerators)} accelerators; TEXTBOOK does not search and takes exactly one",
            )
        )
    classes = plan_input.workload.traffic_classes
    if len(classes) > 1:
        violations.append(
            Violation(
                f"{path}.workload.traffic_classes", f"holds {len(classes)} traffic classes; TEXTBOOK takes exactly one"
            )
        )
    violations += [
        Violation(
            f"{path}.workload.traffic_classes[{index}].concurrency",
            "is a closed loop; TEXTBOOK takes requests_per_second only",
        )
        for index, traffic in enumerate(classes)
        if traffic.concurrency is not None
    ]
    return violations


def textbook_setup_violations(catalog: Catalog, plan_input: PlanInput, path: str) -> list[Violation]:
    """What does not go together in the one replica that is asked for. Every name must be known by now."""
    return setup_violations(_setup(catalog, plan_input), path)


def plan_by_textbook(catalog: Catalog, plan_input: PlanInput) -> PlanContent:
    """Compute a plan. Raises NothingFitsError if memory, an objective or a limit is broken."""
    plan_input = dataclasses.replace(plan_input, method=PlanMethod.TEXTBOOK)
    resolved, _engine = resolve_input(catalog, plan_input)
    setup = _setup(catalog, plan_input)
    trial = _attempt(plan_input, setup)
    if trial.broken_rules:
        raise NothingFitsError(
            "TEXTBOOK takes the configuration as it is given, and it does not hold what is asked.",
            trial.broken_rules,
            _nearest(catalog, plan_input, setup),
        )
    return _content(plan_input, resolved, trial)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One configuration worked through; `broken_rules` is empty if it holds."""

    setup: ReplicaSetup
    memory: MemoryEstimate
    question: TextbookQuestion
    answer: TextbookAnswer
    fleet: Fleet
    verdicts: tuple[ObjectiveVerdict, ...]
    broken_rules: tuple[BrokenRule, ...]


def _setup(catalog: Catalog, plan_input: PlanInput) -> ReplicaSetup:
    resolved, engine = resolve_input(catalog, plan_input)
    traffic = plan_input.workload.traffic_classes[0]
    return ReplicaSetup(
        model=resolved.model,
        accelerator=resolved.accelerators[0],
        engine=engine,
        settings=plan_input.engine,
        parallelism=plan_input.hardware.parallelism.resolved(),
        longest_context_tokens=traffic.longest_context_tokens,
        mean_context_tokens=_mean_context_tokens(traffic),
    )


def _mean_context_tokens(traffic: TrafficClass) -> float:
    """The mean context while decoding: the prompt and half of the output."""
    return traffic.mean_input_tokens + traffic.mean_output_tokens / 2


def _attempt(plan_input: PlanInput, setup: ReplicaSetup) -> _Attempt:
    memory = replica_memory(setup)
    question = _question(plan_input, setup)
    answer = solve_textbook(question)
    fleet = fleet_of(
        answer.active_replicas,
        answer.spare_replicas,
        setup.parallelism.gpus,
        setup.accelerator.cost_usd_per_gpu_hour,
        question.requests_per_second * question.output_tokens,
    )
    verdicts = textbook_verdicts(answer, plan_input.objectives)
    rules = (
        *memory.broken_rules,
        *_broken_objectives(setup, verdicts),
        *_broken_limits(plan_input.hardware, setup, fleet),
    )
    return _Attempt(setup, memory, question, answer, fleet, verdicts, rules)


def _question(plan_input: PlanInput, setup: ReplicaSetup) -> TextbookQuestion:
    traffic = plan_input.workload.traffic_classes[0]
    assert traffic.requests_per_second is not None, "checked by textbook_violations"
    spares = plan_input.hardware.failures_to_survive
    architecture = setup.model.architecture
    weight_precision = setup.served.weight_precision
    gpus = setup.parallelism.tensor_parallel
    return TextbookQuestion(
        parameters=setup.model.headline_parameters or float(count_parameters(architecture).total),
        bytes_per_parameter=weight_precision.bytes_per_element,
        input_tokens=traffic.mean_input_tokens,
        output_tokens=traffic.mean_output_tokens,
        requests_per_second=traffic.requests_per_second,
        memory_bandwidth_bytes_per_second=setup.accelerator.memory_bandwidth_bytes_per_second * gpus,
        peak_flops_per_second=setup.accelerator.peak_flops_per_second(weight_precision) * gpus,
        assumptions=plan_input.textbook or TextbookAssumptions(),
        spare_replicas=DEFAULT_SPARES if spares is None else spares,
    )


def _broken_objectives(setup: ReplicaSetup, verdicts: tuple[ObjectiveVerdict, ...]) -> Iterator[BrokenRule]:
    for verdict in verdicts:
        if verdict.outcome is Outcome.MEAN_FAILS:
            objective = verdict.objective
            yield BrokenRule(
                "OBJECTIVE_BROKEN",
                setup.label,
                f"{objective.label} may be {objective.maximum_seconds * 1e3:.4g} ms and already the mean is "
                f"{verdict.predicted_seconds * 1e3:.4g} ms, however many replicas there are",
            )


def _broken_limits(hardware: Hardware, setup: ReplicaSetup, fleet: Fleet) -> Iterator[BrokenRule]:
    if hardware.maximum_gpus is not None and fleet.gpus > hardware.maximum_gpus:
        yield BrokenRule(
            "GPU_QUOTA",
            setup.label,
            f"{fleet.replicas} replicas take {fleet.gpus} GPUs; maximum_gpus is {hardware.maximum_gpus}",
        )
    budget = hardware.maximum_cost_usd_per_hour
    if budget is not None and fleet.cost_usd_per_hour > budget:
        yield BrokenRule(
            "COST_BUDGET",
            setup.label,
            f"{fleet.gpus} GPUs cost ${fleet.cost_usd_per_hour:,.2f} an hour; maximum_cost_usd_per_hour is "
            f"{budget:,.2f}",
        )


def _nearest(catalog: Catalog, plan_input: PlanInput, setup: ReplicaSetup) -> str:
    """The fewest GPUs of the same kind, else of another kind, that hold what is asked; empty if none do."""
    others = [setup.accelerator, *(item for item in catalog.accelerators() if item.id != setup.accelerator.id)]
    for accelerator in others:
        for degree in legal_tensor_parallel_values(setup.model.architecture, accelerator.gpus_per_node):
            trial_setup = dataclasses.replace(
                setup, accelerator=accelerator, parallelism=Parallelism(tensor_parallel=degree)
            )
            if setup_violations(trial_setup, ""):
                continue
            trial = _attempt(plan_input, trial_setup)
            if not trial.broken_rules:
                return (
                    f"{trial_setup.label}: {trial.fleet.active_replicas} + {trial.fleet.spare_replicas} replicas, "
                    f"{trial.fleet.gpus} GPUs, ${trial.fleet.cost_usd_per_hour:,.2f} an hour."
                )
    return ""


def _content(plan_input: PlanInput, resolved: ResolvedInput, trial: _Attempt) -> PlanContent:
    answer, question, setup = trial.answer, trial.question, trial.setup
    corrections = textbook_warnings(question, answer, _left_out(setup), plan_input.objectives)
    return PlanContent(
        input=plan_input,
        resolved=resolved,
        configuration=trial.memory.configuration,
        memory=trial.memory,
        fleet=trial.fleet,
        replica_capacity=ReplicaCapacity(
            requests_per_second=answer.replica_requests_per_second,
            output_tokens_per_second=answer.replica_output_tokens_per_second,
            limiting_factor=LimitingFactor.MEMORY_BANDWIDTH,
            limiting_detail="TEXTBOOK counts the reading of weights only; see the warnings for what it leaves out",
        ),
        performance=_performance(answer, question),
        verdicts=trial.verdicts,
        steps=answer.steps,
        autoscaling_policy=textbook_policy(answer, question.assumptions),
        warnings=(*corrections, *_sequences_beyond_memory(trial), *trial.memory.warnings),
        calibration=DATASHEET,
        seed=0,
        service_version=__version__,
    )


def _left_out(setup: ReplicaSetup) -> LeftOut:
    """What attention costs one replica: bytes of all its GPUs, since the question's bandwidth is theirs together."""
    architecture = setup.model.architecture
    gpus = setup.parallelism.tensor_parallel
    mean_context = setup.mean_context_tokens
    assert mean_context is not None, "a plan has a workload"
    return LeftOut(
        layers=architecture.layers,
        attention_width=setup.attention_width,
        kv_bytes_per_token=gpus * setup.kv_bytes_per_token(),
        kv_bytes_per_sequence=gpus * setup.kv_bytes_for_sequence(mean_context),
        mean_context_tokens=mean_context,
    )


def _sequences_beyond_memory(trial: _Attempt) -> Iterator[PlanWarning]:
    """The assumed concurrency must find room in the KV cache; the textbook never asks."""
    room = trial.memory.concurrency_at_workload
    assumed = trial.question.assumptions.concurrent_sequences
    if room is not None and room < assumed:
        yield PlanWarning(
            "CONCURRENCY_BEYOND_KV_CACHE",
            f"{assumed} sequences of {trial.setup.mean_context_tokens:g} tokens on average do not fit the KV cache: it "
            f"holds {room:.1f} of them, so the engine would preempt or queue the rest.",
        )


def _performance(answer: TextbookAnswer, question: TextbookQuestion) -> Performance:
    means = textbook_mean_seconds(answer)
    shown = (LatencyMetric.TTFT, LatencyMetric.TPOT, LatencyMetric.END_TO_END)
    return Performance(
        latencies=tuple(LatencyPercentiles(metric, means[metric]) for metric in shown),
        requests_per_second=question.requests_per_second,
        output_tokens_per_second=question.requests_per_second * question.output_tokens,
    )
