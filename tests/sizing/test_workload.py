"""Workloads and objectives that do not go together are refused, all slips at once."""

from __future__ import annotations

import pytest

from inferplan.errors import Violation
from inferplan.sizing.workload import (
    ArrivalProcess,
    Arrivals,
    ConstantLength,
    LatencyMetric,
    LengthPair,
    LognormalLength,
    Objective,
    TrafficClass,
    UniformLength,
    Workload,
    objective_violations,
    workload_violations,
)

CHAT = TrafficClass(requests_per_second=10.0, input_tokens=ConstantLength(500), output_tokens=UniformLength(100, 300))


def fields(violations: list[Violation]) -> list[str]:
    return [violation.field for violation in violations]


def test_a_plain_workload_is_legal() -> None:
    assert workload_violations(Workload((CHAT,))) == []
    assert CHAT.mean_output_tokens == 200
    assert CHAT.longest_context_tokens == 800


def test_observed_pairs_replace_the_distributions() -> None:
    pairs = TrafficClass(requests_per_second=1.0, length_pairs=(LengthPair(10, 20), LengthPair(30, 2)))
    assert workload_violations(Workload((pairs,))) == []
    assert (pairs.mean_input_tokens, pairs.mean_output_tokens, pairs.longest_context_tokens) == (20, 11, 32)


def test_every_slip_is_told_at_once() -> None:
    broken = TrafficClass(
        requests_per_second=1.0,
        arrivals=Arrivals(ArrivalProcess.GAMMA, trace_offsets_seconds=(-1.0, 3.0, 2.0)),
        output_tokens=ConstantLength(5),
    )
    twice = TrafficClass(
        traffic_class_id="chat",
        requests_per_second=1.0,
        input_tokens=CHAT.input_tokens,
        output_tokens=CHAT.output_tokens,
        length_pairs=(LengthPair(1, 1),),
    )
    same = TrafficClass(
        traffic_class_id="chat",
        requests_per_second=1.0,
        input_tokens=CHAT.input_tokens,
        output_tokens=CHAT.output_tokens,
    )
    found = fields(workload_violations(Workload((broken, twice, same))))
    assert found == [
        "workload.traffic_classes[0].traffic_class_id",
        "workload.traffic_classes[0].input_tokens",
        "workload.traffic_classes[0].arrivals.coefficient_of_variation",
        "workload.traffic_classes[0].arrivals.trace_offsets",
        "workload.traffic_classes[0].arrivals.trace_offsets[0]",
        "workload.traffic_classes[0].arrivals.trace_offsets[2]",
        "workload.traffic_classes[1].length_pairs",
        "workload.traffic_classes[2].traffic_class_id",
    ]


@pytest.mark.parametrize(
    ("objectives", "reason"),
    [
        ([("ttft", 95, 0.5), ("ttft", 95, 0.4)], "CONTRADICTION"),
        ([("ttft", 50, 0.6), ("ttft", 95, 0.5)], "CONTRADICTION"),
        ([("end_to_end", 95, 1.0), ("ttft", 95, 2.0)], "CONTRADICTION"),
    ],
)
def test_contradicting_objectives(objectives: list[tuple[str, float, float]], reason: str) -> None:
    parsed = [Objective(LatencyMetric(metric), percentile, seconds) for metric, percentile, seconds in objectives]
    violations = objective_violations(parsed, Workload((CHAT,)))
    assert [(item.field, item.reason) for item in violations] == [("objectives[1]", reason)]


def test_objectives_that_go_together() -> None:
    parsed = [
        Objective(LatencyMetric.TTFT, 50, 0.2),
        Objective(LatencyMetric.TTFT, 95, 0.5),
        Objective(LatencyMetric.END_TO_END, 95, 5.0),
        Objective(LatencyMetric.END_TO_END, 50, 0.4),
    ]
    assert objective_violations(parsed, Workload((CHAT,))) == []


def test_an_objective_of_an_unknown_class_names_the_known_ones() -> None:
    chat = TrafficClass("chat", 1.0, input_tokens=ConstantLength(1), output_tokens=ConstantLength(1))
    (violation,) = objective_violations([Objective(LatencyMetric.TTFT, 95, 1.0, "chta")], Workload((chat,)))
    assert violation.field == "objectives[0].traffic_class_id"
    assert "legal: chat" in violation.description


def test_the_longest_lognormal_length_is_its_cut_or_its_far_tail() -> None:
    assert LognormalLength(500, 1.0, 2000).longest_tokens == 2000
    # sigma^2 = ln 2; the 99.9th percentile is 500 x exp(3.0902 x 0.8326 - 0.3466) = 500 x 9.27
    assert LognormalLength(500, 1.0).longest_tokens == pytest.approx(4633, abs=5)
