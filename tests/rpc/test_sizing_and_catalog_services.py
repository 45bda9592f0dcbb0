"""Memory questions and the catalogue over a real channel."""

from __future__ import annotations

import json
import math

import grpc
import pytest

from inferplan.v1 import (
    catalog_service_pb2,
    catalog_service_pb2_grpc,
    model_pb2,
    sizing_service_pb2,
    sizing_service_pb2_grpc,
    workload_pb2,
)
from support.requests import violations

GIBIBYTE = 2**30


@pytest.fixture(scope="module")
def sizing(channel: grpc.Channel) -> sizing_service_pb2_grpc.SizingServiceStub:
    return sizing_service_pb2_grpc.SizingServiceStub(channel)


@pytest.fixture(scope="module")
def catalog(channel: grpc.Channel) -> catalog_service_pb2_grpc.CatalogServiceStub:
    return catalog_service_pb2_grpc.CatalogServiceStub(channel)


def question(
    model: str = "llama-2-7b", accelerator: str = "h100-sxm-80gb", tensor_parallel: int = 1
) -> sizing_service_pb2.EstimateMemoryRequest:
    return sizing_service_pb2.EstimateMemoryRequest(
        model=workload_pb2.ModelSource(model=model),
        accelerator=accelerator,
        parallelism=workload_pb2.Parallelism(tensor_parallel=tensor_parallel),
    )


