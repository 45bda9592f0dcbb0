"""What engines logged about their KV cache at start-up, beside what the memory model says.

`python -m support.kv_capacity` in tests/ prints the table.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

from inferplan.catalog import Precision, load_catalog
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.memory import MeasuredMemory, MemoryEstimate, MemoryQuestion, estimate_memory
from inferplan.sizing.parallelism import Parallelism

GIBIBYTE = 2**30
WITHIN = 0.05


@dataclass(frozen=True)
class KvCapacityRow:
    """One start-up log; None where it does not state a figure."""

    row: str
    source: str
    engine: str
    engine_version: str
    accelerator: str
    model: str
    weight_precision: str
    tensor_parallel: int | None
    visible_gib: float | None
    gpu_memory_utilization: float | None
    max_model_len_tokens: int | None
    max_num_seqs: int | None
    weights_gib: float | None
    activation_gib: float | None
    non_torch_gib: float | None
    kv_cache_gib: float | None
    kv_cache_tokens: int | None
    concurrency: float | None
    not_compared_because: str
    notes: str

    @property
    def states_every_component(self) -> bool:
        return None not in (self.weights_gib, self.activation_gib, self.non_torch_gib)

    def estimate(self, with_measured_components: bool) -> MemoryEstimate:
        """The model's answer, from the log's own components or from the catalogue's constants alone."""
        catalog = load_catalog()
        measured = MeasuredMemory(visible_bytes=_bytes(self.visible_gib))
        if with_measured_components:
            measured = MeasuredMemory(
                _bytes(self.visible_gib),
                _bytes(self.weights_gib),
                _bytes(self.activation_gib),
                _bytes(self.non_torch_gib),
            )
        settings = EngineSettings(
            version=self.engine_version,
            weight_precision=Precision(self.weight_precision) if self.weight_precision else None,
            gpu_memory_utilization=self.gpu_memory_utilization,
            max_num_seqs=self.max_num_seqs,
            max_model_len_tokens=self.max_model_len_tokens,
        )
        return estimate_memory(
            MemoryQuestion(
                catalog.model(self.model).architecture,
                catalog.accelerator(self.accelerator),
                catalog.engine(self.engine),
                settings,
                Parallelism(tensor_parallel=self.tensor_parallel or 1),
                measured=measured,
            )
        )

    def error(self, estimate: MemoryEstimate) -> float:
        """Relative error of the KV cache's size."""
        assert self.kv_cache_gib is not None
        return estimate.kv_cache_bytes / GIBIBYTE / self.kv_cache_gib - 1


def _bytes(gibibytes: float | None) -> float | None:
    return None if gibibytes is None else gibibytes * GIBIBYTE


def read_rows() -> list[KvCapacityRow]:
    """All rows of tests/data/kv_capacity.csv."""
    path = Path(__file__).parents[1] / "data" / "kv_capacity.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        return [_row(entry) for entry in csv.DictReader(lines)]


def _row(entry: dict[str, str]) -> KvCapacityRow:
    def number(name: str) -> float | None:
        return float(entry[name]) if entry[name] else None

    def count(name: str) -> int | None:
        return int(entry[name]) if entry[name] else None

    return KvCapacityRow(
        row=entry["row"],
        source=entry["source"],
        engine=entry["engine"],
        engine_version=entry["engine_version"],
        accelerator=entry["accelerator"],
        model=entry["model"],
        weight_precision=entry["weight_precision"],
        tensor_parallel=count("tensor_parallel"),
        visible_gib=number("visible_gib"),
        gpu_memory_utilization=number("gpu_memory_utilization"),
        max_model_len_tokens=count("max_model_len_tokens"),
        max_num_seqs=count("max_num_seqs"),
        weights_gib=number("weights_gib"),
        activation_gib=number("activation_gib"),
        non_torch_gib=number("non_torch_gib"),
        kv_cache_gib=number("kv_cache_gib"),
        kv_cache_tokens=count("kv_cache_tokens"),
        concurrency=number("concurrency"),
        not_compared_because=entry["not_compared_because"],
        notes=entry["notes"],
    )


def kv_capacity_report() -> str:
    """A line a row: logged and estimated KV cache from constants alone, or the reason why it is not compared."""
    lines = [f"{'row':14} {'model':24} {'logged':>8} {'model':>8} {'error':>8}  remark"]
    for row in read_rows():
        if row.not_compared_because:
            lines.append(f"{row.row:14} {row.model[:24]:24} {'':>8} {'':>8} {'':>8}  {row.not_compared_because}")
            continue
        estimate = row.estimate(with_measured_components=False)
        found = estimate.kv_cache_bytes / GIBIBYTE
        error = row.error(estimate)
        lines.append(
            f"{row.row:14} {row.model[:24]:24} {row.kv_cache_gib:8.2f} {found:8.2f} {error:+8.1%}  {row.notes}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(kv_capacity_report() + "\n")
