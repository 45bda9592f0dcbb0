"""Reading `quantization_config`: how the linear layers of a checkpoint are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

from inferplan.catalog.architecture import QuantizationMethod, WeightQuantization
from inferplan.catalog.huggingface.fields import ConfigFields, as_integer, describe
from inferplan.catalog.huggingface.unquantized_modules import ModulePart, UnquantizedModules
from inferplan.catalog.precision import Precision

MAXIMUM_GROUP_ELEMENTS = 65_536
FP8_BLOCK_SCALE_BYTES = 4.0
"""Block scales are float32 tensors (`weight_scale_inv`) in the DeepSeek and Qwen FP8 checkpoints."""

_UNQUANTIZED_KEYS = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")

# One scale byte a group: E8M0 for 32 elements in the OCP microscaling format MXFP4, E4M3 for 16 elements in NVFP4.
MXFP4 = WeightQuantization(QuantizationMethod.MXFP4, Precision.MXFP4, group_size_elements=32, scale_bytes=1.0)
NVFP4 = WeightQuantization(QuantizationMethod.NVFP4, Precision.NVFP4, group_size_elements=16, scale_bytes=1.0)
FP8_PER_TENSOR_OR_CHANNEL = WeightQuantization(QuantizationMethod.FP8, Precision.FP8)


def read_quantization(fields: ConfigFields, layers: int, has_experts: bool) -> WeightQuantization | None:
    """The quantisation in `fields`, a `quantization_config` object; None after noting why it cannot be read."""
    method = _method(fields)
    if method is None:
        return None
    read = _METHODS.get(method)
    if read is None:
        hint = "it quantises while loading, and its memory is not modelled" if method == "bitsandbytes" else "unknown"
        fields.note(
            "quant_method",
            f"is {describe(method)} ({hint}); legal are {', '.join(_METHODS)}, or no quantization_config at all",
            "UNSUPPORTED_QUANTIZATION",
        )
        return None
    quantization = read(fields)
    if quantization is None:
        return None
    return _with_unquantized_modules(fields, quantization, layers, has_experts)


def _method(fields: ConfigFields) -> str | None:
    method = fields.text("quant_method")
    if method is not None:
        return method.lower()
    if fields.has("quant_method"):
        return None
    if fields.has("quant_algo"):
        # Early ModelOpt exports name the algorithm only.
        return "modelopt"
    fields.note("quant_method", f"is missing; legal are {', '.join(_METHODS)}", "MISSING")
    return None


def _fp8(fields: ConfigFields) -> WeightQuantization | None:
    if not fields.has("weight_block_size"):
        return FP8_PER_TENSOR_OR_CHANNEL
    return _fp8_blocks(fields, "weight_block_size")


def _fp8_blocks(fields: ConfigFields, key: str) -> WeightQuantization | None:
    block = fields.integers(key, maximum=MAXIMUM_GROUP_ELEMENTS)
    if block is None:
        return None
    if len(block) != 2 or block[0] != block[1] or block[0] < 1:
        fields.note(
            key, f"is {block if len(block) < 5 else 'a longer list'}; legal is a square block such as [128, 128]"
        )
        return None
    return WeightQuantization(
        QuantizationMethod.FP8, Precision.FP8, block_size_elements=block[0], scale_bytes=FP8_BLOCK_SCALE_BYTES
    )


def _awq(fields: ConfigFields) -> WeightQuantization | None:
    bits = fields.integer("bits", "w_bit", maximum=64)
    if bits and bits != 4:
        fields.note("bits", f"is {bits}; legal for AWQ is 4")
        return None
    group = _group_size(fields, "group_size", "q_group_size")
    zero_points = fields.flag("zero_point", default=True)
    return WeightQuantization(
        QuantizationMethod.AWQ,
        Precision.INT4,
        group_size_elements=group,
        zero_point_bytes=0.5 if zero_points else 0.0,
    )


def _gptq(fields: ConfigFields) -> WeightQuantization | None:
    bits = fields.integer("bits", maximum=64)
    if bits and bits not in _INTEGER_PRECISIONS:
        fields.note("bits", f"is {bits}; legal for GPTQ are 4 and 8")
    if fields.values.get("dynamic"):
        fields.note(
            "dynamic", "gives layers different formats; legal is one format for all", "UNSUPPORTED_QUANTIZATION"
        )
    group = _group_size(fields, "group_size")
    if bits not in _INTEGER_PRECISIONS:
        return None
    # The file format holds packed zero points even when the quantisation is symmetric.
    return WeightQuantization(
        QuantizationMethod.GPTQ, _INTEGER_PRECISIONS[bits], group_size_elements=group, zero_point_bytes=bits / 8
    )


_INTEGER_PRECISIONS: Mapping[int, Precision] = MappingProxyType({4: Precision.INT4, 8: Precision.INT8})


def _group_size(fields: ConfigFields, *keys: str) -> int | None:
    """Elements that share a scale; -1 means one scale an output channel, which is None here."""
    if any(as_integer(fields.values.get(key)) == -1 for key in keys):
        return None
    return fields.integer(*keys, maximum=MAXIMUM_GROUP_ELEMENTS)


def _mxfp4(_fields: ConfigFields) -> WeightQuantization:
    # The method quantises expert weights only, in every file that uses it (gpt-oss).
    return dataclasses.replace(MXFP4, experts_only=True)


def _modelopt(fields: ConfigFields) -> WeightQuantization | None:
    algorithm = fields.text("quant_algo")
    known = {"FP8": FP8_PER_TENSOR_OR_CHANNEL, "NVFP4": NVFP4}
    found = known.get((algorithm or "").upper())
    if found is None:
        stated = f"is {describe(algorithm)}" if algorithm is not None else "is missing or wrong"
        fields.note("quant_algo", f"{stated}; legal are {', '.join(known)}", "UNSUPPORTED_QUANTIZATION")
    return found


def _compressed_tensors(fields: ConfigFields) -> WeightQuantization | None:
    groups = fields.child("config_groups")
    if groups is None or not groups.values:
        if not fields.has("config_groups") or groups is not None:
            fields.note(
                "config_groups", "is missing or empty; needed is at least one group with its weights", "MISSING"
            )
        return None
    formats = [_compressed_weights(groups, name) for name in groups.values]
    if any(found is None for found in formats):
        return None
    if any(found != formats[0] for found in formats):
        fields.note("config_groups", "mixes formats; legal is one format for all groups", "UNSUPPORTED_QUANTIZATION")
        return None
    return formats[0]


def _compressed_weights(groups: ConfigFields, name: str) -> WeightQuantization | None:
    group = groups.child(name)
    weights = group.child("weights") if group is not None else None
    if group is None or weights is None:
        if not groups.has(name) or (group is not None and not group.has("weights")):
            groups.note(f"{name[:40]}.weights", "is missing; needed is the format of the weights", "MISSING")
        return None
    kind = weights.text("type")
    bits = weights.integer("num_bits", maximum=64)
    if (kind, bits) == ("float", 8):
        return _fp8_blocks(weights, "block_structure") if weights.has("block_structure") else FP8_PER_TENSOR_OR_CHANNEL
    if (kind, bits) == ("int", 8):
        return WeightQuantization(QuantizationMethod.INT8, Precision.INT8, group_size_elements=_stated_group(weights))
    if (kind, bits) == ("int", 4):
        # The packed layout of GPTQ: 4-bit integers with one 16-bit scale a group, zero points only if not symmetric.
        is_symmetric = weights.flag("symmetric", default=True)
        return WeightQuantization(
            QuantizationMethod.GPTQ,
            Precision.INT4,
            group_size_elements=_stated_group(weights),
            zero_point_bytes=0.0 if is_symmetric else 0.5,
        )
    four_bit_floats = {32: MXFP4, 16: NVFP4}
    group_size = _stated_group(weights)
    if (kind, bits) == ("float", 4) and group_size in four_bit_floats:
        return four_bit_floats[group_size]
    weights.note(
        "type",
        f"with num_bits and group_size is {describe(kind)}, {bits}, {group_size}; legal are float 8, int 8, int 4, "
        "float 4 in groups of 16 (NVFP4) and float 4 in groups of 32 (MXFP4)",
        "UNSUPPORTED_QUANTIZATION",
    )
    return None


def _stated_group(weights: ConfigFields) -> int | None:
    if as_integer(weights.values.get("group_size")) == -1:
        return None
    return weights.optional_integer("group_size", maximum=MAXIMUM_GROUP_ELEMENTS)


def _with_unquantized_modules(
    fields: ConfigFields, quantization: WeightQuantization, layers: int, has_experts: bool
) -> WeightQuantization | None:
    """Decides `experts_only`, and refuses selections of 16-bit layers that the memory model cannot express.

    Where attention is 16-bit in part, or shared experts are quantised after all, `experts_only` errs on the side of
    more memory: 2 to 3 % of the weights in DeepSeek-V3.1-NVFP4, whose output projections are FP4.
    """
    key = next((key for key in _UNQUANTIZED_KEYS if fields.has(key)), None)
    patterns = (fields.texts(key) if key else None) or []
    modules = UnquantizedModules.from_patterns(patterns, layers)
    key = key or "quant_method"
    if quantization.experts_only and not has_experts:
        fields.note(key, "quantises experts only, but the model has none", "UNSUPPORTED_QUANTIZATION")
        return None
    if modules.unknown_patterns:
        shown = ", ".join(describe(pattern) for pattern in modules.unknown_patterns[:5])
        fields.note(key, f"holds names of unknown parts: {shown}; {_LEGAL_SELECTION}", "UNSUPPORTED_QUANTIZATION")
        return None
    attention_layers = modules.attention_layers(layers)
    beside_experts = any(modules.names(part) for part in (ModulePart.FEED_FORWARD, ModulePart.SHARED_EXPERTS))
    if not attention_layers and not beside_experts and not modules.names(ModulePart.EXPERTS):
        return quantization
    if has_experts and attention_layers >= layers and not modules.names(ModulePart.EXPERTS):
        return dataclasses.replace(quantization, experts_only=True)
    fields.note(
        key,
        f"leaves the attention of {attention_layers} of {layers} layers at 16 bit"
        f"{' and some experts' if modules.names(ModulePart.EXPERTS) else ''}"
        f"{' and some feed-forward layers' if beside_experts else ''}; {_LEGAL_SELECTION}",
        "UNSUPPORTED_QUANTIZATION",
    )
    return None


_LEGAL_SELECTION = (
    "legal is to leave only embeddings, norms, routers, vision towers and the LM head at 16 bit, "
    "or, in a mixture-of-experts model, the attention of all layers too"
)

_METHODS: Mapping[str, Callable[[ConfigFields], WeightQuantization | None]] = MappingProxyType(
    {
        "fp8": _fp8,
        "awq": _awq,
        "gptq": _gptq,
        "mxfp4": _mxfp4,
        "compressed-tensors": _compressed_tensors,
        "modelopt": _modelopt,
    }
)
