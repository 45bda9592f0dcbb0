"""Which degrees a model's dimensions allow: published refusals of engines, all violations at once."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.catalog import GroupedAttention, ModelArchitecture, Precision, load_catalog
from inferplan.errors import Violation
from inferplan.sizing.parallelism import Parallelism, check_parallelism, legal_tensor_parallel_values
from inferplan.sizing.weights import served_architecture

CATALOG = load_catalog()
MODELS = st.sampled_from([model.architecture for model in CATALOG.models()])


def architecture_of(name: str) -> ModelArchitecture:
    return CATALOG.model(name).architecture


def reasons(violations: tuple[Violation, ...]) -> set[str]:
    return {violation.reason for violation in violations}


def only(violations: tuple[Violation, ...], reason: str) -> Violation:
    found = [violation for violation in violations if violation.reason == reason]
    assert len(found) == 1
    return found[0]


def test_28_heads_are_refused_on_8_gpus_with_the_divisors_of_28() -> None:
    """THU-KEG/AdaptThink issue 1: R1-Distill-Qwen-7B has the dimensions of Qwen2.5-7B."""
    model = architecture_of("qwen2.5-7b")
    violations = check_parallelism(model, Parallelism(tensor_parallel=8), 8)
    assert reasons(violations) == {"QUERY_HEADS_NOT_DIVISIBLE"}
    assert "1, 2, 4, 7, 14, 28;" in violations[0].description
    # 7, 14 and 28 divide the heads, but not the 18,944 intermediate elements, and 7 and 14 not the 4 KV heads.
    assert violations[0].description.endswith("legal under every rule: 1, 2, 4")
    assert check_parallelism(model, Parallelism(tensor_parallel=4), 8) == ()


def test_three_gpus_are_no_tensor_parallel_degree_but_three_stages() -> None:
    """Issue 5003 of vllm: Llama-3-70B on three A100."""
    model = architecture_of("llama-3-70b")
    violations = check_parallelism(model, Parallelism(tensor_parallel=3), 8)
    assert {"QUERY_HEADS_NOT_DIVISIBLE", "KV_HEADS_NOT_DIVISIBLE"} <= reasons(violations)
    assert check_parallelism(model, Parallelism(pipeline_parallel=3), 8) == ()


def test_every_violated_rule_is_reported_at_once() -> None:
    """Issue 52435 of vllm: 256 experts and 64 heads on 3 GPUs; the engine tells of one rule at a time."""
    model = dataclasses.replace(architecture_of("qwen3-235b-a22b"), vocabulary_size=152_064)
    assert model.experts is not None
    model = dataclasses.replace(model, experts=dataclasses.replace(model.experts, experts=256))
    violations = check_parallelism(model, Parallelism(tensor_parallel=3, expert_parallel=3), 2)
    assert reasons(violations) == {
        "QUERY_HEADS_NOT_DIVISIBLE",
        "KV_HEADS_NOT_DIVISIBLE",
        "EXPERTS_NOT_DIVISIBLE",
        "TENSOR_PARALLEL_ABOVE_NODE",
    }
    assert "1, 2, 4, 8, 16, 32, 64, 128, 256" in only(violations, "EXPERTS_NOT_DIVISIBLE").description


def test_awq_groups_are_not_cut() -> None:
    """Issue 13640 of vllm: 29,568 / 2 = 14,784 is no multiple of 128."""
    model = served_architecture(architecture_of("qwen2.5-72b"), Precision.INT4)
    violation = only(check_parallelism(model, Parallelism(tensor_parallel=2), 8), "QUANTIZATION_GROUP_NOT_DIVISIBLE")
    assert "29568 intermediate elements / 2 = 14784" in violation.description
    assert "group of 128" in violation.description
    assert "legal under every rule: 1" in violation.description
    assert check_parallelism(architecture_of("qwen2.5-72b"), Parallelism(tensor_parallel=2), 8) == ()


def test_fp8_blocks_of_experts_are_not_cut_unless_experts_stay_whole() -> None:
    """Issue 5858 of sglang: Qwen3-235B-A22B-FP8 runs at 4, or at 8 with expert parallelism."""
    model = architecture_of("qwen3-235b-a22b-fp8")
    violation = only(check_parallelism(model, Parallelism(tensor_parallel=8), 8), "QUANTIZATION_BLOCK_NOT_DIVISIBLE")
    assert "1536 expert intermediate elements / 8 = 192" in violation.description
    assert "expert parallelism" in violation.description
    assert check_parallelism(model, Parallelism(tensor_parallel=4), 8) == ()
    assert check_parallelism(model, Parallelism(tensor_parallel=8, expert_parallel=8), 8) == ()
    assert 8 not in legal_tensor_parallel_values(model, 8)
    assert 8 in legal_tensor_parallel_values(model, 8, whole_experts=True)


def test_padded_mxfp4_experts_may_be_cut_anywhere() -> None:
    # gpt-oss-120b at 4: 2880 / 4 = 720 is no multiple of 32, and the log of k0033 shows that it runs.
    assert check_parallelism(architecture_of("gpt-oss-120b"), Parallelism(tensor_parallel=4), 8) == ()


def test_kv_heads_are_replicated_evenly_beyond_their_number() -> None:
    model = architecture_of("qwen3-235b-a22b")
    assert isinstance(model.attention, GroupedAttention)
    assert model.attention.kv_heads == 4
    assert check_parallelism(model, Parallelism(tensor_parallel=8), 8) == ()


@pytest.mark.parametrize(("multiple", "is_legal"), [(64, True), (1, False)])
def test_the_vocabulary_matters_only_where_it_is_not_padded(multiple: int, is_legal: bool) -> None:
    model = dataclasses.replace(architecture_of("llama-3.1-8b"), vocabulary_size=128_257)
    found = check_parallelism(model, Parallelism(tensor_parallel=2), 8, vocabulary_multiple_elements=multiple)
    assert (found == ()) is is_legal


def test_degrees_below_one_are_the_only_thing_told() -> None:
    found = check_parallelism(architecture_of("llama-3.1-8b"), Parallelism(0, -1, 0), 8)
    assert [violation.field for violation in found] == ["tensor_parallel", "pipeline_parallel", "expert_parallel"]


def test_stages_and_experts_have_limits() -> None:
    found = check_parallelism(architecture_of("llama-3.1-8b"), Parallelism(pipeline_parallel=33, expert_parallel=2), 8)
    assert reasons(found) == {"MORE_STAGES_THAN_LAYERS", "NO_EXPERTS"}
    mixtral = check_parallelism(architecture_of("mixtral-8x7b"), Parallelism(tensor_parallel=2, expert_parallel=4), 8)
    assert reasons(mixtral) == {"EXPERT_PARALLEL_NOT_DIVIDING_TENSOR_PARALLEL"}


@given(MODELS, st.integers(1, 64), st.integers(1, 16))
def test_listed_values_are_exactly_those_that_break_nothing(
    architecture: ModelArchitecture, degree: int, gpus_per_node: int
) -> None:
    legal = legal_tensor_parallel_values(architecture, gpus_per_node)
    assert legal[0] == 1
    found = check_parallelism(architecture, Parallelism(tensor_parallel=degree), gpus_per_node)
    assert (degree in legal) == (found == ())
    assert all("legal" in violation.description or "pipeline" in violation.description for violation in found)


@given(MODELS, st.integers(1, 8), st.integers(1, 8))
def test_a_replica_has_the_product_of_its_degrees_in_gpus(
    architecture: ModelArchitecture, tensor: int, pipeline: int
) -> None:
    assert Parallelism(tensor, pipeline).gpus == tensor * pipeline
    assert check_parallelism(architecture, Parallelism(1, 1)) == ()
