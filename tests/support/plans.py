"""A real plan: Llama-2-7B in float16 on H100 SXM, 100 requests/s of 500 + 200 tokens, sized by the TEXTBOOK method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inferplan.autoscaling.policy import textbook_policy
from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import (
    AttentionScope,
    FeedForward,
    GroupedAttention,
    LayerGroup,
    Model,
    ModelArchitecture,
)
from inferplan.catalog.engine import Engine, EngineDefaults, EngineMemory, EngineRelease
from inferplan.catalog.precision import Precision
from inferplan.resources.plan import Hardware, ModelSource, PlanContent, PlanInput, PlanMethod, ResolvedInput
from inferplan.sizing.configuration import Configuration
from inferplan.sizing.explanation import PlanWarning, Quantity
from inferplan.sizing.fleet import LimitingFactor, ReplicaCapacity, fleet_of
from inferplan.sizing.memory import MemoryEstimate
from inferplan.sizing.parallelism import Parallelism
from inferplan.sizing.performance import LatencyPercentiles, Performance
from inferplan.sizing.textbook import (
    TextbookAnswer,
    TextbookAssumptions,
    TextbookQuestion,
    solve_textbook,
    textbook_mean_seconds,
    textbook_verdicts,
)
from inferplan.sizing.workload import ConstantLength, LatencyMetric, Objective, TrafficClass, Workload

_ASSUMPTIONS = TextbookAssumptions()
_OBJECTIVES = (Objective(LatencyMetric.TTFT, 95.0, 2.0),)
_REQUESTS_PER_SECOND = 100.0
_INPUT_TOKENS, _OUTPUT_TOKENS = 500, 200


def plan_content(**changes: Any) -> PlanContent:
    """The plan's content, with fields replaced by `changes`."""
    answer = solve_textbook(
        TextbookQuestion(
            parameters=7e9,
            bytes_per_parameter=2.0,
            input_tokens=_INPUT_TOKENS,
            output_tokens=_OUTPUT_TOKENS,
            requests_per_second=_REQUESTS_PER_SECOND,
            memory_bandwidth_bytes_per_second=h100().memory_bandwidth_bytes_per_second,
            peak_flops_per_second=h100().sixteen_bit_flops_per_second,
            assumptions=_ASSUMPTIONS,
        )
    )
    content = PlanContent(
        input=_input(),
        resolved=ResolvedInput(llama_2_7b(), (h100(),), vllm()),
        configuration=_configuration(),
        memory=_memory(),
        fleet=fleet_of(answer.active_replicas, answer.spare_replicas, 1, 3.5, _REQUESTS_PER_SECOND * _OUTPUT_TOKENS),
        replica_capacity=ReplicaCapacity(
            answer.replica_requests_per_second,
            answer.replica_output_tokens_per_second,
            LimitingFactor.MEMORY_BANDWIDTH,
            "every step reads the weights once",
        ),
        performance=_performance(answer),
        verdicts=textbook_verdicts(answer, _OBJECTIVES),
        steps=answer.steps,
        autoscaling_policy=textbook_policy(answer, _ASSUMPTIONS),
        warnings=(PlanWarning("SHARED_GPU", "Prefill takes the GPU too.", (Quantity("X", 23.5, "requests/s"),)),),
        calibration="datasheet",
        seed=0,
        service_version="0.1.0",
    )
    return replace(content, **changes)


def h100() -> Accelerator:
    """NVIDIA's datasheet figures of the H100 SXM."""
    return Accelerator(
        id="h100-sxm-80gb",
        display_name="NVIDIA H100 SXM 80 GB",
        vendor="NVIDIA",
        architecture="hopper",
        label_memory_bytes=80e9,
        visible_memory_bytes=79.19 * 2**30,
        memory_bandwidth_bytes_per_second=3.35e12,
        dense_flops_per_second={Precision.FLOAT16: 989e12, Precision.BFLOAT16: 989e12, Precision.FP8: 1979e12},
        interconnect="NVLink 4",
        interconnect_bytes_per_second=450e9,
        gpus_per_node=8,
        cost_usd_per_gpu_hour=3.5,
        sources={"memory_bandwidth_bytes_per_second": "NVIDIA H100 datasheet"},
        aliases=("H100",),
    )


