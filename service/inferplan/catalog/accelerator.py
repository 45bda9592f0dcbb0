"""What a GPU can do according to its maker, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inferplan.catalog.precision import Precision


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU product, form factor included, since bandwidth and power differ between form factors.

    `label_memory_bytes` is what the product is sold as, `visible_memory_bytes` what a runtime reports as total memory,
    which is what an engine's memory fraction is taken of. `dense_flops_per_second` are peaks without sparsity by the
    precision of the operands; a precision that is absent has no matrix unit and runs at the 16-bit rate.
    `interconnect_bytes_per_second` is one direction of the GPU-to-GPU link of one GPU inside a node.
    `cost_usd_per_gpu_hour` is an editable default, a list price, never a quote. `sources` names, for every figure
    field, where it was read.
    """

    id: str
    display_name: str
    vendor: str
    architecture: str
    label_memory_bytes: float
    visible_memory_bytes: float
    memory_bandwidth_bytes_per_second: float
    dense_flops_per_second: Mapping[Precision, float]
    interconnect: str
    interconnect_bytes_per_second: float
    gpus_per_node: int
    cost_usd_per_gpu_hour: float
    sources: Mapping[str, str]
    aliases: tuple[str, ...] = ()

    def has_matrix_unit_for(self, precision: Precision) -> bool:
        """Whether GEMMs with weights of `precision` run at a rate of their own."""
        return precision in self.dense_flops_per_second

    def peak_flops_per_second(self, precision: Precision) -> float:
        """Dense peak of GEMMs whose weights have `precision`, falling back to the 16-bit rate where no unit exists."""
        found = self.dense_flops_per_second.get(precision)
        return found if found is not None else self.sixteen_bit_flops_per_second

    @property
    def sixteen_bit_flops_per_second(self) -> float:
        """Dense peak of 16-bit GEMMs, FLOP/s."""
        return self.dense_flops_per_second[Precision.FLOAT16]
