"""The engines that ship with the package: release order, published defaults, and the rules behind them."""

from __future__ import annotations

import pytest
from packaging.version import Version

from inferplan.catalog import Engine, load_catalog
from inferplan.errors import InvalidInputError

CATALOG = load_catalog()


@pytest.mark.parametrize("engine", CATALOG.engines(), ids=lambda engine: engine.id)
def test_releases_rise_and_every_one_names_its_source(engine: Engine) -> None:
    versions = [Version(release.since) for release in engine.releases]
    assert versions == sorted(set(versions))
    for release in engine.releases:
        assert release.source.strip()
        assert release.metric_dialect
        assert 0 < release.defaults.gpu_memory_utilization <= 1
        assert release.defaults.maximum_batched_tokens >= release.defaults.maximum_sequences
        assert release.defaults.kv_block_tokens >= 1
        assert release.memory.activation_bytes_factor > 0
        assert release.memory.non_torch_bytes_multi_gpu >= release.memory.non_torch_bytes_single_gpu > 0


def test_the_three_engines_are_known_by_their_usual_names() -> None:
    assert {engine.id for engine in CATALOG.engines()} == {"vllm", "sglang", "tensorrt-llm"}
    assert CATALOG.engine("vLLM").id == "vllm"
    assert CATALOG.engine("trtllm").id == "tensorrt-llm"


@pytest.mark.parametrize(
    ("version", "inside"),
    [("0.6.0", False), ("0.11.2", False), ("0.20.3", False), ("0.21.0", True), ("0.28.1", True)],
)
def test_cuda_graphs_are_inside_the_budget_from_0_21_on(version: str, inside: bool) -> None:
    assert CATALOG.engine("vllm").release_for(version).memory.cuda_graphs_inside_budget is inside


@pytest.mark.parametrize(
    ("version", "since"),
    [("0.6.4.post1", "0.6.0"), ("0.6.6", "0.6.5"), ("0.8.5", "0.8.0"), ("0.10.1.1", "0.10.0"), ("0.11.2", "0.11.0"),
     ("0.13.0", "0.12.0"), ("0.14.0rc2", "0.12.0"), ("0.14.1", "0.14.0"), ("0.30.0", "0.21.0"), ("", "0.21.0")],
)  # fmt: skip
def test_versions_find_the_release_that_holds(version: str, since: str) -> None:
    assert CATALOG.engine("vllm").release_for(version).since == since


def test_versions_before_the_first_release_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"older than the oldest release"):
        CATALOG.engine("vllm").release_for("0.5.4")


@pytest.mark.parametrize(
    ("accelerator", "sequences", "tokens"),
    [
        # vLLM's get_batch_defaults: from 70 GiB on, but for the A100, which it excludes by name.
        ("h100-sxm-80gb", 1024, 8192), ("h200-sxm-141gb", 1024, 8192), ("mi300x-192gb", 1024, 8192),
        ("a100-sxm-80gb", 256, 2048), ("l40s-48gb", 256, 2048), ("l4-24gb", 256, 2048),
    ],
)  # fmt: skip
def test_batch_defaults_follow_the_gpu(accelerator: str, sequences: int, tokens: int) -> None:
    defaults = CATALOG.engine("vllm").release_for("0.11.0").defaults
    card = CATALOG.accelerator(accelerator)
    assert defaults.sequences_on(card) == sequences
    assert defaults.batched_tokens_on(card) == tokens


@pytest.mark.parametrize(
    ("version", "dialect"), [("0.6.6", "vllm-up-to-0.11"), ("0.11.2", "vllm-up-to-0.11"), ("0.12.0", "vllm")]
)
def test_metric_names_changed_after_0_11(version: str, dialect: str) -> None:
    assert CATALOG.engine("vllm").release_for(version).metric_dialect == dialect