def llama_2_7b() -> Model:
    """Dimensions of the model's config.json."""
    return Model(
        id="llama-2-7b",
        display_name="Llama 2 7B",
        architecture=ModelArchitecture(
            family="llama",
            layers=32,
            hidden_size=4096,
            vocabulary_size=32000,
            tied_embeddings=False,
            maximum_context_tokens=4096,
            attention=GroupedAttention(query_heads=32, kv_heads=32, head_dim=128),
            layer_groups=(LayerGroup(32, AttentionScope.FULL),),
            checkpoint_precision=Precision.FLOAT16,
            feed_forward=FeedForward(layers=32, intermediate_size=11008),
        ),
        source="config.json of meta-llama/Llama-2-7b-hf",
        headline_parameters=7e9,
    )


def vllm() -> Engine:
    """One release, with the constants of a start-up log."""
    release = EngineRelease(
        since="0.10.0",
        defaults=EngineDefaults(0.9, 256, 8192, 16, chunked_prefill=True, prefix_caching=True),
        memory=EngineMemory(3.0, 8.0, 0.15 * 2**30, 0.6 * 2**30, 0.0, 0.0, False, True),
        metric_dialect="vllm",
        source="start-up log",
    )
    return Engine("vllm", "vLLM", (release,))


def _input() -> PlanInput:
    traffic = TrafficClass(
        requests_per_second=_REQUESTS_PER_SECOND,
        input_tokens=ConstantLength(_INPUT_TOKENS),
        output_tokens=ConstantLength(_OUTPUT_TOKENS),
    )
    return PlanInput(
        method=PlanMethod.TEXTBOOK,
        model=ModelSource(model="llama-2-7b"),
        hardware=Hardware(accelerators=("h100-sxm-80gb",)),
        workload=Workload((traffic,)),
        objectives=_OBJECTIVES,
        textbook=_ASSUMPTIONS,
    )


def _configuration() -> Configuration:
    return Configuration(
        accelerator="h100-sxm-80gb",
        gpus_per_replica=1,
        engine="vllm",
        engine_version="0.10.0",
        engine_release="0.10.0",
        weight_precision=Precision.FLOAT16,
        kv_precision=Precision.FLOAT16,
        gpu_memory_utilization=0.9,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        max_model_len_tokens=4096,
        enable_prefix_caching=True,
        parallelism=Parallelism(tensor_parallel=1, pipeline_parallel=1, expert_parallel=1),
    )


def _memory() -> MemoryEstimate:
    """The figures of vLLM's start-up log: 56.18 GiB of KV cache, 115,056 tokens."""
    return MemoryEstimate(
        fits=True,
        visible_bytes=79.19 * 2**30,
        budget_bytes=0.9 * 79.19 * 2**30,
        weights_bytes=12.55 * 2**30,
        activation_bytes=2.39 * 2**30,
        non_torch_bytes=0.15 * 2**30,
        cuda_graph_bytes=0.0,
        cuda_graphs_inside_budget=False,
        kv_cache_bytes=56.18 * 2**30,
        kv_bytes_per_token=524288.0,
        state_bytes_per_sequence=0.0,
        kv_block_tokens=16,
        kv_blocks=7191,
        kv_cache_tokens=115_056,
        max_model_len_tokens=4096,
        largest_context_tokens=4096,
        concurrency_at_max_model_len=28.09,
        concurrency_at_workload=None,
        missing_bytes=0.0,
        configuration=_configuration(),
    )


def _performance(answer: TextbookAnswer) -> Performance:
    means = textbook_mean_seconds(answer)
    return Performance(
        latencies=tuple(LatencyPercentiles(metric, means[metric]) for metric in means),
        requests_per_second=_REQUESTS_PER_SECOND,
        output_tokens_per_second=_REQUESTS_PER_SECOND * _OUTPUT_TOKENS,
    )
