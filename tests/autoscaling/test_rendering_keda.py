"""KEDA ScaledObject: the traps of its fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inferplan.autoscaling.policy import MissingMetricBehavior, ScalingRule, WarmKind
from inferplan.errors import InvalidInputError
from support.rendering import (
    GATEWAY_QUEUE,
    GATEWAY_RUNNING,
    KV_CACHE,
    QUEUE,
    RUNNING,
    TTFT,
    SchemaError,
    check_schema,
    configuration,
    document,
    losses_of,
    lost_fields,
    metrics_of,
    policy,
    rendered,
)


def _triggers(scaled_object: Any) -> dict[str, Any]:
    return {trigger["name"]: trigger for trigger in scaled_object["spec"]["triggers"]}


def test_worked_example_renders_without_losses() -> None:
    assert rendered("keda").losses == ()
    spec = document("keda")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 8)  # 1 + 1 warm
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleUp"]["policies"] == [{"type": "Pods", "value": 2, "periodSeconds": 90}]
    assert behavior["scaleDown"] == {
        "stabilizationWindowSeconds": 300,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"signals": (QUEUE, RUNNING, KV_CACHE, TTFT)},
        {"scale_up": ScalingRule(0.0), "scale_down": ScalingRule(5000.0, sustain_seconds=4000.0)},
        {"missing_metrics": MissingMetricBehavior.FIXED, "missing_metrics_replicas": 4},
        {"warm_kind": WarmKind.HOT_AHEAD},
        {"allow_zero": True, "minimum_replicas": 0, "warm_replicas": 0},
        {"signals": (TTFT,)},
    ],
)
def test_objects_match_the_strict_schema(changes: dict[str, Any]) -> None:
    check_schema(document("keda", policy=policy(**changes)), "scaledobject.json")
    check_schema(document("keda", {"kubernetes_version": "1.33"}, policy=policy(**changes)), "scaledobject.json")


@pytest.mark.parametrize("path", ["spec", "spec.triggers.0", "spec.triggers.0.metadata", "spec.fallback", "metadata"])
def test_injected_typo_fails_the_schema(path: str) -> None:
    broken = document("keda")
    at = broken
    for part in path.split("."):
        at = at[int(part)] if part.isdigit() else at[part]
    at["treshold"] = "20"
    with pytest.raises(SchemaError, match="treshold"):
        check_schema(broken, "scaledobject.json")


def test_cooldown_period_acts_on_zero_only_so_that_cooldowns_are_behaviour() -> None:
    assert "cooldownPeriod" not in document("keda")["spec"]
    to_zero = policy(allow_zero=True, signals=(GATEWAY_QUEUE, GATEWAY_RUNNING))
    spec = document("keda", {"gateway": "llm-d"}, policy=to_zero)["spec"]
    assert spec["cooldownPeriod"] == 300
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] == 300


def test_trigger_metadata_are_strings() -> None:
    everything = policy(signals=(QUEUE, RUNNING, KV_CACHE, TTFT))
    for trigger in document("keda", policy=everything)["spec"]["triggers"]:
        assert all(isinstance(value, str) for value in trigger["metadata"].values())


@pytest.mark.parametrize(("target", "text"), [(20.0, "20"), (1e7, "10000000"), (0.85, "0.85"), (12.8, "12.8")])
def test_thresholds_are_plain_decimals(target: float, text: str) -> None:
    rendering = document("keda", policy=policy(signals=(replace(QUEUE, target=target), RUNNING)))
    assert _triggers(rendering)["queue-depth"]["metadata"]["threshold"] == text


def test_missing_data_is_an_error_with_a_fallback() -> None:
    spec = document("keda")["spec"]
    assert {trigger["metadata"]["ignoreNullValues"] for trigger in spec["triggers"]} == {"false"}
    assert spec["fallback"] == {"failureThreshold": 4, "replicas": 2, "behavior": "currentReplicas"}


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [(MissingMetricBehavior.HOLD_OR_RAISE, "currentReplicasIfHigher"), (MissingMetricBehavior.FIXED, "static")],
)
def test_fallback_follows_the_policy(behavior: MissingMetricBehavior, expected: str) -> None:
    missing = policy(missing_metrics=behavior, missing_metrics_replicas=5)
    fallback = document("keda", policy=missing)["spec"]["fallback"]
    assert fallback == {"failureThreshold": 4, "replicas": 5, "behavior": expected}


def test_counts_are_averages_and_latency_is_a_value() -> None:
    everything = policy(signals=(QUEUE, RUNNING, KV_CACHE, TTFT))
    triggers = _triggers(document("keda", policy=everything))
    assert {name: trigger["metricType"] for name, trigger in triggers.items()} == {
        "queue-depth": "AverageValue",
        "running": "AverageValue",
        "kv-cache-ratio": "AverageValue",
        "ttft-p95": "Value",
    }
    # KEDA has no fallback for a Value, and none at all where every trigger is one.
    assert "missing_metrics" in lost_fields(rendered("keda", policy=everything))
    assert "fallback" not in document("keda", policy=policy(signals=(TTFT,)))["spec"]


def test_queries_are_sums_of_the_fleet_and_not_divided() -> None:
    for trigger in document("keda")["spec"]["triggers"]:
        query = trigger["metadata"]["query"]
        assert query.startswith("sum(")
        assert "/" not in query.replace("meta-llama/Llama", "")


def test_engine_signals_never_let_the_fleet_go_to_zero() -> None:
    rendering = rendered("keda", policy=policy(allow_zero=True, minimum_replicas=0, warm_replicas=0))
    assert "metrics vanish with the last replica" in losses_of(rendering, "allow_zero")
    assert "minReplicaCount: 1" in rendering.files[0].content
    assert "idleReplicaCount" not in rendering.files[0].content


def test_gateway_signals_let_the_fleet_go_to_zero_and_wake() -> None:
    at_gateway = {"allow_zero": True, "signals": (GATEWAY_QUEUE, GATEWAY_RUNNING, RUNNING)}
    rendering = rendered("keda", {"gateway": "llm-d"}, policy=policy(**at_gateway))
    spec = document("keda", {"gateway": "llm-d"}, policy=policy(**at_gateway))["spec"]
    assert (spec["idleReplicaCount"], spec["minReplicaCount"]) == (0, 2)
    assert "allow_zero" not in lost_fields(rendering)
    gateway, _, engine = spec["triggers"]
    assert gateway["metadata"]["activationThreshold"] == "0"
    # The engine's own metric is gone at zero; an error there would start the fallback and wake the fleet for nothing.
    assert gateway["metadata"]["ignoreNullValues"] == "false"
    assert engine["metadata"]["ignoreNullValues"] == "true"
    assert "counts as 0" in losses_of(rendering, "missing_metrics")


def test_gateway_queue_gives_zero_and_not_nothing_before_its_first_request() -> None:
    at_gateway = policy(signals=(GATEWAY_QUEUE, GATEWAY_RUNNING))
    query = _triggers(document("keda", {"gateway": "llm-d"}, policy=at_gateway))["queue-depth"]["metadata"]["query"]
    assert metrics_of(query) == {"llm_d_epp_flow_control_queue_size", "llm_d_epp_ready_endpoints"}


def test_warm_replicas_ahead_are_added_to_the_query() -> None:
    ahead = policy(warm_kind=WarmKind.HOT_AHEAD, warm_replicas=2)
    rendering = document("keda", policy=ahead)
    assert rendering["spec"]["minReplicaCount"] == 1
    query = _triggers(rendering)["running"]["metadata"]["query"]
    assert query.endswith(" + 96")  # 2 replicas x 48: ceil((running + 96) / 48) = ceil(running / 48) + 2
    metrics_of(query)


def test_several_nodes_are_scaled_as_a_leader_worker_set() -> None:
    two_nodes = configuration(gpus_per_replica=16)
    reference = document("keda", configuration=two_nodes)["spec"]["scaleTargetRef"]
    assert reference == {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "chat"}
    with pytest.raises(InvalidInputError, match="LeaderWorkerSet"):
        rendered("keda", {"scale_target_kind": "Deployment"}, configuration=two_nodes)


def test_absolute_queue_target_is_reported_and_left_out() -> None:
    absolute = policy(signals=(replace(QUEUE, per_replica=False), RUNNING))
    rendering = rendered("keda", policy=absolute)
    assert "does not settle" in losses_of(rendering, "signals[0]")
    with pytest.raises(InvalidInputError, match="no signal that this target can read"):
        rendered("keda", policy=policy(signals=(replace(RUNNING, per_replica=False),)))
