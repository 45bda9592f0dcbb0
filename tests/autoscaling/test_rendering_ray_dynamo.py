"""Ray Serve and Dynamo's planner take unknown keys without a word, so that we refuse them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferplan.autoscaling.policy import AutoscalingSignal, ScalingRule, SignalKind
from inferplan.autoscaling.rendering.known_fields import require_known_fields
from inferplan.autoscaling.rendering.targets.dynamo import PLANNER_FIELDS
from inferplan.autoscaling.rendering.targets.ray_serve import CONFIG_FIELDS
from inferplan.errors import InvalidInputError
from inferplan.sizing.workload import LatencyMetric, Objective
from support.rendering import (
    KV_CACHE,
    QUEUE,
    RUNNING,
    check_schema,
    configuration,
    document,
    documents,
    losses_of,
    lost_fields,
    metrics_of,
    policy,
    rendered,
)


def test_ray_counts_running_and_queued_together() -> None:
    deployment = document("ray-serve")["applications"][0]["args"]["llm_configs"][0]["deployment_config"]
    scaling = deployment["autoscaling_config"]
    assert scaling["target_ongoing_requests"] == 20 + 48
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (2, 8)
    assert (scaling["upscale_delay_s"], scaling["downscale_delay_s"]) == (90, 300)
    ongoing = policy(signals=(AutoscalingSignal(SignalKind.ONGOING, 60.0, per_replica=True),))
    deployment = document("ray-serve", policy=ongoing)["applications"][0]["args"]["llm_configs"][0]["deployment_config"]
    assert deployment["autoscaling_config"]["target_ongoing_requests"] == 60


def test_ray_always_states_targets_since_the_defaults_never_scale() -> None:
    deployment = document("ray-serve", policy=policy(maximum_concurrency_per_replica=100))
    config = deployment["applications"][0]["args"]["llm_configs"][0]["deployment_config"]
    assert config["max_ongoing_requests"] == 100
    assert config["autoscaling_config"]["target_ongoing_requests"] <= config["max_ongoing_requests"]


def test_ray_looks_back_no_longer_than_its_delay() -> None:
    """A delay shorter than the look-back makes replicas start and stop in turns (ray issue 26455)."""
    quick = policy(scale_up=ScalingRule(10.0), scale_down=ScalingRule(300.0))
    config = document("ray-serve", policy=quick)["applications"][0]["args"]["llm_configs"][0]["deployment_config"]
    assert config["autoscaling_config"]["look_back_period_s"] <= 10


@pytest.mark.parametrize(
    "path", ["applications.0", "applications.0.args.llm_configs.0", "engine", "deployment", "autoscaling"]
)
def test_ray_injected_typo_is_refused_by_us(path: str) -> None:
    config = document("ray-serve")
    require_known_fields(config, CONFIG_FIELDS)
    llm = config["applications"][0]["args"]["llm_configs"][0]
    at = {
        "applications.0": config["applications"][0],
        "applications.0.args.llm_configs.0": llm,
        "engine": llm["engine_kwargs"],
        "deployment": llm["deployment_config"],
        "autoscaling": llm["deployment_config"]["autoscaling_config"],
    }[path]
    at["target_ongoing_request"] = 20
    with pytest.raises(InvalidInputError, match="no published field") as caught:
        require_known_fields(config, CONFIG_FIELDS)
    assert caught.value.violations[0].reason == "UNKNOWN_FIELD"
    if path == "autoscaling":
        assert "nearest: target_ongoing_requests" in str(caught.value)


def test_ray_goes_to_zero_from_a_floor_of_zero_only() -> None:
    zero = policy(allow_zero=True, minimum_replicas=0, warm_replicas=0)
    config = document("ray-serve", policy=zero)["applications"][0]["args"]["llm_configs"][0]["deployment_config"]
    assert config["autoscaling_config"]["min_replicas"] == 0
    assert config["autoscaling_config"]["downscale_to_zero_delay_s"] == 300
    assert "allow_zero" in lost_fields(rendered("ray-serve", policy=policy(allow_zero=True)))


def test_ray_runs_vllm_only_here() -> None:
    with pytest.raises(InvalidInputError, match="legal: vllm"):
        rendered("ray-serve", configuration=configuration(engine="sglang"))


def test_dynamo_keda_scales_the_adapter_and_reads_the_frontend() -> None:
    rendering = rendered("dynamo", {"graph_deployment": "my-llm", "namespace": "llm", "service": "decode"})
    scaled_object = documents(rendering)[0]
    check_schema(scaled_object, "scaledobject.json")
    assert scaled_object["spec"]["scaleTargetRef"] == {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeploymentScalingAdapter",
        "name": "my-llm-decode",
    }
    queue = scaled_object["spec"]["triggers"][0]["metadata"]["query"]
    assert metrics_of(queue) == {"dynamo_frontend_queued_requests"}
    assert 'dynamo_namespace="llm-my-llm"' in queue
    assert {"signals[0].origin", "signals[1].origin"} <= lost_fields(rendering)


def test_dynamo_has_one_writer_of_replicas() -> None:
    keda = rendered("dynamo")
    assert [document["kind"] for document in documents(keda)] == ["ScaledObject"]
    planner = rendered("dynamo", {"autoscaler": "planner"})
    assert "kind" not in documents(planner)[0]
    for rendering in (keda, planner):
        assert len(rendering.files) == 1


def test_dynamo_never_goes_to_zero() -> None:
    for options in ({}, {"autoscaler": "planner"}):
        rendering = rendered("dynamo", options, policy=policy(allow_zero=True, minimum_replicas=0, warm_replicas=0))
        assert "forgets a model" in losses_of(rendering, "allow_zero")


def test_planner_takes_kv_in_percent_and_gpus_for_replicas() -> None:
    config = document("dynamo", {"autoscaler": "planner"}, policy=policy(signals=(QUEUE, RUNNING, KV_CACHE)))
    assert config["optimization_target"] == "load"
    assert config["decode_scale_up_kv_rate"] == 85.0
    # After one of three replicas went, the two others carry 3/2 of the load: 85 x 2/3 = 56.6 stays below 85.
    assert config["decode_scale_down_kv_rate"] == 56.6
    assert config["max_gpu_budget"] == 8 * 2
    assert config["min_endpoint"] == 2


def test_planner_takes_objectives_in_milliseconds_without_a_kv_signal() -> None:
    config = document("dynamo", {"autoscaler": "planner"})
    assert (config["optimization_target"], config["ttft_ms"], config["itl_ms"]) == ("sla", 2000.0, 50.0)
    only_ttft = document("dynamo", {"autoscaler": "planner"}, objectives=(Objective(LatencyMetric.TTFT, 95.0, 2.0),))
    assert only_ttft["optimization_target"] == "throughput"


def test_planner_injected_typo_is_refused_by_us() -> None:
    config = document("dynamo", {"autoscaler": "planner"})
    require_known_fields(config, PLANNER_FIELDS)
    with pytest.raises(InvalidInputError, match="nearest: min_endpoint"):
        require_known_fields({**config, "min_endpoints": 2}, PLANNER_FIELDS)


def test_planner_reports_every_signal_that_it_does_not_take() -> None:
    signals = (QUEUE, RUNNING, replace(KV_CACHE, per_replica=False))
    rendering = rendered("dynamo", {"autoscaler": "planner"}, policy=policy(signals=signals))
    assert {"signals[0]", "signals[1]", "signals[2]", "scale_up", "scale_down", "missing_metrics"} <= lost_fields(
        rendering
    )
