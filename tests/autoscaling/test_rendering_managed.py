"""Knative and SageMaker."""

from __future__ import annotations

import json
from typing import Any

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

from inferplan.autoscaling.policy import ScalingRule
from support.rendering import QUEUE, SchemaError, check_schema, document, losses_of, lost_fields, policy, rendered

OPERATIONS = ("RegisterScalableTarget", "PutScalingPolicy")


def _annotations(service: Any) -> Any:
    return service["spec"]["template"]["metadata"]["annotations"]


@pytest.mark.parametrize("changes", [{}, {"maximum_concurrency_per_replica": 100}, {"drain_seconds": 900.0}])
def test_knative_matches_the_strict_schema(changes: dict[str, Any]) -> None:
    check_schema(document("knative", policy=policy(**changes)), "knativeservice.json")


def test_knative_injected_typo_fails_the_schema() -> None:
    broken = document("knative")
    _annotations(broken)["autoscaling.knative.dev/min-scales"] = "2"
    with pytest.raises(SchemaError, match="min-scales"):
        check_schema(broken, "knativeservice.json")


def test_knative_target_is_not_cut_to_seventy_percent() -> None:
    found = _annotations(document("knative"))
    assert found["autoscaling.knative.dev/target"] == "68"  # 20 queued + 48 running
    assert found["autoscaling.knative.dev/target-utilization-percentage"] == "100"
    assert found["autoscaling.knative.dev/window"] == "90s"
    assert found["autoscaling.knative.dev/scale-down-delay"] == "300s"


def test_knative_windows_stay_within_bounds() -> None:
    rendering = rendered("knative", policy=policy(scale_up=ScalingRule(2.0), scale_down=ScalingRule(7200.0)))
    assert 'window: "6s"' in rendering.files[0].content
    assert 'scale-down-delay: "3600s"' in rendering.files[0].content
    assert "0 to 3600 s" in losses_of(rendering, "scale_down.cooldown")


def test_knative_gives_requests_time_to_drain() -> None:
    spec = document("knative", policy=policy(drain_seconds=500.0))["spec"]["template"]["spec"]
    assert spec["timeoutSeconds"] == 500
    assert "max-revision-timeout-seconds" in losses_of(
        rendered("knative", policy=policy(drain_seconds=700.0)), "drain_seconds"
    )


def _operation_input(operation: str) -> Any:
    return (
        botocore.session.Session().get_service_model("application-autoscaling").operation_model(operation).input_shape
    )


@pytest.mark.parametrize("options", [{}, {"resource": "variant", "replicas_per_instance": "4"}])
@pytest.mark.parametrize("index", [0, 1])
def test_botocore_takes_the_input_of_both_operations(index: int, options: dict[str, str]) -> None:
    shape = _operation_input(OPERATIONS[index])
    value = json.loads(rendered("sagemaker", options).files[index].content)
    report = ParamValidator().validate(value, shape)
    assert not report.has_errors(), report.generate_report()
    for name, member in shape.members.items():  # the validator leaves enumerations and lengths to the service
        if getattr(member, "enum", None) and name in value:
            assert value[name] in member.enum
    if index == 1:
        configuration = shape.members["TargetTrackingScalingPolicyConfiguration"]
        metric = configuration.members["PredefinedMetricSpecification"].members["PredefinedMetricType"]
        tracking = value["TargetTrackingScalingPolicyConfiguration"]
        assert tracking["PredefinedMetricSpecification"]["PredefinedMetricType"] in metric.enum


@pytest.mark.parametrize("index", [0, 1])
def test_botocore_refuses_an_injected_typo(index: int) -> None:
    value = json.loads(rendered("sagemaker").files[index].content)
    value["ScaleableDimension"] = value.pop("ScalableDimension")
    report = ParamValidator().validate(value, _operation_input(OPERATIONS[index]))
    assert "ScaleableDimension" in report.generate_report()


def test_sagemaker_tracks_requests_in_flight_a_copy_with_both_cooldowns() -> None:
    rendering = rendered("sagemaker")
    register, put = (json.loads(file.content) for file in rendering.files)
    assert (register["MinCapacity"], register["MaxCapacity"]) == (2, 8)
    tracking = put["TargetTrackingScalingPolicyConfiguration"]
    assert (tracking["TargetValue"], tracking["ScaleOutCooldown"], tracking["ScaleInCooldown"]) == (68.0, 90, 300)
    assert {"signals[0]", "signals[1]", "missing_metrics", "maximum_replicas"} <= lost_fields(rendering)


def test_sagemaker_counts_instances_of_a_variant_rounded_up() -> None:
    options = {"resource": "variant", "replicas_per_instance": "3", "resource_name": "chat", "variant": "main"}
    register = json.loads(rendered("sagemaker", options).files[0].content)
    assert register["ResourceId"] == "endpoint/chat/variant/main"
    assert register["ScalableDimension"] == "sagemaker:variant:DesiredInstanceCount"
    assert (register["MinCapacity"], register["MaxCapacity"]) == (1, 3)


def test_sagemaker_has_no_queue_signal() -> None:
    rendering = rendered("sagemaker", policy=policy(signals=(QUEUE,)))
    assert "counted together" in losses_of(rendering, "signals[0]")
