"""Policies played over time on the worked example: what textbook cooldowns do, and what a derived policy saves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inferplan.autoscaling.policy import AutoscalingPolicy, ColdStart, SignalKind, StatedColdStart, WarmKind
from inferplan.autoscaling.replay.traces import recorded_trace
from inferplan.errors import CancelledError, InvalidInputError
from inferplan.planning.replay import PolicySource, ReplayQuestion, replay_plan
from inferplan.planning.simulated_plan import plan_by_simulation
from inferplan.planning.textbook_plan import plan_by_textbook
from inferplan.resources.plan import Hardware, ModelSource, PlanContent, PlanInput, PlanMethod
from inferplan.simulation import Cancellation
from inferplan.sizing.configuration import EngineSettings, ParallelismChoice
from inferplan.sizing.performance import Outcome
from inferplan.sizing.workload import LatencyMetric, TrafficClass, Workload
from support.searches import CHATBOT_OBJECTIVES, catalog, workload

COLD_START_SECONDS = 180.0
STEP = "step:before=20,after=45,at=300,hours=0.4"
"""Two replicas carry about 40 requests/s."""


def chatbot(method: PlanMethod) -> PlanInput:
    return PlanInput(
        method=method,
        model=ModelSource(model="llama-2-7b", headline_parameters=7e9),
        hardware=Hardware(
            accelerators=("h100-sxm-80gb",),
            parallelism=ParallelismChoice(tensor_parallel=1),
            failures_to_survive=1,
        ),
        workload=workload(),
        engine=EngineSettings(engine="vllm"),
        objectives=CHATBOT_OBJECTIVES,
        cold_start=StatedColdStart(total_seconds=COLD_START_SECONDS),
    )


@pytest.fixture(scope="module")
def plan() -> PlanContent:
    return plan_by_simulation(catalog(), chatbot(PlanMethod.SIMULATED))


@pytest.fixture(scope="module")
def textbook() -> PlanContent:
    return plan_by_textbook(catalog(), chatbot(PlanMethod.TEXTBOOK))


def with_cold_start(policy: AutoscalingPolicy) -> AutoscalingPolicy:
    """The policy where replicas take 180 s to start, whatever it assumed."""
    return dataclasses.replace(policy, cold_start=ColdStart(COLD_START_SECONDS), minimum_replicas=1, warm_replicas=1)


def rises_before_the_first_serves(content: PlanContent, policy: AutoscalingPolicy) -> list[float]:
    """When the policy raised the number of replicas until the first new one served."""
    report = replay_plan(content, ReplayQuestion(trace=STEP, policy=policy, replicas=2))
    rises = [event.time_seconds for event in report.events if event.replicas_after > event.replicas_before]
    return [moment for moment in rises if moment < rises[0] + COLD_START_SECONDS]


def test_the_textbooks_cooldown_fires_twice_while_a_replica_starts(plan: PlanContent, textbook: PlanContent) -> None:
    """90 s of cooldown, 180 s of cold start: the second rise comes before the first replica serves."""
    assert textbook.autoscaling_policy.scale_up.cooldown_seconds == 90.0
    first, second = rises_before_the_first_serves(plan, with_cold_start(textbook.autoscaling_policy))
    assert second - first == pytest.approx(90.0)


def test_a_cooldown_of_the_cold_start_fires_once(plan: PlanContent) -> None:
    assert plan.autoscaling_policy.scale_up.cooldown_seconds == COLD_START_SECONDS
    assert len(rises_before_the_first_serves(plan, with_cold_start(plan.autoscaling_policy))) == 1


@pytest.mark.parametrize("target", ["", "hpa", "keda"])
def test_a_derived_policy_holds_with_fewer_gpu_hours_than_static_peak(plan: PlanContent, target: str) -> None:
    question = ReplayQuestion(
        trace="diurnal:peak=100,trough=20", policy_source=PolicySource.FORECAST, target=target, duration_seconds=64_800
    )
    report = replay_plan(plan, question)
    (ttft,) = (item for item in report.verdicts if item.objective.metric is LatencyMetric.TTFT)
    assert report.static_peak_gpu_hours is not None
    print(  # noqa: T201 - the figures are asked for
        f"{target or 'own rules'}: P95 TTFT {ttft.predicted_seconds * 1e3:.1f} ms of "
        f"{ttft.objective.maximum_seconds * 1e3:.0f}; {report.gpu_hours:.1f} GPU-hours, "
        f"{report.static_peak_gpu_hours:.1f} at static peak"
    )
    assert {item.outcome for item in report.verdicts} == {Outcome.HOLDS}
    assert report.gpu_hours < 0.9 * report.static_peak_gpu_hours
    assert report.static_peak_replicas == plan.fleet.replicas
    assert report.policy is not None
    assert report.policy.minimum_replicas < plan.fleet.active_replicas


def test_static_replicas_cost_what_static_peak_costs(plan: PlanContent) -> None:
    question = ReplayQuestion(trace="constant:rate=90,hours=0.2", replicas=plan.fleet.replicas)
    report = replay_plan(plan, question)
    assert report.policy is None
    assert (report.scale_events, report.flaps, report.most_replicas) == (0, 0, plan.fleet.replicas)
    assert report.gpu_hours == pytest.approx(0.2 * plan.fleet.replicas)
    assert report.attainment is not None
    assert report.attainment > 0.95
    assert [interval.start_seconds for interval in report.intervals] == [60.0 * index for index in range(12)]
    assert sum(interval.requests_per_second * 60 for interval in report.intervals) == pytest.approx(
        report.performance.simulated_requests
    )


def test_without_a_trace_the_plans_own_load_is_played(plan: PlanContent) -> None:
    report = replay_plan(plan, ReplayQuestion(policy_source=PolicySource.PLAN, duration_seconds=600.0))
    assert report.performance.simulated_requests == pytest.approx(60_000, rel=0.02)
    assert {item.outcome for item in report.verdicts} == {Outcome.HOLDS}


def test_recorded_lengths_are_played_as_recorded(plan: PlanContent) -> None:
    count = 2000
    trace = recorded_trace(
        "recorded", np.arange(count) / 20, np.full(count, 50, dtype=np.int64), np.full(count, 7, dtype=np.int64)
    )
    report = replay_plan(plan, ReplayQuestion(recorded=trace))
    assert report.performance.output_tokens_per_second == pytest.approx(20 * 7, rel=0.05)


def test_the_same_question_has_the_same_answer(plan: PlanContent) -> None:
    question = ReplayQuestion(trace=STEP, policy_source=PolicySource.PLAN)
    assert replay_plan(plan, question) == replay_plan(plan, question)


def test_a_search_finds_a_policy_that_holds_for_less(plan: PlanContent) -> None:
    """A day's rise and fall in six hours; the search may not cost more than what it began with."""
    question = ReplayQuestion(
        trace="spike:base=30,peak=70,at=3600,length=3600,hours=3", policy_source=PolicySource.FORECAST, suggest=True
    )
    report = replay_plan(plan, question)
    found = report.suggestion
    assert found is not None
    assert found.policies_played > 3
    assert {item.outcome for item in found.verdicts} == {Outcome.HOLDS}
    again = replay_plan(plan, dataclasses.replace(question, policy_source=None, policy=found.policy, suggest=False))
    assert again.gpu_hours == pytest.approx(found.gpu_hours)
    if all(item.outcome is Outcome.HOLDS for item in report.verdicts):
        assert found.gpu_hours <= report.gpu_hours


