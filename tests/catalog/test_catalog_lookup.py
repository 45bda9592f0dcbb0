"""Finding entries by name, and a site's own entries beside the built-in ones."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from inferplan.catalog import Catalog, ModelArchitecture, load_catalog
from inferplan.errors import InvalidInputError, NotFoundError

BUILT_IN = Path(str(resources.files("inferplan.catalog"))) / "data"


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", " unsloth/meta-llama-3.1-8b-instruct "]
)
def test_models_are_found_by_id_or_alias_in_any_case(name: str) -> None:
    assert load_catalog().model(name).id == "llama-3.1-8b"


@pytest.mark.parametrize("name", ["h100", "H100-SXM", "h100-sxm-80gb", "NVIDIA H100 80GB HBM3"])
def test_accelerators_are_found_by_id_or_alias_in_any_case(name: str) -> None:
    assert load_catalog().accelerator(name).id == "h100-sxm-80gb"


def test_unknown_name_is_answered_with_the_nearest_known() -> None:
    with pytest.raises(NotFoundError) as caught:
        load_catalog().model("llama-31-8b")
    assert (caught.value.resource_type, caught.value.resource_name) == ("Model", "llama-31-8b")
    assert "nearest known: llama-3.1-8b" in str(caught.value)


def test_name_like_nothing_is_answered_with_all_known() -> None:
    with pytest.raises(NotFoundError) as caught:
        load_catalog().accelerator("?")
    assert all(accelerator.id in str(caught.value) for accelerator in load_catalog().accelerators())


@pytest.mark.parametrize("name", ["", "x" * 1_000_000, "\x00", "../../etc/passwd"])
def test_any_name_is_answered_shortly(name: str) -> None:
    for find in (load_catalog().model, load_catalog().accelerator, load_catalog().engine):
        with pytest.raises(NotFoundError) as caught:
            find(name)
        assert len(str(caught.value)) < 2_000


def test_entries_come_in_the_order_of_their_ids() -> None:
    ids = [model.id for model in load_catalog().models()]
    assert ids == sorted(ids)


def test_built_in_catalogue_is_read_once() -> None:
    assert load_catalog() is load_catalog()


def copy_entry(site: Path, kind: str, source: str, target: str, change: Callable[[str], str] = str) -> Path:
    (site / kind).mkdir(exist_ok=True)
    path = site / kind / f"{target}.yaml"
    path.write_text(change((BUILT_IN / kind / f"{source}.yaml").read_text(encoding="utf-8")), encoding="utf-8")
    return path


def test_site_entry_is_added_and_replaces_the_built_in_of_the_same_id(tmp_path: Path) -> None:
    copy_entry(tmp_path, "accelerators", "h100-sxm-80gb", "h100-sxm-80gb", lambda text: text.replace("6.16", "1.99"))
    copy_entry(
        tmp_path, "models", "llama-2-7b", "house-7b",
        lambda text: text.replace("id: llama-2-7b", "id: house-7b").replace("meta-llama/", "house/"),
    )  # fmt: skip
    catalog = load_catalog(tmp_path)
    assert catalog.accelerator("h100").cost_usd_per_gpu_hour == 1.99
    assert catalog.model("house/Llama-2-7b-hf").id == "house-7b"
    assert catalog.model("llama-2-7b") == load_catalog().model("llama-2-7b")
    assert len(catalog.models()) == len(load_catalog().models()) + 1
    assert load_catalog().accelerator("h100").cost_usd_per_gpu_hour == 6.16


def test_empty_site_directory_changes_nothing(tmp_path: Path) -> None:
    assert load_catalog(tmp_path).models() == load_catalog().models()


def test_alias_of_two_entries_is_refused(tmp_path: Path) -> None:
    copy_entry(tmp_path, "models", "llama-2-7b", "other", lambda text: text.replace("id: llama-2-7b", "id: other"))
    with pytest.raises(InvalidInputError, match=r"'meta-llama/llama-2-7b-hf' names both 'llama-2-7b' and 'other'"):
        load_catalog(tmp_path)


def test_two_entries_with_one_id_are_refused() -> None:
    model = load_catalog().model("llama-2-7b")
    with pytest.raises(InvalidInputError, match="names both"):
        Catalog([model, dataclasses.replace(model, display_name="Another")], [], [])


def test_missing_site_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is not a directory"):
        load_catalog(tmp_path / "nowhere")


def test_everything_wrong_in_every_file_is_named_at_once(tmp_path: Path) -> None:
    copy_entry(
        tmp_path, "models", "llama-2-7b", "wrong-types",
        lambda text: text.replace("layers: 32\n  hidden", "layerz: 32\n  hidden")
        .replace("kv_heads: 32", "kv_heads: true")
        .replace("vocabulary_size: 32000", "vocabulary_size: '32000'")
        .replace("checkpoint_precision: float16", "checkpoint_precision: float17"),
    )  # fmt: skip
    copy_entry(
        tmp_path, "models", "llama-2-7b", "wrong-sums",
        lambda text: text.replace("{layers: 32, scope: full}", "{layers: 31, scope: sliding_window}"),
    )  # fmt: skip
    copy_entry(
        tmp_path, "accelerators", "l4-24gb", "l4-24gb",
        lambda text: "\n".join(line for line in text.splitlines() if not line.startswith("  gpus_per_node")),
    )  # fmt: skip
    (tmp_path / "models" / "not-yaml.yaml").write_text("a: [1", encoding="utf-8")
    (tmp_path / "models" / "twice.yaml").write_text("id: a\nid: b\n", encoding="utf-8")
    (tmp_path / "models" / "empty.yaml").write_text("", encoding="utf-8")
    (tmp_path / "models" / "readme.txt").write_text("not an entry", encoding="utf-8")
    with pytest.raises(InvalidInputError) as caught:
        load_catalog(tmp_path)
    found = {violation.field.removeprefix(f"{tmp_path}/") for violation in caught.value.violations}
    assert found == {
        "models/wrong-types.yaml: architecture",
        "models/wrong-types.yaml: architecture.layers",
        "models/wrong-types.yaml: architecture.attention.kv_heads",
        "models/wrong-types.yaml: architecture.vocabulary_size",
        "models/wrong-types.yaml: architecture.checkpoint_precision",
        "models/wrong-sums.yaml: id",
        "models/wrong-sums.yaml: architecture.layer_groups",
        "models/wrong-sums.yaml: architecture.layer_groups[0].window_tokens",
        "models/not-yaml.yaml",
        "models/twice.yaml",
        "models/empty.yaml",
        "accelerators/l4-24gb.yaml: sources.gpus_per_node",
    }


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("visible_memory_bytes: 2", "visible_memory_bytes: 9", "visible_memory_bytes"),
        ("fp8: 242e12", "fp8: -242e12", "dense_flops_per_second.fp8"),
        ("fp8: 242e12", "fp8: .inf", "dense_flops_per_second"),
        ("fp8: 242e12", "fp9: 242e12", "dense_flops_per_second"),
        ("  float16: 121e12\n", "", "dense_flops_per_second.float16"),
        ("gpus_per_node: 8", "gpus_per_node: 0", "gpus_per_node"),
        ("gpus_per_node: 8", "gpus_per_node: 8.5", "gpus_per_node"),
        ("id: l4-24gb", "id: L4", "id"),
        ("sources:", "sources:\n  colour: nobody", "sources.colour"),
    ],
)
def test_accelerator_with_a_wrong_figure_is_refused(tmp_path: Path, old: str, new: str, field: str) -> None:
    copy_entry(tmp_path, "accelerators", "l4-24gb", "l4-24gb", lambda text: text.replace(old, new, 1))
    with pytest.raises(InvalidInputError) as caught:
        load_catalog(tmp_path)
    assert any(violation.field.split(": ", 1)[1].startswith(field) for violation in caught.value.violations)


def test_a_copy_of_the_built_in_data_is_a_legal_site_catalogue(tmp_path: Path) -> None:
    shutil.copytree(BUILT_IN, tmp_path / "site")
    assert load_catalog(tmp_path / "site").models() == load_catalog().models()


def test_architectures_are_hashable_and_comparable() -> None:
    architectures: set[ModelArchitecture] = {model.architecture for model in load_catalog().models()}
    assert load_catalog().model("qwen3-8b").architecture in architectures
