"""Whole plans by the SIMULATED method: the worked example with its right values, and what does not fit."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.autoscaling.policy import SignalKind
from inferplan.catalog import read_huggingface_config
from inferplan.errors import CancelledError, NothingFitsError
from inferplan.planning.coefficients import efficiency_of_use
from inferplan.planning.simulated_plan import (
    plan_by_simulation,
    simulated_setup_violations,
    simulated_violations,
)
from inferplan.resources.plan import (
    Hardware,
    ModelSource,
    PlanContent,
    PlanInput,
    PlanMethod,
    Router,
    SimulationOptions,
)
from inferplan.simulation import Cancellation
from inferplan.sizing.candidates import CandidateReplica, build_replica
from inferplan.sizing.configuration import EngineSettings, ParallelismChoice
from inferplan.sizing.evaluation import EvaluationSettings, evaluate_fleet
from inferplan.sizing.fleet import LimitingFactor
from inferplan.sizing.performance import FleetEvidence, Outcome
from inferplan.sizing.workload import (
    ArrivalProcess,
    Arrivals,
    ConstantLength,
    LatencyMetric,
    Objective,
    TrafficClass,
    Workload,
)
from inferplan.storage.codec import decode_plan_content, encode_plan_content
from support.searches import CHATBOT_OBJECTIVES, catalog, question, workload

LLAMA_2_7B_CONFIG = Path(__file__).parents[2] / "docs" / "examples" / "llama-2-7b" / "config.json"
ONE_GPU = ParallelismChoice(tensor_parallel=1)


def worked_example(**changes: object) -> PlanInput:
    """docs/examples/chatbot.yaml as it stands, method left open."""
    plan_input = PlanInput(
        method=None,
        model=ModelSource(config_json=LLAMA_2_7B_CONFIG.read_text(encoding="utf-8"), headline_parameters=7e9),
        hardware=Hardware(accelerators=("h100-sxm-80gb",), parallelism=ONE_GPU, failures_to_survive=1),
        workload=workload(),
        engine=EngineSettings(engine="vllm"),
        objectives=CHATBOT_OBJECTIVES,
    )
    return dataclasses.replace(plan_input, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plan() -> PlanContent:
    return plan_by_simulation(catalog(), worked_example())


def own_evidence(content: PlanContent) -> list[FleetEvidence]:
    return [item for item in content.evidence if not item.summary.startswith("TEXTBOOK")]


def test_n_holds_and_one_less_does_not(plan: PlanContent) -> None:
    holding, failing, with_one_down = own_evidence(plan)
    active = plan.fleet.active_replicas
    assert 4 <= active <= 7
    assert (holding.replicas, holding.holds) == (active, True)
    assert (failing.replicas, failing.holds) == (active - 1, False)
    assert any(verdict.outcome is not Outcome.HOLDS for verdict in failing.verdicts)
    assert (with_one_down.replicas, with_one_down.replicas_down, with_one_down.holds) == (active + 1, 1, True)
    assert plan.verdicts == holding.verdicts
    assert {verdict.outcome for verdict in plan.verdicts} == {Outcome.HOLDS}


def test_percentiles_have_intervals_that_clear_the_objectives(plan: PlanContent) -> None:
    assert not plan.performance.saturated
    for objective in CHATBOT_OBJECTIVES:
        (latency,) = (item for item in plan.performance.latencies if item.metric is objective.metric)
        (value,) = (item for item in latency.percentiles if item.percentile == objective.percentile)
        assert value.low_seconds is not None
        assert value.high_seconds is not None
        assert value.low_seconds <= value.value_seconds <= value.high_seconds <= objective.maximum_seconds


def test_two_replicas_of_the_textbook_are_saturated_side_by_side(plan: PlanContent) -> None:
    (evidence,) = (item for item in plan.evidence if item.summary.startswith("TEXTBOOK"))
    assert (evidence.replicas, evidence.holds) == (2, False)
    assert evidence.performance.saturated
    (warning,) = (item for item in plan.warnings if item.code == "TEXTBOOK_UNDERPROVISIONS")
    assert warning.quantity("N_textbook") == 2
    assert warning.quantity("N_simulated") == plan.fleet.active_replicas
    assert warning.quantity("saturated") == 1
    # Two replicas complete about 2 x 20 of 100 requests/s; the rest queues up.
    assert 50 < warning.quantity("queue_growth") < 65
    assert warning.quantity("P95_TTFT") > 10
    assert warning.quantity("first_broken") < 10
    assert "2 active + 1 spare" in warning.message
    assert f"{plan.fleet.active_replicas} + 1" in warning.message


def test_no_comparison_where_the_textbook_cannot_take_the_request() -> None:
    content = plan_by_simulation(
        catalog(),
        worked_example(hardware=Hardware(accelerators=("h100-sxm-80gb", "l40s-48gb"), parallelism=ONE_GPU)),
    )
    assert not [item for item in content.warnings if item.code.startswith("TEXTBOOK")]
    assert len(content.evidence) == len(own_evidence(content))


def test_a_textbook_fleet_that_carries_the_load_is_said_to() -> None:
    content = plan_by_simulation(catalog(), worked_example(workload=workload(1.0)))
    assert [item.code for item in content.warnings if item.code.startswith("TEXTBOOK")] == ["TEXTBOOK_HOLDS"]
    assert content.fleet.active_replicas == 1
    holding, with_one_down = own_evidence(content)
    assert holding.holds
    assert with_one_down.replicas_down == 1


def test_capacity_is_less_than_one_share_of_the_failing_fleet(plan: PlanContent) -> None:
    capacity = plan.replica_capacity
    assert 14 < capacity.requests_per_second < 100 / (plan.fleet.active_replicas - 1)
    assert capacity.limiting_factor is LimitingFactor.OBJECTIVE
    assert "end-to-end" in capacity.limiting_detail
    assert not capacity.censored


def test_the_steps_explain_the_numbers(plan: PlanContent) -> None:
    values = {value.symbol: value for step in plan.steps for value in step.values}
    assert [step.number for step in plan.steps] == list(range(1, 7))
    assert values["N"].value == plan.fleet.active_replicas
    assert values["KV"].value == plan.memory.kv_cache_bytes
    spent = sum(item.value for item in values["KV"].inputs[1:])
    assert values["KV"].inputs[0].value - spent == pytest.approx(values["KV"].value)
    terms = ["T_gemm", "T_kv", "T_prefill", "T_comm", "T_el", "T_host"]
    assert sum(values[symbol].value for symbol in terms) == pytest.approx(values["T"].value)
    # The weights of Llama-2-7B without the embedding, 13.2 GB, at the share of 3.35 TB/s that was fitted.
    assert plan.calibration_use is not None
    (ratio,) = [item.value for item in plan.calibration_use.coefficients if item.symbol == "weight_bandwidth_ratio"]
    assert 0.9 < ratio <= 1.0
    assert values["T_w"].value == pytest.approx(13.2e9 / (ratio * 3.35e12), rel=0.01)
    assert values["X"].value == plan.replica_capacity.requests_per_second
    assert values["X"].value < values["X_bound"].value
    assert values["cost"].value == pytest.approx(plan.fleet.gpus * 6.16)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_the_memory_step_adds_up_for_every_engine(engine: str) -> None:
    """Engines differ in what they pay out of their share of the memory."""
    content = plan_by_simulation(catalog(), worked_example(engine=EngineSettings(engine=engine)))
    (kv_cache,) = (value for value in content.steps[0].values if value.symbol == "KV")
    budget, *spent = (item.value for item in kv_cache.inputs)
    assert budget - sum(spent) == pytest.approx(content.memory.kv_cache_bytes, rel=1e-9)


def test_the_autoscaling_policy_states_its_formulas(plan: PlanContent) -> None:
    policy = plan.autoscaling_policy
    queue, running = policy.signals
    assert (queue.kind, running.kind) == (SignalKind.QUEUE_DEPTH, SignalKind.RUNNING)
    # About (0.5 s - 0.03 s) x 18 completions/s.
    assert 6 <= queue.target <= 9
    assert running.target < plan.configuration.max_num_seqs
    assert (policy.minimum_replicas, policy.warm_replicas) == (plan.fleet.active_replicas, 1)
    assert policy.scale_up.cooldown_seconds >= 60
    fields = {derivation.field for derivation in policy.derivations}
    assert {"signals[0].target", "signals[1].target", "scale_up.cooldown", "maximum_replicas"} <= fields


def test_the_plan_says_where_its_coefficients_come_from(plan: PlanContent) -> None:
    assert plan.calibration == "calibrations/builtin-vllm"
    use = plan.calibration_use
    assert use is not None and use.calibration == plan.calibration
    assert {band.figure for band in use.error_bands} == {"ttft", "tpot", "e2e", "throughput"}
    # The newest release, which plans use by default, is none of those that were measured.
    assert use.widening > 1.0
    assert any("version was not measured" in reason for reason in use.extrapolations)
    assert "CALIBRATION_EXTRAPOLATES" in {item.code for item in plan.warnings}
    assert plan.input.method is PlanMethod.SIMULATED
    assert plan.resolved.model.architecture == read_huggingface_config(LLAMA_2_7B_CONFIG.read_text(encoding="utf-8"))


def test_the_same_input_gives_the_same_bytes(plan: PlanContent) -> None:
    payload = encode_plan_content(plan)
    assert encode_plan_content(plan_by_simulation(catalog(), worked_example())) == payload
    assert decode_plan_content(payload, 1) == plan
    assert plan.seed > 0


def test_the_stored_seed_repeats_the_plan_and_another_input_has_another(plan: PlanContent) -> None:
    fixed = plan_by_simulation(catalog(), worked_example(simulation=SimulationOptions(seed=plan.seed)))
    assert fixed.seed == plan.seed
    assert fixed.performance == plan.performance
    assert plan_by_simulation(catalog(), worked_example(workload=workload(99.0))).seed != plan.seed


def test_the_router_is_the_one_asked_for(plan: PlanContent) -> None:
    other = plan_by_simulation(catalog(), worked_example(simulation=SimulationOptions(plan.seed, Router.ROUND_ROBIN)))
    assert other.performance != plan.performance


def test_llama_3_1_8b_takes_two_to_four_replicas() -> None:
    content = plan_by_simulation(catalog(), worked_example(model=ModelSource(model="llama-3.1-8b")))
    assert 2 <= content.fleet.active_replicas <= 4


def test_alternatives_and_front_come_from_the_whole_search() -> None:
    names = ("h100-sxm-80gb", "h200-sxm-141gb", "a100-sxm-80gb", "l40s-48gb")
    content = plan_by_simulation(catalog(), worked_example(hardware=Hardware(accelerators=names)))
    assert len(content.alternatives) == 10
    costs = [item.fleet.cost_usd_per_hour for item in content.alternatives if item.fleet]
    assert [content.fleet.cost_usd_per_hour, *costs] == sorted([content.fleet.cost_usd_per_hour, *costs])
    assert content.configuration in [item.configuration for item in content.pareto_front]
    assert all(item.feasible and item.on_pareto_front for item in content.pareto_front)


def test_what_breaks_is_listed_with_its_rule() -> None:
    content = plan_by_simulation(
        catalog(),
        worked_example(
            hardware=Hardware(accelerators=("h100-sxm-80gb", "a100-sxm-80gb"), parallelism=ONE_GPU, maximum_gpus=7)
        ),
    )
    (broken,) = (
        item for item in content.alternatives if not item.feasible and item.broken_rules[0].rule == "GPU_QUOTA"
    )
    assert broken.configuration.accelerator == "a100-sxm-80gb"


def test_the_datasheet_can_be_asked_for_and_is_warned_of() -> None:
    content = plan_by_simulation(catalog(), dataclasses.replace(worked_example(), calibration="datasheet"))
    assert content.calibration == "datasheet"
    assert "CALIBRATION_IS_DATASHEET" in {item.code for item in content.warnings}
    assert 4 <= content.fleet.active_replicas <= 7


def test_nothing_fits_names_every_rule_and_the_nearest_that_would() -> None:
    with pytest.raises(NothingFitsError) as caught:
        plan_by_simulation(
            catalog(),
            worked_example(hardware=Hardware(accelerators=("h100-sxm-80gb",), parallelism=ONE_GPU, maximum_gpus=3)),
        )
    assert {rule.rule for rule in caught.value.broken_rules} == {"GPU_QUOTA"}
    assert "h100-sxm-80gb, tensor parallel 1" in caught.value.nearest
    found = re.search(r"GPUs (\d+)", caught.value.nearest)
    assert found is not None and 4 <= int(found.group(1)) <= 7


def test_a_cancelled_plan_is_not_made() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CancelledError):
        plan_by_simulation(catalog(), worked_example(), cancellation)


def test_too_few_requests_for_the_percentiles_are_refused() -> None:
    plan_input = worked_example(
        objectives=(Objective(LatencyMetric.TTFT, 99.0, 1.0),), simulation=SimulationOptions(maximum_requests=2000)
    )
    (violation,) = simulated_violations(plan_input, "plan.input")
    assert violation.field == "plan.input.simulation.maximum_requests"
    assert "5,556" in violation.description
    enough = dataclasses.replace(plan_input, simulation=SimulationOptions(maximum_requests=5556))
    assert simulated_violations(enough, "plan.input") == []


def test_a_parallelism_that_is_legal_nowhere_is_refused() -> None:
    hardware = Hardware(accelerators=("h100-sxm-80gb", "l40s-48gb"), parallelism=ParallelismChoice(tensor_parallel=3))
    violations = simulated_setup_violations(catalog(), worked_example(hardware=hardware), "plan.input")
    assert {violation.field for violation in violations} == {"plan.input.hardware.parallelism.tensor_parallel"}
    assert simulated_setup_violations(catalog(), worked_example(), "plan.input") == []


@settings(max_examples=5)
@given(
    rate=st.floats(1.0, 80.0),
    input_tokens=st.integers(20, 1500),
    output_tokens=st.integers(5, 300),
    ttft_seconds=st.floats(0.15, 2.0),
)
def test_the_plan_s_own_fleet_holds_and_one_less_does_not(
    rate: float, input_tokens: int, output_tokens: int, ttft_seconds: float
) -> None:
    plan_input = worked_example(
        model=ModelSource(model="llama-3.1-8b"),
        workload=Workload(
            (
                TrafficClass(
                    requests_per_second=rate,
                    input_tokens=ConstantLength(input_tokens),
                    output_tokens=ConstantLength(output_tokens),
                ),
            )
        ),
        objectives=(Objective(LatencyMetric.TTFT, 95.0, ttft_seconds),),
    )
    content = plan_by_simulation(catalog(), plan_input)
    asked = question(
        "llama-3.1-8b",
        workload=plan_input.workload,
        objectives=plan_input.objectives,
        parallelism=ONE_GPU,
        efficiency=efficiency_of_use(content.calibration_use),
    )
    # The evidence can be repeated by anyone from what the plan stores.
    replica = build_replica(asked, asked.accelerators[0], plan_input.engine, content.configuration.parallelism)
    assert isinstance(replica, CandidateReplica)
    again = EvaluationSettings(seed=content.seed)
    active = content.fleet.active_replicas
    assert evaluate_fleet(replica.model, asked.workload, asked.objectives, active, again).holds is True
    if active > 1:
        assert evaluate_fleet(replica.model, asked.workload, asked.objectives, active - 1, again).holds is not True


def test_a_rare_and_bursty_class_is_played_until_its_objective_can_be_judged() -> None:
    """One request in eleven is of it, in bursts: a short run may hold too few of them by chance."""
    prompt, output = ConstantLength(800), ConstantLength(250)
    bursts = Arrivals(ArrivalProcess.GAMMA, coefficient_of_variation=3.0)
    common = TrafficClass("chat", 10.0, input_tokens=prompt, output_tokens=output)
    rare = TrafficClass("batch", 1.0, arrivals=bursts, input_tokens=prompt, output_tokens=output)
    plan_input = worked_example(
        model=ModelSource(model="llama-3.1-8b"),
        workload=Workload((common, rare)),
        objectives=(Objective(LatencyMetric.END_TO_END, 90, 30.0, "batch"),),
    )
    content = plan_by_simulation(catalog(), plan_input)
    (verdict,) = content.verdicts
    assert verdict.outcome is Outcome.HOLDS
