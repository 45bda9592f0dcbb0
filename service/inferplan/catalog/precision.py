"""Number formats of weights, KV cache and matrix units, and what each costs in bytes."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """A number format. The value is the spelling used in YAML, on the command line and in stored plans."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"

    @property
    def bytes_per_element(self) -> float:
        """Bytes of one element without group scales, which belong to the quantisation and not to the format."""
        return _BYTES_PER_ELEMENT[self]

    @property
    def is_sixteen_bit(self) -> bool:
        """Whether an element takes two bytes."""
        return self in (Precision.FLOAT16, Precision.BFLOAT16)


_BYTES_PER_ELEMENT = {
    Precision.FLOAT32: 4.0,
    Precision.FLOAT16: 2.0,
    Precision.BFLOAT16: 2.0,
    Precision.FP8: 1.0,
    Precision.INT8: 1.0,
    Precision.INT4: 0.5,
    Precision.MXFP4: 0.5,
    Precision.NVFP4: 0.5,
}