def test_progress_rises_to_one(plan: PlanContent) -> None:
    shares: list[float] = []
    replay_plan(plan, ReplayQuestion(trace="constant:rate=5,hours=0.1"), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_a_replay_can_be_cancelled(plan: PlanContent) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CancelledError):
        replay_plan(plan, ReplayQuestion(trace=STEP), cancellation)


def fields_of(plan: PlanContent, question: ReplayQuestion) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        replay_plan(plan, question)
    return {violation.field: violation.description for violation in caught.value.violations}


def test_thresholds_that_contradict_are_refused_all_at_once(plan: PlanContent) -> None:
    own = plan.autoscaling_policy
    running = dataclasses.replace(own.signals[1], target=1e6)
    share = dataclasses.replace(own.signals[0], kind=SignalKind.KV_CACHE_RATIO, target=80.0)
    wrong = dataclasses.replace(own, minimum_replicas=30, maximum_replicas=3, signals=(running, share, share))
    found = fields_of(plan, ReplayQuestion(policy=wrong, policy_source=PolicySource.PLAN))
    assert set(found) == {
        "policy.minimum_replicas",
        "policy.signals",
        "policy.signals[0].target",
        "policy.signals[1].target",
        "policy.signals[2].target",
        "policy_source",
    }
    assert "never fire" in found["policy.signals[0].target"]


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (ReplayQuestion(target="hpa"), "target"),
        (ReplayQuestion(suggest=True), "suggest"),
        (ReplayQuestion(policy_source=PolicySource.PLAN, target="nomad"), "target"),
        (ReplayQuestion(trace="constant:rate=1", recorded=recorded_trace("r", np.zeros(1))), "recorded_trace"),
        (ReplayQuestion(trace="constant:rate=1", duration_seconds=1e-6), "duration"),
        (
            ReplayQuestion(
                workload=Workload(
                    (dataclasses.replace(workload().traffic_classes[0], requests_per_second=None, concurrency=8),)
                )
            ),
            "workload.traffic_classes",
        ),
    ],
)
def test_what_cannot_be_played_is_refused(plan: PlanContent, question: ReplayQuestion, field: str) -> None:
    assert field in fields_of(plan, question)


