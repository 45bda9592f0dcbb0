"""What breaks the field-for-field rules: unions that are oneofs, and ids that are resource names on the wire."""

from __future__ import annotations

from typing import Any

from inferplan.catalog.architecture import GroupedAttention, LatentAttention, ModelArchitecture
from inferplan.rpc.convert.mapping import FieldCodec, fill_message, from_message, register_field, register_union
from inferplan.sizing.configuration import Configuration
from inferplan.sizing.workload import ConstantLength, LengthDistribution, LognormalLength, UniformLength

ACCELERATORS = "accelerators/"
ENGINES = "engines/"
MODELS = "models/"


def bare_id(name: str, collection: str) -> str:
    """The id of `accelerators/h100` and of `h100` alike; `collection` ends with a slash."""
    return name.removeprefix(collection)


def _write_length(length: LengthDistribution, message: Any) -> None:
    if isinstance(length, ConstantLength):
        message.constant_tokens = length.constant_tokens
    elif isinstance(length, UniformLength):
        fill_message(length, message.uniform)
    else:
        fill_message(length, message.lognormal)


def _read_length(message: Any) -> LengthDistribution | None:
    shape = message.WhichOneof("shape")
    if shape == "constant_tokens":
        return ConstantLength(message.constant_tokens)
    if shape == "uniform":
        return from_message(message.uniform, UniformLength)
    if shape == "lognormal":
        return from_message(message.lognormal, LognormalLength)
    return None


def _write_attention(attention: GroupedAttention | LatentAttention, message: Any) -> None:
    target = message.grouped_attention if isinstance(attention, GroupedAttention) else message.latent_attention
    target.SetInParent()
    fill_message(attention, target)


def _read_attention(message: Any) -> GroupedAttention | LatentAttention | None:
    which = message.WhichOneof("attention")
    if which == "grouped_attention":
        return from_message(message.grouped_attention, GroupedAttention)
    if which == "latent_attention":
        return from_message(message.latent_attention, LatentAttention)
    return None


def resource_name_codec(field: str, collection: str) -> FieldCodec:
    """An id in the domain that is `collection` + id on the wire."""

    def write(value: str, message: Any) -> None:
        setattr(message, field, f"{collection}{value}" if value else "")

    def read(message: Any) -> str:
        return bare_id(getattr(message, field), collection)

    return FieldCodec(write, read)


register_union(LengthDistribution, _write_length, _read_length)
register_field(ModelArchitecture, "attention", FieldCodec(_write_attention, _read_attention))
register_field(Configuration, "accelerator", resource_name_codec("accelerator", ACCELERATORS))
register_field(Configuration, "engine", resource_name_codec("engine", ENGINES))