def test_a_start_up_log_is_reproduced(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    """Llama-2-7B FP16 on one H100 at 0.9: the engine's log says 7,191 blocks, 115,056 tokens."""
    request = question()
    request.measured.weights_bytes = 12.55 * GIBIBYTE
    request.measured.activation_bytes = 2.38 * GIBIBYTE
    request.measured.non_torch_bytes = 0.16 * GIBIBYTE
    request.engine.version = "0.8.0"
    estimate = sizing.EstimateMemory(request)
    assert abs(estimate.kv_blocks - 7191) <= 2
    assert estimate.kv_bytes_per_token == 524_288
    assert abs(estimate.kv_cache_bytes / GIBIBYTE - 56.18) < 0.01
    assert estimate.configuration.engine_release.startswith("0.8")


def test_not_fitting_is_an_answer_with_the_largest_context(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    """Qwen2.5-72B in BF16 on two A100 80GB at 0.9: 7.06 GiB are left of both before activations, 23k tokens at most."""
    request = question("qwen2.5-72b", "a100-sxm-80gb", tensor_parallel=2)
    request.engine.gpu_memory_utilization = 0.9
    request.engine.max_model_len_tokens = 32_768
    estimate = sizing.EstimateMemory(request)
    assert not estimate.fits
    assert estimate.largest_context_tokens < 23_000
    (rule,) = estimate.broken_rules
    assert rule.rule in ("CONTEXT_DOES_NOT_FIT", "NO_MEMORY_FOR_KV_CACHE")
    assert estimate.missing_bytes > 0


def test_a_config_json_gives_the_catalogue_answer(
    sizing: sizing_service_pb2_grpc.SizingServiceStub, llama_config: str
) -> None:
    request = question()
    by_name = sizing.EstimateMemory(request)
    request.model.config_json = llama_config
    assert sizing.EstimateMemory(request) == by_name


def test_everything_wrong_with_a_question_at_once(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    request = question("lama", "h1000", 1)
    request.engine.gpu_memory_utilization = 1.2
    request.engine.kv_precision = model_pb2.PRECISION_INT4
    request.measured.weights_bytes = math.inf
    with pytest.raises(grpc.RpcError) as caught:
        sizing.EstimateMemory(request)
    assert set(violations(caught.value)) >= {
        "model.model",
        "accelerator",
        "engine.gpu_memory_utilization",
        "engine.kv_precision",
        "measured.weights_bytes",
    }


def test_tensor_parallel_rules_together(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    """3 GPUs divide neither Qwen3-235B's 64 heads, nor its 4 KV heads, nor the FP8 blocks of its experts."""
    request = question("qwen3-235b-a22b-fp8", tensor_parallel=3)
    request.parallelism.expert_parallel = 3
    with pytest.raises(grpc.RpcError) as caught:
        sizing.EstimateMemory(request)
    found = violations(caught.value)
    assert {"parallelism.tensor_parallel", "parallelism.expert_parallel"} <= set(found)


@pytest.mark.parametrize(
    ("config", "field", "part"),
    [
        ("not json", "model.config_json", "JSON"),
        ("[]", "model.config_json", "object"),
        ('{"model_type": "llama"}', "model.config_json", ""),
        ('{"model_type": "lama", "num_hidden_layers": 2}', "model.config_json.model_type", "llama"),
    ],
)
def test_a_config_json_that_cannot_be_read(
    sizing: sizing_service_pb2_grpc.SizingServiceStub, config: str, field: str, part: str
) -> None:
    request = question()
    request.model.config_json = config
    with pytest.raises(grpc.RpcError) as caught:
        sizing.EstimateMemory(request)
    found = violations(caught.value)
    assert all(name.startswith(field) for name in found)
    assert any(part in text for text in found.values())


def test_a_config_json_of_ten_megabytes(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    """Beyond the message limit the transport refuses it; below, the contract does. Neither is an internal error."""
    for size, code in ((10_000_000, grpc.StatusCode.RESOURCE_EXHAUSTED), (2_000_000, grpc.StatusCode.INVALID_ARGUMENT)):
        request = question()
        request.model.config_json = json.dumps({"model_type": "llama", "padding": "x" * size})
        with pytest.raises(grpc.RpcError) as caught:
            sizing.EstimateMemory(request)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is code


def test_lists_and_gets_of_the_catalogue(catalog: catalog_service_pb2_grpc.CatalogServiceStub) -> None:
    models = catalog.ListModels(catalog_service_pb2.ListModelsRequest(page_size=1000)).models
    names = {model.name for model in models}
    assert len(models) >= 25
    assert {"models/llama-2-7b", "models/llama-3.1-8b", "models/gpt-oss-120b", "models/deepseek-v3"} <= names
    by_name = {model.name: model for model in models}
    # parameters counted from the dimensions: the published figures
    assert by_name["models/llama-2-7b"].parameters == 6_738_415_616
    assert by_name["models/llama-3.1-8b"].parameters == 8_030_261_248
    by_alias = catalog.GetModel(catalog_service_pb2.GetModelRequest(name="models/meta-llama/Llama-2-7b-hf"))
    assert by_alias == by_name["models/llama-2-7b"]
    accelerators = catalog.ListAccelerators(catalog_service_pb2.ListAcceleratorsRequest()).accelerators
    assert {"accelerators/h100-sxm-80gb", "accelerators/mi300x-192gb"} <= {item.name for item in accelerators}
    assert all(item.sources["memory_bandwidth_bytes_per_second"] for item in accelerators)
    engines = catalog.ListEngines(catalog_service_pb2.ListEnginesRequest()).engines
    assert {item.name for item in engines} == {"engines/vllm", "engines/sglang", "engines/tensorrt-llm"}
    for engine in engines:
        assert catalog.GetEngine(catalog_service_pb2.GetEngineRequest(name=engine.name)) == engine


def test_catalogue_pages(catalog: catalog_service_pb2_grpc.CatalogServiceStub) -> None:
    whole = [item.name for item in catalog.ListAccelerators(catalog_service_pb2.ListAcceleratorsRequest()).accelerators]
    paged: list[str] = []
    token = ""
    while True:
        reply = catalog.ListAccelerators(catalog_service_pb2.ListAcceleratorsRequest(page_size=5, page_token=token))
        paged += [item.name for item in reply.accelerators]
        token = reply.next_page_token
        if not token:
            break
    assert paged == whole


def test_an_unknown_entry_names_the_nearest(catalog: catalog_service_pb2_grpc.CatalogServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        catalog.GetAccelerator(catalog_service_pb2.GetAcceleratorRequest(name="accelerators/h100-sxm-80"))
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "h100-sxm-80gb" in (caught.value.details() or "")


def test_adding_to_the_catalogue_is_not_there_yet(catalog: catalog_service_pb2_grpc.CatalogServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        catalog.DeleteModel(catalog_service_pb2.DeleteModelRequest(name="models/llama-2-7b"))
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
