"""The cheapest fleet, proven from both sides."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.errors import CancelledError, NothingFitsError
from inferplan.simulation import Cancellation
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.evaluation import EvaluationSettings, evaluate_fleet
from inferplan.sizing.fleet_search import search, try_candidates
from inferplan.sizing.nearest import nearest_that_fits
from inferplan.sizing.performance import Outcome
from inferplan.sizing.ranking import CandidateFigures, dominates, on_front
from inferplan.sizing.search_question import FleetLimits, SearchQuestion
from inferplan.sizing.search_result import SearchResult
from inferplan.sizing.workload import (
    ArrivalProcess,
    Arrivals,
    ConstantLength,
    LatencyMetric,
    LognormalLength,
    Objective,
    TrafficClass,
    UniformLength,
    Workload,
)
from support.searches import CHATBOT_OBJECTIVES, accelerators, question, workload

SETTINGS = EvaluationSettings(seed=3)
TWO_KINDS = ("h100-sxm-80gb", "l40s-48gb")


def assert_proven(asked: SearchQuestion, result: SearchResult) -> None:
    """N passes, N - 1 does not, and whatever is listed at a lower cost fails: all by simulations of their own."""
    chosen = result.chosen
    replicas = chosen.fleet.active_replicas
    again = evaluate_fleet(chosen.replica.model, asked.workload, asked.objectives, replicas, SETTINGS)
    assert again.holds is True
    if replicas > 1:
        fewer = evaluate_fleet(chosen.replica.model, asked.workload, asked.objectives, replicas - 1, SETTINGS)
        assert fewer.holds is not True
    spares = asked.limits.failures_to_survive
    for candidate in result.candidates[1:]:
        assert candidate.figures.cost_usd_per_hour >= chosen.figures.cost_usd_per_hour
        cheaper = math.ceil(chosen.figures.cost_usd_per_hour / candidate.replica.cost_usd_per_hour) - 1 - spares
        if 1 <= cheaper < candidate.fleet.active_replicas:
            trial = evaluate_fleet(candidate.replica.model, asked.workload, asked.objectives, cheaper, SETTINGS)
            assert trial.holds is not True, candidate.replica.label


def test_worked_example_on_h100() -> None:
    """4 to 7 replicas carry 100 requests/s of 500/200 tokens with Llama-2-7B, as independent planners find too."""
    asked = question(parallelism=ParallelismChoice(tensor_parallel=1))
    result = search(asked, SETTINGS)
    assert 4 <= result.chosen.fleet.active_replicas <= 7
    passing, failing = result.evidence
    assert (passing.holds, failing.holds) == (True, False)
    assert failing.replicas == passing.replicas - 1
    assert all(verdict.outcome is Outcome.HOLDS for verdict in passing.verdicts)
    broken = [verdict.objective.label for verdict in failing.verdicts if verdict.outcome is not Outcome.HOLDS]
    assert broken
    assert broken[0] in failing.summary
    assert failing.first_broken_after_seconds is not None
    assert_proven(asked, result)


def test_llama_3_1_8b_needs_fewer() -> None:
    result = search(question("llama-3.1-8b", parallelism=ParallelismChoice(tensor_parallel=1)), SETTINGS)
    assert 2 <= result.chosen.fleet.active_replicas <= 4


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    length = st.one_of(
        st.builds(ConstantLength, st.integers(20, 800)),
        st.integers(20, 400).map(lambda lowest: UniformLength(lowest, 2 * lowest)),
        st.builds(LognormalLength, st.floats(50, 400), st.floats(0.3, 1.0), st.just(1500)),
    )
    arrivals = st.one_of(
        st.just(Arrivals()),
        st.just(Arrivals(ArrivalProcess.CONSTANT)),
        st.floats(0.5, 3.0).map(lambda variation: Arrivals(ArrivalProcess.GAMMA, variation)),
    )
    names = ["chat", "batch"][: draw(st.integers(1, 2))]
    return Workload(
        tuple(
            TrafficClass(
                traffic_class_id=name,
                requests_per_second=draw(st.floats(2.0, 60.0)),
                arrivals=draw(arrivals),
                input_tokens=draw(length),
                output_tokens=draw(length),
            )
            for name in names
        )
    )


@settings(max_examples=6)
@given(asked_workload=workloads(), slack=st.floats(1.5, 6.0), failures=st.integers(0, 2))
def test_n_passes_one_less_does_not_and_cheaper_ones_fail(
    asked_workload: Workload, slack: float, failures: int
) -> None:
    asked = question(
        "llama-3.1-8b",
        *TWO_KINDS,
        workload=asked_workload,
        objectives=(
            Objective(LatencyMetric.TTFT, 95.0, 0.2 * slack),
            Objective(LatencyMetric.TPOT, 90.0, 0.012 * slack),
        ),
        limits=FleetLimits(failures_to_survive=failures),
    )
    result = search(asked, SETTINGS)
    assert_proven(asked, result)
    assert result.chosen.fleet.spare_replicas == failures


def test_costs_rank_and_the_front_is_not_beaten() -> None:
    result = search(question("llama-2-7b", *TWO_KINDS, "h200-sxm-141gb"), SETTINGS)
    costs = [candidate.figures.cost_usd_per_hour for candidate in result.candidates]
    assert costs == sorted(costs)
    assert result.chosen.on_pareto_front
    for member in result.pareto_front:
        assert not any(dominates(other.figures, member.figures) for other in result.candidates)
    beaten = [candidate for candidate in result.candidates if not candidate.on_pareto_front]
    for candidate in beaten:
        assert any(dominates(member.figures, candidate.figures) for member in result.pareto_front)
    for candidate in result.candidates:
        fleet = candidate.fleet
        assert fleet.gpus == fleet.replicas * candidate.replica.gpus
        assert fleet.cost_usd_per_hour == pytest.approx(
            fleet.gpus * candidate.replica.accelerator.cost_usd_per_gpu_hour
        )


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_somebody_is_on_every_front(points: list[tuple[int, int, int, int]]) -> None:
    figures = [CandidateFigures(float(cost), float(ttft), float(tpot), gpus) for cost, ttft, tpot, gpus in points]
    members = on_front(figures)
    assert any(members)
    for mine, is_member in zip(figures, members, strict=True):
        assert is_member != any(dominates(other, mine) for other in figures)


def test_spares_come_on_top_and_failures_are_checked() -> None:
    asked = question(limits=FleetLimits(failures_to_survive=2), parallelism=ParallelismChoice(tensor_parallel=1))
    result = search(asked, SETTINGS)
    fleet = result.chosen.fleet
    assert (fleet.spare_replicas, fleet.gpus) == (2, fleet.active_replicas + 2)
    down = result.evidence[-1]
    assert (down.replicas, down.replicas_down, down.holds) == (fleet.replicas, 2, True)
    again = evaluate_fleet(
        result.chosen.replica.model, asked.workload, asked.objectives, fleet.replicas, SETTINGS, replicas_down=2
    )
    assert again.performance == down.performance


def test_prices_decide() -> None:
    h100, l40s = accelerators(*TWO_KINDS)
    free = dataclasses.replace(l40s, cost_usd_per_gpu_hour=0.0)
    result = search(question(accelerators=(h100, free)), SETTINGS)
    assert result.chosen.replica.accelerator.id == "l40s-48gb"
    assert result.chosen.fleet.cost_usd_per_hour == 0.0


def test_other_budgets_are_tried_where_they_save_replicas() -> None:
    """Chunks of 8,192 prompt tokens between decode steps break a bound on the gaps; smaller ones keep it."""
    asked = question(
        "llama-3.1-8b",
        workload=workload(20.0, 4000, 200),
        objectives=(Objective(LatencyMetric.INTER_TOKEN, 99.0, 0.06),),
    )
    chosen = search(asked, SETTINGS).chosen
    assert chosen.replica.configuration.max_num_batched_tokens < 8192
    fixed = dataclasses.replace(
        asked, settings=dataclasses.replace(asked.settings, max_num_seqs=1024, max_num_batched_tokens=8192)
    )
    assert search(fixed, SETTINGS).chosen.fleet.cost_usd_per_hour > chosen.fleet.cost_usd_per_hour


def test_without_objectives_the_fleet_carries_the_load() -> None:
    asked = question(objectives=(), parallelism=ParallelismChoice(tensor_parallel=1))
    result = search(asked, SETTINGS)
    assert 4 <= result.chosen.fleet.active_replicas <= 6
    assert result.chosen.proven.holding.saturated is False


def test_a_closed_loop_is_searched_too() -> None:
    clients = TrafficClass(concurrency=64, input_tokens=ConstantLength(500), output_tokens=ConstantLength(200))
    asked = question(workload=Workload((clients,)), objectives=(Objective(LatencyMetric.TPOT, 95.0, 0.013),))
    result = search(asked, SETTINGS)
    assert result.chosen.proven.holding.holds is True
    assert result.chosen.fleet.cost_usd_per_million_output_tokens > 0


def test_a_recorded_trace_counts_as_it_was_recorded() -> None:
    """50 requests a second for 160 s, whatever rate is stated beside them."""
    offsets = tuple(index / 50.0 for index in range(8000))
    for stated in (0.5, 5000.0):
        recorded = TrafficClass(
            requests_per_second=stated,
            arrivals=Arrivals(ArrivalProcess.TRACE, trace_offsets_seconds=offsets),
            input_tokens=ConstantLength(500),
            output_tokens=ConstantLength(200),
        )
        asked = question(
            "llama-3.1-8b",
            workload=Workload((recorded,)),
            limits=FleetLimits(maximum_gpus=4),
            parallelism=ParallelismChoice(tensor_parallel=1),
        )
        assert search(asked, SETTINGS).chosen.fleet.active_replicas == 2


def test_the_same_question_has_the_same_answer() -> None:
    asked = question("llama-2-7b", *TWO_KINDS)
    assert search(asked, SETTINGS) == search(asked, SETTINGS)


def test_a_limit_on_simulations_never_hides_the_cheapest() -> None:
    asked = question("llama-2-7b", *TWO_KINDS, "h200-sxm-141gb")
    few = search(dataclasses.replace(asked, maximum_simulated_candidates=1), SETTINGS)
    assert few.chosen.replica.label == search(asked, SETTINGS).chosen.replica.label
    assert "COSTS_MORE" in {ruled_out.rule.rule for ruled_out in few.ruled_out}


def test_a_quota_that_is_too_small() -> None:
    needed = search(question(parallelism=ParallelismChoice(tensor_parallel=1)), SETTINGS).chosen.fleet.gpus
    limits = FleetLimits(maximum_gpus=needed - 1)
    asked = question(limits=limits, parallelism=ParallelismChoice(tensor_parallel=1))
    with pytest.raises(NothingFitsError) as caught:
        search(asked, SETTINGS)
    rule = next(rule for rule in caught.value.broken_rules if rule.rule == "GPU_QUOTA")
    assert f"maximum_gpus is {needed - 1}" in rule.description
    assert f"{needed} GPUs" in rule.description
    nearest = nearest_that_fits(asked, SETTINGS)
    assert "larger quota" in nearest
    assert f"GPUs {needed}" in nearest


def test_a_budget_that_is_too_small() -> None:
    asked = question(limits=FleetLimits(maximum_cost_usd_per_hour=20.0))
    with pytest.raises(NothingFitsError) as caught:
        search(asked, SETTINGS)
    assert {rule.rule for rule in caught.value.broken_rules} == {"COST_BUDGET"}


def test_a_quota_that_is_just_enough() -> None:
    needed = search(question(parallelism=ParallelismChoice(tensor_parallel=1)), SETTINGS).chosen.fleet.gpus
    limits = FleetLimits(maximum_gpus=needed + 1, failures_to_survive=1)
    result = search(question(limits=limits, parallelism=ParallelismChoice(tensor_parallel=1)), SETTINGS)
    assert result.chosen.fleet.gpus == needed + 1


def test_an_objective_out_of_reach_names_what_can_be_had() -> None:
    asked = question(objectives=(Objective(LatencyMetric.TTFT, 95.0, 0.02),))
    with pytest.raises(NothingFitsError) as caught:
        search(asked, SETTINGS)
    assert {rule.rule for rule in caught.value.broken_rules} == {"OBJECTIVE_OUT_OF_REACH"}
    assert len(caught.value.broken_rules) == 4
    nearest = nearest_that_fits(asked, SETTINGS)
    assert nearest.startswith("with P95 TTFT of ")
    assert "instead of 20 ms" in nearest


def test_weights_that_fit_nowhere_lead_to_another_spread_or_accelerator() -> None:
    asked = question(
        "llama-3.1-70b",
        workload=workload(2.0),
        objectives=(Objective(LatencyMetric.TTFT, 95.0, 1.0),),
        parallelism=ParallelismChoice(tensor_parallel=1, pipeline_parallel=1),
    )
    with pytest.raises(NothingFitsError) as caught:
        search(asked, SETTINGS)
    assert {rule.rule for rule in caught.value.broken_rules} == {"WEIGHTS_DO_NOT_FIT"}
    assert "with another parallelism" in nearest_that_fits(asked, SETTINGS)


def test_another_accelerator_is_named_where_the_allowed_one_is_too_slow() -> None:
    one_gpu_nodes = dataclasses.replace(accelerators("l4-24gb")[0], gpus_per_node=1)
    asked = question(
        "llama-3.1-70b",
        accelerators=(one_gpu_nodes,),
        workload=workload(2.0),
        objectives=(Objective(LatencyMetric.TTFT, 95.0, 0.5),),
    )
    with pytest.raises(NothingFitsError):
        search(asked, SETTINGS)
    nearest = nearest_that_fits(asked, SETTINGS, accelerators("h200-sxm-141gb"))
    assert nearest.startswith("with another accelerator: h200-sxm-141gb")


def test_try_candidates_answers_where_nothing_holds() -> None:
    result = try_candidates(question(limits=FleetLimits(maximum_gpus=1)), SETTINGS)
    assert result.candidates == ()
    assert result.ruled_out


def test_a_cancelled_search_stops() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CancelledError):
        search(question(objectives=CHATBOT_OBJECTIVES), dataclasses.replace(SETTINGS, cancellation=cancellation))
