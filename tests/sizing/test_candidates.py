"""Which configurations a search may choose from."""

from __future__ import annotations

import dataclasses

import pytest

from inferplan.catalog import Precision
from inferplan.sizing.candidates import CandidateReplica, enumerate_candidates, variants_of
from inferplan.sizing.configuration import EngineSettings, ParallelismChoice
from inferplan.sizing.search_question import FleetLimits, SearchQuestion
from support.searches import question, workload


def spreads(asked: SearchQuestion) -> list[tuple[str, int, int, int]]:
    return [
        (
            candidate.accelerator.id,
            candidate.configuration.parallelism.tensor_parallel,
            candidate.configuration.parallelism.pipeline_parallel,
            candidate.configuration.parallelism.expert_parallel,
        )
        for candidate in enumerate_candidates(asked).fitting
    ]


def test_every_legal_degree_within_a_node() -> None:
    found = spreads(question("llama-2-7b", "h100-sxm-80gb", "l40s-48gb"))
    assert found == [(name, degree, 1, 1) for name in ("h100-sxm-80gb", "l40s-48gb") for degree in (1, 2, 4, 8)]


def test_a_smaller_node_allows_less() -> None:
    small = dataclasses.replace(question().accelerators[0], gpus_per_node=2)
    assert spreads(question(accelerators=(small,))) == [("h100-sxm-80gb", 1, 1, 1), ("h100-sxm-80gb", 2, 1, 1)]


def test_what_does_not_fit_says_why() -> None:
    """Llama-3.1-70B has 141 GB of 16-bit weights: two H100 hold them, one does not."""
    asked = question("llama-3.1-70b")
    candidates = enumerate_candidates(asked)
    assert [candidate.gpus for candidate in candidates.fitting] == [2, 4, 8]
    (rule,) = candidates.broken_rules
    assert (rule.rule, rule.subject) == ("WEIGHTS_DO_NOT_FIT", "h100-sxm-80gb, tensor parallel 1")
    assert "GiB" in rule.description


def test_several_nodes_only_where_one_is_too_small() -> None:
    """DeepSeek-V3 has 671 GB of FP8 weights: eight H200 (1,128 GB) hold them, eight H100 (640 GB) do not."""
    found = spreads(question("deepseek-v3", "h200-sxm-141gb", "h100-sxm-80gb"))
    assert ("h200-sxm-141gb", 8, 1) in [spread[:3] for spread in found]
    assert {spread[:3] for spread in found if spread[0] == "h100-sxm-80gb"} == {("h100-sxm-80gb", 8, 2)}
    assert all(stages == 1 for name, _, stages, _ in found if name == "h200-sxm-141gb")


def test_experts_stay_whole_where_their_blocks_cannot_be_split() -> None:
    """Expert FFN of 1536 in FP8 blocks of 128: 8 GPUs would hold one and a half blocks each."""
    found = spreads(question("qwen3-235b-a22b-fp8"))
    assert ("h100-sxm-80gb", 4, 1, 1) in found
    assert ("h100-sxm-80gb", 8, 1, 8) in found


def test_nothing_is_quantised_unasked() -> None:
    for candidate in enumerate_candidates(question("llama-2-7b", "h100-sxm-80gb", "l40s-48gb")).fitting:
        assert candidate.configuration.weight_precision is Precision.FLOAT16
        assert candidate.configuration.kv_precision is Precision.FLOAT16


def test_precisions_are_searched_where_asked_and_the_accelerator_has_the_unit() -> None:
    asked = question("llama-2-7b", "h100-sxm-80gb", "a100-sxm-80gb", search_precisions=True)
    found = {
        (candidate.accelerator.id, candidate.configuration.weight_precision, candidate.configuration.kv_precision)
        for candidate in enumerate_candidates(asked).fitting
    }
    formats = (Precision.FLOAT16, Precision.FP8)
    assert {item for item in found if item[0] == "h100-sxm-80gb"} == {
        ("h100-sxm-80gb", weights, kv_cache) for weights in formats for kv_cache in formats
    }
    assert {item for item in found if item[0] == "a100-sxm-80gb"} == {
        ("a100-sxm-80gb", Precision.FLOAT16, Precision.FLOAT16)
    }


def test_what_the_request_fixes_is_not_searched() -> None:
    asked = question(
        parallelism=ParallelismChoice(tensor_parallel=2),
        settings=EngineSettings(weight_precision=Precision.FP8, max_num_seqs=64),
        search_precisions=True,
    )
    found = enumerate_candidates(asked).fitting
    assert {candidate.configuration.parallelism.tensor_parallel for candidate in found} == {2}
    assert {candidate.configuration.weight_precision for candidate in found} == {Precision.FP8}
    assert {candidate.configuration.max_num_seqs for candidate in found} == {64}


def test_an_illegal_degree_is_a_broken_rule_with_the_legal_ones() -> None:
    candidates = enumerate_candidates(question(parallelism=ParallelismChoice(tensor_parallel=3)))
    assert not candidates.fitting
    assert candidates.broken_rules[0].rule == "CONFIGURATION_NOT_LEGAL"
    assert "legal under every rule: 1, 2, 4, 8" in candidates.broken_rules[0].description


def test_a_replica_beyond_the_quota_is_not_built() -> None:
    candidates = enumerate_candidates(question(limits=FleetLimits(maximum_gpus=2)))
    assert [candidate.gpus for candidate in candidates.fitting] == [1, 2]
    assert {rule.rule for rule in candidates.broken_rules} == {"GPU_QUOTA"}
    assert "4 GPUs; maximum_gpus is 2" in candidates.broken_rules[0].description


def test_the_context_holds_the_longest_request() -> None:
    asked = question("llama-3.1-8b", workload=workload(1.0, 60_000, 1_000))
    for candidate in enumerate_candidates(asked).fitting:
        assert candidate.configuration.max_model_len_tokens >= 61_000


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (EngineSettings(), {(512, 8192), (1024, 4096)}),
        (EngineSettings(max_num_seqs=1024), {(1024, 4096)}),
        (EngineSettings(max_num_batched_tokens=8192), {(512, 8192)}),
    ],
)
def test_variants_change_only_what_is_left_open(settings: EngineSettings, expected: set[tuple[int, int]]) -> None:
    asked = question(settings=settings)
    candidate: CandidateReplica = enumerate_candidates(asked).fitting[0]
    found = variants_of(asked, candidate, (512,), (4096,)).fitting
    assert {(v.configuration.max_num_seqs, v.configuration.max_num_batched_tokens) for v in found} == expected
