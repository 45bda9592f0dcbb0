"""What holds for every target: names, options, contradictions, determinism, and that no value is lost in silence."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    AutoscalingSignal,
    ColdStart,
    MissingMetricBehavior,
    PolicyDerivation,
    ScalingRule,
    SignalKind,
    WarmKind,
)
from inferplan.autoscaling.rendering import known_targets, render
from inferplan.errors import InvalidInputError
from support.rendering import (
    GATEWAY_QUEUE,
    GATEWAY_RUNNING,
    KV_CACHE,
    QUEUE,
    RUNNING,
    TTFT,
    configuration,
    policy,
    rendered,
    request,
)

TARGETS = tuple(known_targets())

SCALERS = ("dynamo", "hpa", "keda", "knative", "kserve", "kserve-llm", "ray-serve", "sagemaker")

ISSUE_TARGETS = {
    *SCALERS,
    "vllm",
    "sglang",
    "tensorrt-llm",
    "drain",
    "warm-spares",
    "prometheus",
}


def test_every_planned_target_is_there() -> None:
    assert set(TARGETS) == ISSUE_TARGETS


def test_unknown_target_names_the_nearest_and_the_legal_ones() -> None:
    with pytest.raises(InvalidInputError, match="nearest: kserve-llm") as caught:
        render("kserve_llm", request())
    assert caught.value.violations[0].field == "target"
    assert all(name in str(caught.value) for name in TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_same_plan_gives_the_same_bytes(target: str) -> None:
    assert rendered(target) == rendered(target)


@pytest.mark.parametrize("target", TARGETS)
def test_files_name_plan_revision_and_formula(target: str) -> None:
    for file in rendered(target).files:
        assert "deployments/chat/plans/3" in file.content
        assert re.search(r"revision\W+3", file.content)
        if file.media_type != "application/json":  # JSON has no comments; sagemaker reports that loss
            assert "floor(0.4 x 50 concurrent sequences) = 20 requests" in file.content


@pytest.mark.parametrize("target", TARGETS)
def test_unknown_option_is_refused_with_the_nearest_and_the_legal_ones(target: str) -> None:
    key = known_targets()[target].options[0].key
    with pytest.raises(InvalidInputError, match=f"nearest: {key}; legal: ") as caught:
        rendered(target, {f"{key}z": "a", "zzz": "b"})
    assert [violation.field for violation in caught.value.violations] == [f"options[{key}z]", "options[zzz]"]


@pytest.mark.parametrize(
    "name", ["Chat", "-chat", "chat-", "chat_1", "chat.example", "ch at", "chat\n", "a" * 64, "chät", "chat:1"]
)
@pytest.mark.parametrize("key", ["name", "namespace", "scale_target_name"])
def test_names_that_kubernetes_refuses_are_refused(key: str, name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        rendered("keda", {key: name})
    assert caught.value.violations[0].field == f"options[{key}]"
    assert "63" in caught.value.violations[0].description


@pytest.mark.parametrize("target", ["kserve", "kserve-llm", "knative"])
def test_names_of_services_begin_with_a_letter(target: str) -> None:
    with pytest.raises(InvalidInputError, match="RFC 1035"):
        rendered(target, {"name": "1chat"})


def test_name_of_an_inference_service_leaves_room_for_what_the_controller_appends() -> None:
    rendered("kserve", {"name": "a" * (63 - len("-predictor"))})
    with pytest.raises(InvalidInputError, match=r"1 to 53"):
        rendered("kserve", {"name": "a" * 54})
    with pytest.raises(InvalidInputError, match=r"1 to 53"):
        rendered("kserve", plan_name=f"deployments/{'a' * 63}/plans/1")


def test_all_violations_are_told_at_once() -> None:
    bad = policy(minimum_replicas=9, signals=(QUEUE, replace(RUNNING, target=300.0)))
    with pytest.raises(InvalidInputError) as caught:
        rendered("keda", {"name": "X", "nam": "x"}, policy=bad, model_name="")
    assert {violation.field for violation in caught.value.violations} == {
        "model_name",
        "policy.minimum_replicas",
        "policy.signals[1].target",
        "options[name]",
        "options[nam]",
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"minimum_replicas": 9}, "policy.minimum_replicas"),
        ({"minimum_replicas": 0}, "policy.minimum_replicas"),
        ({"signals": (QUEUE, replace(RUNNING, target=257.0))}, "policy.signals[1].target"),
        ({"signals": (QUEUE, RUNNING, replace(KV_CACHE, target=85.0))}, "policy.signals[2].target"),
        ({"maximum_concurrency_per_replica": 40}, "policy.signals[1].target"),
        ({"scale_up": ScalingRule(cooldown_seconds=-1.0)}, "policy.scale_up"),
    ],
)
def test_policies_that_contradict_themselves_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        rendered("keda", policy=policy(**changes))
    assert [violation.field for violation in caught.value.violations] == [field]


def test_running_target_may_be_max_num_seqs_but_not_more() -> None:
    rendered("keda", policy=policy(signals=(QUEUE, replace(RUNNING, target=256.0))))
    with pytest.raises(InvalidInputError, match="would never fire"):
        rendered("keda", policy=policy(signals=(QUEUE, replace(RUNNING, target=256.5))))


def test_floor_with_warm_replicas_stops_at_the_maximum_and_says_so() -> None:
    rendering = rendered("keda", policy=policy(minimum_replicas=8))
    assert "minReplicaCount: 8" in rendering.files[0].content
    assert any(loss.field == "warm_replicas" for loss in rendering.losses)


_OTHER_VALUES: dict[str, list[Any]] = {
    "minimum_replicas": [2],
    "maximum_replicas": [6],
    "allow_zero": [True],
    "warm_replicas": [3],
    "warm_kind": [WarmKind.HOT_AHEAD, WarmKind.NODE_PLACEHOLDER, WarmKind.CAPACITY_BUFFER],
    "signals": [
        (QUEUE, replace(RUNNING, target=40.0)),
        (replace(QUEUE, target=9.0), RUNNING),
        (QUEUE,),
        (RUNNING,),
        (QUEUE, RUNNING, KV_CACHE),
        (QUEUE, RUNNING, TTFT),
        (QUEUE, RUNNING, AutoscalingSignal(SignalKind.QUEUED_TOKENS, 1000.0, per_replica=True)),
        (AutoscalingSignal(SignalKind.ONGOING, 60.0, per_replica=True),),
        (QUEUE, RUNNING, replace(QUEUE, per_replica=False)),
    ],
    "scale_up": [
        ScalingRule(120.0, maximum_step_replicas=2),
        ScalingRule(90.0, maximum_step_replicas=1),
        ScalingRule(90.0),
        ScalingRule(90.0, sustain_seconds=30.0, maximum_step_replicas=2),
        ScalingRule(90.0, maximum_step_replicas=2, tolerance=0.2),
    ],
    "scale_down": [
        ScalingRule(600.0, maximum_step_replicas=1),
        ScalingRule(300.0, maximum_step_replicas=2),
        ScalingRule(300.0),
        ScalingRule(300.0, sustain_seconds=400.0, maximum_step_replicas=1),
        ScalingRule(300.0, sustain_seconds=100.0, maximum_step_replicas=1),
        ScalingRule(300.0, maximum_step_replicas=1, tolerance=0.2),
    ],
    "missing_metrics": [MissingMetricBehavior.HOLD_OR_RAISE, MissingMetricBehavior.FIXED],
    "derivations": [(PolicyDerivation("warm_replicas", "survive 1"),)],
    "cold_start": [None, ColdStart(200.0), ColdStart(90.0, node_boot_seconds=30.0)],
    "maximum_concurrency_per_replica": [100],
    "missing_metrics_replicas": [4],
    "pre_stop_seconds": [20.0],
    "drain_seconds": [240.0],
}

_SINGLE = [(name, index) for name, values in _OTHER_VALUES.items() for index in range(len(values))]


def test_every_field_of_the_policy_is_among_the_other_values() -> None:
    assert set(_OTHER_VALUES) == {item.name for item in fields(AutoscalingPolicy)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "index"), _SINGLE)
def test_no_value_of_the_policy_is_lost_in_silence(target: str, name: str, index: int) -> None:
    """Any change of the policy shows in a file or among the losses."""
    changed = policy(**{name: _OTHER_VALUES[name][index]})
    assert rendered(target, policy=changed) != rendered(target)


@pytest.mark.parametrize("target", SCALERS)
def test_queue_is_never_without_a_running_companion(target: str) -> None:
    rendering = rendered(target, policy=policy(signals=(QUEUE,)))
    added = [loss for loss in rendering.losses if loss.field == "signals" and "running 204" in loss.description]
    assert len(added) == 1  # 0.8 of 256 sequences
    assert rendered(target, {"running_target": "40"}, policy=policy(signals=(QUEUE,))) != rendering
    with pytest.raises(InvalidInputError, match="max_num_seqs 256"):
        rendered(target, {"running_target": "300"}, policy=policy(signals=(QUEUE,)))


@pytest.mark.parametrize("target", ["kserve", "kserve-llm", "knative", "drain"])
def test_replica_of_several_nodes_is_refused_where_one_pod_is_a_replica(target: str) -> None:
    two_nodes = configuration(gpus_per_replica=16)
    with pytest.raises(InvalidInputError, match="2 nodes") as caught:
        rendered(target, configuration=two_nodes, gpus_per_node=8)
    assert caught.value.violations[0].reason == "MULTI_NODE_REPLICA"
    rendered(target, configuration=configuration(gpus_per_replica=8), gpus_per_node=8)


@pytest.mark.parametrize("target", ["keda", "hpa", "kserve", "kserve-llm", "dynamo"])
def test_no_object_of_a_scaler_states_replicas_of_what_it_scales(target: str) -> None:
    """Else every apply would fight the autoscaler. `replicas` of KEDA's fallback is another thing."""

    def keys(value: Any, path: str) -> list[str]:
        if isinstance(value, dict):
            return [f"{path}.{key}" for key in value] + [
                k for key, v in value.items() for k in keys(v, f"{path}.{key}")
            ]
        return [k for item in value for k in keys(item, path)] if isinstance(value, list) else []

    for file in rendered(target).files:
        document = YAML(typ="safe", pure=True).load(file.content)
        found = [path for path in keys(document, "") if path.endswith((".replicas", ".num_replicas"))]
        assert all(path.endswith(".fallback.replicas") for path in found), found


@pytest.mark.parametrize("target", TARGETS)
def test_comments_cannot_break_out_of_their_line(target: str) -> None:
    evil = PolicyDerivation("minimum_replicas", "1\nkind: Evil\n---\n\x85kind: Evil")
    for file in rendered(target, policy=policy(derivations=(evil,))).files:
        assert not re.search(r"^\W*kind: Evil", file.content, re.MULTILINE)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=10, deadline=None)
@given(name=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20))
def test_any_model_name_leaves_yaml_that_loads(target: str, name: str) -> None:
    options = {"model_uri": "hf://a/b"} if target.startswith("kserve") else {}
    try:
        rendering = rendered(target, options, model_name=name)
    except InvalidInputError:
        return  # refused, such as a name that an engine would take for a flag
    for file in rendering.files:
        if file.media_type == "application/yaml":
            assert list(YAML(typ="safe", pure=True).load_all(file.content))


def test_gateway_signals_need_a_gateway() -> None:
    at_gateway = policy(signals=(GATEWAY_QUEUE, GATEWAY_RUNNING))
    with pytest.raises(InvalidInputError, match="llm-d, dynamo"):
        rendered("keda", policy=at_gateway)
    rendered("keda", {"gateway": "llm-d"}, policy=at_gateway)
