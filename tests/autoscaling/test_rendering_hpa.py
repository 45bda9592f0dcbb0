"""HorizontalPodAutoscaler: Kubernetes' own schemas, and what they do not check."""

from __future__ import annotations

from typing import Any

import pytest

from inferplan.autoscaling.policy import MissingMetricBehavior, ScalingRule
from inferplan.errors import InvalidInputError
from support.rendering import (
    GATEWAY_QUEUE,
    GATEWAY_RUNNING,
    KV_CACHE,
    QUEUE,
    RUNNING,
    TTFT,
    SchemaError,
    check_kubernetes,
    check_schema,
    document,
    documents,
    losses_of,
    lost_fields,
    metrics_of,
    policy,
    rendered,
)

VERSIONS = ["1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]

EVERYTHING = policy(
    signals=(QUEUE, RUNNING, KV_CACHE, TTFT),
    scale_up=ScalingRule(90.0, sustain_seconds=30.0, maximum_step_replicas=2, tolerance=0.05),
    scale_down=ScalingRule(300.0, maximum_step_replicas=1, tolerance=0.2),
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("source", ["pods", "external"])
def test_kubernetes_takes_it_strictly(version: str, source: str) -> None:
    options = {"kubernetes_version": version, "metric_source": source}
    check_kubernetes(document("hpa", options, policy=EVERYTHING), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_injected_typo_fails(version: str) -> None:
    broken = document("hpa")
    broken["spec"]["behavior"]["scaleUp"]["stabilisationWindowSeconds"] = 0
    with pytest.raises(SchemaError, match="stabilisationWindowSeconds"):
        check_kubernetes(broken, version)


def test_worked_example_renders_without_losses() -> None:
    assert rendered("hpa").losses == ()
    spec = document("hpa")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 8)


def test_queue_is_an_average_never_a_value() -> None:
    for source in ("pods", "external"):
        for metric in document("hpa", {"metric_source": source})["spec"]["metrics"]:
            target = metric[source]["target"]
            assert target["type"] == "AverageValue"
            assert "value" not in target
    at_gateway = policy(signals=(GATEWAY_QUEUE, GATEWAY_RUNNING))
    metrics = document("hpa", {"gateway": "llm-d"}, policy=at_gateway)["spec"]["metrics"]
    assert [metric["type"] for metric in metrics] == ["External", "External"]
    assert metrics[0]["external"]["target"] == {"type": "AverageValue", "averageValue": "20"}


def test_fractions_are_quantities_in_thousandths_and_latency_is_a_value() -> None:
    metrics = document("hpa", policy=EVERYTHING)["spec"]["metrics"]
    assert metrics[2]["pods"]["target"] == {"type": "AverageValue", "averageValue": "850m"}
    assert metrics[3]["external"]["target"] == {"type": "Value", "value": "2"}


def test_tolerance_from_1_33_on_only() -> None:
    new = document("hpa", {"kubernetes_version": "1.33"}, policy=EVERYTHING)["spec"]["behavior"]
    assert (new["scaleUp"]["tolerance"], new["scaleDown"]["tolerance"]) == ("0.05", "0.2")
    old = rendered("hpa", {"kubernetes_version": "1.32"}, policy=EVERYTHING)
    assert "tolerance" not in documents(old)[0]["spec"]["behavior"]["scaleUp"]
    assert {"scale_up.tolerance", "scale_down.tolerance"} <= lost_fields(old)
    # The schema of 1.32 does not know the field, so that rendering it there would fail the strict check.
    with pytest.raises(SchemaError, match="tolerance"):
        check_kubernetes(document("hpa", {"kubernetes_version": "1.33"}, policy=EVERYTHING), "1.32")


def test_windows_and_periods_stay_within_what_kubernetes_takes() -> None:
    slow = policy(
        scale_up=ScalingRule(2000.0, sustain_seconds=5000.0, maximum_step_replicas=1),
        scale_down=ScalingRule(4000.0, maximum_step_replicas=1),
    )
    rendering = rendered("hpa", policy=slow)
    behavior = documents(rendering)[0]["spec"]["behavior"]
    for rules in behavior.values():
        assert rules["stabilizationWindowSeconds"] == 3600
        assert rules["policies"][0]["periodSeconds"] == 1800
    assert {"scale_up.cooldown", "scale_up.sustain", "scale_down.cooldown"} <= lost_fields(rendering)
    exact = policy(scale_up=ScalingRule(1800.0, sustain_seconds=3600.0, maximum_step_replicas=1))
    assert rendered("hpa", policy=exact).losses == ()


def test_rest_without_a_step_limit_is_a_loss() -> None:
    rendering = rendered("hpa", policy=policy(scale_up=ScalingRule(90.0)))
    assert "does not rest after it acted" in losses_of(rendering, "scale_up.cooldown")
    up = documents(rendering)[0]["spec"]["behavior"]["scaleUp"]
    assert up["policies"] == [{"type": "Percent", "value": 100, "periodSeconds": 90}]


def test_zero_and_fixed_fallback_are_losses() -> None:
    rendering = rendered(
        "hpa",
        policy=policy(
            allow_zero=True,
            minimum_replicas=0,
            warm_replicas=0,
            missing_metrics=MissingMetricBehavior.FIXED,
            missing_metrics_replicas=4,
        ),
    )
    assert documents(rendering)[0]["spec"]["minReplicas"] == 1
    assert {"allow_zero", "missing_metrics"} <= lost_fields(rendering)


def test_metric_names_are_configurable_and_served_by_the_adapter() -> None:
    options = {"queue_depth_metric": "vllm_num_requests_waiting"}
    rendering = rendered("hpa", options, policy=EVERYTHING)
    names = [
        (metric.get("pods") or metric["external"])["metric"]["name"]
        for metric in documents(rendering)[0]["spec"]["metrics"]
    ]
    assert names[0] == "vllm_num_requests_waiting"
    rules = documents(rendering, 1)[0]["rules"]
    assert [rule["name"]["as"] for rule in rules["custom"] + rules["external"]] == names
    with pytest.raises(InvalidInputError, match="metric name"):
        rendered("hpa", {"queue_depth_metric": "vllm-waiting"})


@pytest.mark.parametrize("source", ["pods", "external"])
def test_adapter_rules_match_their_schema_and_parse(source: str) -> None:
    values = documents(rendered("hpa", {"metric_source": source}, policy=EVERYTHING), 1)[0]
    check_schema(values, "prometheusadapter.json")
    for rule in values["rules"].get("custom", []):
        filled = rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.Series>>", "x")
        metrics_of(filled.replace("<<.LabelMatchers>>", 'namespace="default"'))
    for rule in values["rules"].get("external", []):
        metrics_of(rule["metricsQuery"])
    values["rules"]["extenal"] = []
    with pytest.raises(SchemaError, match="extenal"):
        check_schema(values, "prometheusadapter.json")


def test_engine_metrics_of_pods_collapse_tensor_parallel_ranks() -> None:
    changes: dict[str, Any] = {"metric_dialect": "sglang"}
    rule = documents(rendered("hpa", **changes), 1)[0]["rules"]["custom"][0]
    assert rule["metricsQuery"].startswith("sum by (<<.GroupBy>>) (max by (<<.GroupBy>>, dp_rank) (")


def test_model_name_that_the_adapter_takes_for_a_template_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="template"):
        rendered("hpa", model_name="a<<b")
