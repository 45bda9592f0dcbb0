"""KServe: LLMInferenceService hands fields on to KEDA, InferenceService drops most of them."""

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
    check_schema,
    configuration,
    document,
    documents,
    losses_of,
    lost_fields,
    policy,
    rendered,
)

CHANGES: list[dict[str, Any]] = [
    {},
    {"signals": (QUEUE, RUNNING, KV_CACHE, TTFT)},
    {"pre_stop_seconds": 15.0, "drain_seconds": 45.0},
    {"missing_metrics": MissingMetricBehavior.HOLD_OR_RAISE, "missing_metrics_replicas": 4},
    {"allow_zero": True, "minimum_replicas": 0, "warm_replicas": 0},
    {"scale_up": ScalingRule(90.0, sustain_seconds=30.0)},
]


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize(
    ("target", "schema"), [("kserve", "inferenceservice.json"), ("kserve-llm", "llminferenceservice.json")]
)
def test_objects_match_the_strict_schema(target: str, schema: str, changes: dict[str, Any]) -> None:
    check_schema(document(target, policy=policy(**changes)), schema)


@pytest.mark.parametrize(
    ("target", "schema", "path"),
    [
        ("kserve", "inferenceservice.json", ["predictor"]),
        ("kserve", "inferenceservice.json", ["predictor", "autoScaling"]),
        ("kserve-llm", "llminferenceservice.json", []),
        ("kserve-llm", "llminferenceservice.json", ["scaling", "keda"]),
    ],
)
def test_injected_typo_fails_the_schema(target: str, schema: str, path: list[str]) -> None:
    broken = document(target)
    at = broken["spec"]
    for part in path:
        at = at[part]
    at["maxReplica"] = 8
    with pytest.raises(SchemaError, match="maxReplica"):
        check_schema(broken, schema)


def test_inference_service_states_value_and_never_average_value() -> None:
    """KServe reads target.value alone: an averageValue would give KEDA a threshold of 0."""
    metrics = document("kserve", policy=policy(signals=(QUEUE, RUNNING, KV_CACHE)))["spec"]["predictor"]["autoScaling"]
    targets = [metric["external"]["target"] for metric in metrics["metrics"]]
    assert targets == [
        {"type": "Value", "value": "20"},
        {"type": "Value", "value": "48"},
        {"type": "Value", "value": "850m"},
    ]


def test_inference_service_drops_behaviour_policies_and_fallback_with_a_loss() -> None:
    rendering = rendered("kserve")
    behavior = documents(rendering)[0]["spec"]["predictor"]["autoScaling"]["behavior"]
    assert behavior == {
        "scaleUp": {"stabilizationWindowSeconds": 0},
        "scaleDown": {"stabilizationWindowSeconds": 300},
    }
    assert {
        "scale_up.cooldown",
        "scale_up.maximum_step_replicas",
        "scale_down.maximum_step_replicas",
        "missing_metrics",
    } <= lost_fields(rendering)


def test_inference_service_has_no_place_for_latency_which_keda_would_divide() -> None:
    rendering = rendered("kserve", policy=policy(signals=(QUEUE, RUNNING, TTFT)))
    assert "divides every metric by replicas" in losses_of(rendering, "signals[2]")
    assert len(documents(rendering)[0]["spec"]["predictor"]["autoScaling"]["metrics"]) == 2


def test_inference_service_is_of_class_keda() -> None:
    annotations = document("kserve")["metadata"]["annotations"]
    assert annotations["serving.kserve.io/autoscalerClass"] == "keda"
    assert annotations["serving.kserve.io/deploymentMode"] == "Standard"


def test_llm_inference_service_hands_everything_on_to_keda() -> None:
    assert rendered("kserve-llm").losses == ()
    keda = document("kserve-llm")["spec"]["scaling"]["keda"]
    scaled_object = document("keda")["spec"]
    assert all(keda[key] == scaled_object[key] for key in ("fallback", "advanced", "triggers", "pollingInterval"))


def test_llm_inference_service_idles_at_zero_from_a_floor_of_one_or_more() -> None:
    to_zero = policy(allow_zero=True, signals=(GATEWAY_QUEUE, GATEWAY_RUNNING))
    scaling = document("kserve-llm", {"gateway": "llm-d"}, policy=to_zero)["spec"]["scaling"]
    assert (scaling["minReplicas"], scaling["keda"]["idleReplicaCount"]) == (2, 0)


def test_grace_is_more_than_pre_stop_and_drain() -> None:
    draining = policy(pre_stop_seconds=15.0, drain_seconds=45.0)
    spec = document("kserve-llm", policy=draining)["spec"]
    assert spec["template"]["terminationGracePeriodSeconds"] > 15 + 45
    predictor = document("kserve", policy=draining)["spec"]["predictor"]
    assert predictor["terminationGracePeriodSeconds"] > 15 + 45


def test_only_vllm_and_only_with_a_repository_or_a_uri() -> None:
    with pytest.raises(InvalidInputError, match="sglang"):
        rendered("kserve", configuration=configuration(engine="sglang"), metric_dialect="sglang")
    with pytest.raises(InvalidInputError, match=r"options\[model_uri\]"):
        rendered("kserve-llm", model_name="llama-3.1-8b")
    spec = document("kserve-llm", {"model_uri": "pvc://models/llama"}, model_name="llama-3.1-8b")["spec"]
    assert spec["model"] == {"uri": "pvc://models/llama", "name": "llama-3.1-8b"}