def test_a_prompt_that_the_engine_cannot_take_is_refused(plan: PlanContent) -> None:
    trace = recorded_trace("long", np.arange(3.0), np.full(3, 500_000), np.full(3, 5))
    found = fields_of(plan, ReplayQuestion(recorded=trace))
    assert "500000" in found["prompt_tokens[0]"]


def test_what_a_reader_should_know_is_said(plan: PlanContent, textbook: PlanContent) -> None:
    policy = dataclasses.replace(
        with_cold_start(textbook.autoscaling_policy), allow_zero=True, warm_kind=WarmKind.NODE_PLACEHOLDER
    )
    report = replay_plan(plan, ReplayQuestion(trace="constant:rate=5,hours=0.1", policy=policy))
    assert {warning.code for warning in report.warnings} == {
        "SCALE_TO_ZERO_NOT_PLAYED",
        "QUEUE_WITHOUT_RUNNING",
        "COOLDOWN_BELOW_COLD_START",
    }


def test_classes_are_mixed_by_their_rates(plan: PlanContent) -> None:
    first = workload().traffic_classes[0]
    mixed = Workload(
        (
            dataclasses.replace(first, traffic_class_id="chat", requests_per_second=30.0),
            dataclasses.replace(first, traffic_class_id="code", requests_per_second=10.0),
        )
    )
    content = dataclasses.replace(
        plan,
        input=dataclasses.replace(
            plan.input,
            workload=mixed,
            objectives=(dataclasses.replace(CHATBOT_OBJECTIVES[0], traffic_class_id="code"),),
        ),
    )
    report = replay_plan(content, ReplayQuestion(trace="constant:rate=40,hours=0.3"))
    names = {latency.traffic_class_id for latency in report.performance.latencies}
    assert names == {"", "chat", "code"}
    (verdict,) = report.verdicts
    assert verdict.objective.traffic_class_id == "code"
    assert isinstance(mixed.traffic_classes[0], TrafficClass)
