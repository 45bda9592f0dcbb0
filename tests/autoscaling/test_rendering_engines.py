"""Start commands, the drain patch and warm spares."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from inferplan.autoscaling.policy import WarmKind
from inferplan.catalog.precision import Precision
from inferplan.errors import InvalidInputError
from inferplan.sizing.parallelism import Parallelism
from support.rendering import (
    SchemaError,
    check_kubernetes,
    check_schema,
    configuration,
    document,
    documents,
    losses_of,
    lost_fields,
    policy,
    rendered,
)

KNOWN_FLAGS = {
    "vllm": {
        "--served-model-name",
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--max-model-len",
        "--gpu-memory-utilization",
        "--kv-cache-dtype",
        "--dtype",
        "--quantization",
        "--enable-expert-parallel",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--distributed-executor-backend",
        "--shutdown-timeout",
    },
    "sglang": {
        "--model-path",
        "--served-model-name",
        "--tp-size",
        "--pp-size",
        "--ep-size",
        "--max-running-requests",
        "--chunked-prefill-size",
        "--context-length",
        "--mem-fraction-static",
        "--kv-cache-dtype",
        "--dtype",
        "--quantization",
        "--disable-radix-cache",
        "--enable-metrics",
        "--nnodes",
        "--node-rank",
        "--dist-init-addr",
    },
    "tensorrt-llm": {
        "--backend",
        "--tp_size",
        "--pp_size",
        "--ep_size",
        "--max_batch_size",
        "--max_num_tokens",
        "--max_seq_len",
        "--kv_cache_free_gpu_memory_fraction",
        "--extra_llm_api_options",
    },
}
"""From the reference pages of `vllm serve`, `sglang.launch_server` and `trtllm-serve`."""

PLANNED = {
    "vllm": {
        "--tensor-parallel-size": "2",
        "--pipeline-parallel-size": "1",
        "--max-num-seqs": "256",
        "--max-num-batched-tokens": "8192",
        "--max-model-len": "16384",
        "--gpu-memory-utilization": "0.92",
        "--kv-cache-dtype": "auto",
        "--dtype": "bfloat16",
    },
    "sglang": {
        "--tp-size": "2",
        "--pp-size": "1",
        "--max-running-requests": "256",
        "--chunked-prefill-size": "8192",
        "--context-length": "16384",
        "--mem-fraction-static": "0.92",
        "--kv-cache-dtype": "auto",
    },
    "tensorrt-llm": {
        "--tp_size": "2",
        "--pp_size": "1",
        "--max_batch_size": "256",
        "--max_num_tokens": "8192",
        "--max_seq_len": "16384",
        "--kv_cache_free_gpu_memory_fraction": "0.92",
    },
}


def _flags(target: str, **changes: Any) -> dict[str, str]:
    """Flags of the start script with their values, as a shell would split them."""
    script = rendered(target, **changes).files[0].content
    words = shlex.split(script[script.index("\nexec ") :].replace("\\\n", ""))
    return {
        word: words[index + 1] if index + 1 < len(words) and not words[index + 1].startswith("--") else ""
        for index, word in enumerate(words)
        if word.startswith("--")
    }


def _engine(target: str, **changes: Any) -> Any:
    versions = {"vllm": "0.21.0", "sglang": "0.5.5", "tensorrt-llm": "1.0.0"}
    return configuration(**{"engine": target, "engine_version": versions[target], **changes})


@pytest.mark.parametrize("target", KNOWN_FLAGS)
def test_every_planned_value_is_stated(target: str) -> None:
    flags = _flags(target)
    assert PLANNED[target].items() <= flags.items()


@pytest.mark.parametrize("target", KNOWN_FLAGS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"enable_prefix_caching": False},
        {"kv_precision": Precision.FP8, "weight_precision": Precision.FP8},
        {"parallelism": Parallelism(8, 2, 8), "gpus_per_replica": 16},
    ],
)
def test_only_published_flags_are_used(target: str, changes: dict[str, Any]) -> None:
    for draining in (policy(), policy(drain_seconds=60.0)):
        flags = _flags(
            target,
            configuration=_engine(target, **changes),
            policy=draining,
            checkpoint_precision=Precision.BFLOAT16,
        )
        assert set(flags) <= KNOWN_FLAGS[target]
    assert "--max-num-sequences" not in KNOWN_FLAGS["vllm"], "a slip in a renderer would fail above"


def test_weights_are_quantised_on_loading_only_from_sixteen_bits_to_fp8() -> None:
    fp8 = _engine("vllm", weight_precision=Precision.FP8)
    assert _flags("vllm", configuration=fp8, checkpoint_precision=Precision.BFLOAT16)["--quantization"] == "fp8"
    assert "--quantization" not in _flags("vllm", configuration=fp8, checkpoint_precision=Precision.FP8)
    unknown = rendered("vllm", configuration=fp8)
    assert "--quantization" not in unknown.files[0].content
    assert "configuration.weight_precision" in lost_fields(unknown)
    int4 = rendered(
        "vllm", configuration=_engine("vllm", weight_precision=Precision.INT4), checkpoint_precision=Precision.BFLOAT16
    )
    assert "no flag makes it" in losses_of(int4, "configuration.weight_precision")


def test_vllm_drains_from_0_18_on() -> None:
    draining = policy(drain_seconds=59.5)
    assert _flags("vllm", policy=draining)["--shutdown-timeout"] == "60"
    old = rendered("vllm", policy=draining, configuration=_engine("vllm", engine_version="0.17.1"))
    assert "--shutdown-timeout" not in old.files[0].content.replace("# ", "")
    assert "0.18.0" in losses_of(old, "drain_seconds")


def test_metrics_are_turned_on_where_they_are_off_by_default() -> None:
    assert "--enable-metrics" in _flags("sglang")
    options = documents(rendered("tensorrt-llm"), 1)[0]
    assert options["enable_iter_perf_stats"] is True
    assert options["return_perf_metrics"] is True


@pytest.mark.parametrize("name", ["a b", "a;reboot", "$(reboot)", "a'b", 'a"b', "`x`", "a\\b"])
@pytest.mark.parametrize("target", KNOWN_FLAGS)
def test_model_names_cannot_run_in_the_shell(target: str, name: str) -> None:
    script = rendered(target, model_name=name).files[0].content
    words = shlex.split(script[script.index("\nexec ") :].replace("\\\n", ""))
    assert name in words


def test_model_name_that_an_engine_would_take_for_a_flag_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="read as a flag"):
        rendered("vllm", model_name="--enable-lora")


@pytest.mark.parametrize("target", KNOWN_FLAGS)
def test_flags_are_for_their_own_engine(target: str) -> None:
    other = "sglang" if target == "vllm" else "vllm"
    with pytest.raises(InvalidInputError, match=f"legal: {target}"):
        rendered(target, configuration=_engine(other))


def test_several_nodes_of_sglang_need_rank_and_head_from_outside() -> None:
    script = rendered("sglang", configuration=_engine("sglang", gpus_per_replica=16)).files[0].content
    assert re.search(
        r'--nnodes 2 .*--node-rank "\$\{NODE_RANK:\?.*--dist-init-addr "\$\{HEAD_ADDRESS:\?', script, re.DOTALL
    )


def _patched(patch: Mapping[str, Any]) -> dict[str, Any]:
    """A small Deployment after the strategic merge of the patch, which merges containers by name."""
    pod = patch["spec"]["template"]["spec"]
    labels = {"app": "chat"}
    container = {"image": "vllm/vllm-openai:v0.21.0", **pod["containers"][0]}
    return {
        **patch,
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**pod, "containers": [container]}},
        },
    }


@pytest.mark.parametrize("version", ["1.32", "1.37"])
def test_drain_patch_gives_a_deployment_that_kubernetes_takes(version: str) -> None:
    patch = document("drain", policy=policy(pre_stop_seconds=10.0, drain_seconds=120.0))
    check_kubernetes(_patched(patch), version)
    patch["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1
    with pytest.raises(SchemaError, match="terminationGraceSeconds"):
        check_kubernetes(_patched(patch), version)


@pytest.mark.parametrize(("pre_stop", "drain"), [(10.0, 120.0), (0.5, 0.0), (15.2, 3600.9)])
def test_grace_is_more_than_pre_stop_and_drain(pre_stop: float, drain: float) -> None:
    pod = document("drain", policy=policy(pre_stop_seconds=pre_stop, drain_seconds=drain))["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > pre_stop + drain
    assert pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] >= pre_stop


def test_drain_patch_leaves_replicas_alone_and_tells_of_the_node_pool() -> None:
    rendering = rendered("drain", policy=policy(pre_stop_seconds=10.0, drain_seconds=120.0))
    assert "replicas" not in documents(rendering)[0]["spec"]
    assert "overrides the pod's 145 s" in losses_of(rendering, "drain_seconds")
    short = rendered("drain", {"node_pool_grace_seconds": "60"}, policy=policy(drain_seconds=120.0))
    assert "cut short" in losses_of(short, "drain_seconds")
    long = rendered("drain", {"node_pool_grace_seconds": "600"}, policy=policy(drain_seconds=120.0))
    assert "NodePool" not in losses_of(long, "drain_seconds")


def test_drain_times_come_from_options_where_the_policy_has_none_and_are_reported() -> None:
    rendering = rendered("drain", {"pre_stop_seconds": "5", "drain_seconds": "30"})
    pod = documents(rendering)[0]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 5 + 30 + 15
    assert {"pre_stop_seconds", "drain_seconds"} <= lost_fields(rendering)


@pytest.mark.parametrize("version", ["1.32", "1.37"])
def test_placeholders_are_objects_that_kubernetes_takes(version: str) -> None:
    priority, deployment = documents(rendered("warm-spares", {"node_label": "gpu/product=H100"}))
    check_kubernetes(priority, version)
    check_kubernetes(deployment, version)
    deployment["spec"]["replica"] = 1
    with pytest.raises(SchemaError, match="replica"):
        check_kubernetes(deployment, version)


def test_placeholders_give_way_and_hold_what_a_replica_needs() -> None:
    priority, deployment = documents(rendered("warm-spares", policy=policy(warm_replicas=3)))
    assert priority["value"] < 0
    assert priority["preemptionPolicy"] == "Never"
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 3
    assert pod["priorityClassName"] == priority["metadata"]["name"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    two_nodes = rendered(
        "warm-spares", policy=policy(warm_replicas=3), configuration=configuration(gpus_per_replica=16)
    )
    deployment = documents(two_nodes)[1]
    assert deployment["spec"]["replicas"] == 6
    limits = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "8"}


def test_capacity_buffer_matches_the_strict_schema() -> None:
    buffered = policy(warm_kind=WarmKind.CAPACITY_BUFFER, warm_replicas=2)
    template, buffer = documents(rendered("warm-spares", policy=buffered))
    check_kubernetes(template, "1.37")
    check_schema(buffer, "capacitybuffer.json")
    assert buffer["spec"]["podTemplateRef"]["name"] == template["metadata"]["name"]
    assert buffer["spec"]["replicas"] == 2
    buffer["spec"]["replica"] = 2
    with pytest.raises(SchemaError, match="replica"):
        check_schema(buffer, "capacitybuffer.json")


def test_nothing_to_keep_warm_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="1 or more"):
        rendered("warm-spares", policy=policy(warm_replicas=0))


def test_spares_on_top_of_a_hot_floor_are_reported() -> None:
    assert "come on top" in losses_of(rendered("warm-spares"), "warm_kind")
