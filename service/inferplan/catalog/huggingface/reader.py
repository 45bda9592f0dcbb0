"""From a Hugging Face config.json to a ModelArchitecture, or to everything that is wrong with it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from types import MappingProxyType

from inferplan.catalog.architecture import ModelArchitecture, WeightQuantization
from inferplan.catalog.checks import architecture_violations
from inferplan.catalog.huggingface.document import parse_config_object
from inferplan.catalog.huggingface.families import (
    KNOWN_MODEL_TYPES,
    MULTIMODAL_FAMILIES,
    TEXT_FAMILIES,
    MultimodalFamily,
    TextFamily,
)
from inferplan.catalog.huggingface.fields import (
    MAXIMUM_LAYERS,
    MAXIMUM_TOKENS,
    MAXIMUM_VOCABULARY,
    MAXIMUM_WIDTH,
    ConfigFields,
    describe,
)
from inferplan.catalog.huggingface.quantization import read_quantization
from inferplan.catalog.precision import Precision
from inferplan.errors import InvalidInputError, Violation

_DTYPES: Mapping[str, Precision] = MappingProxyType(
    {precision.value: precision for precision in (Precision.BFLOAT16, Precision.FLOAT16, Precision.FLOAT32)}
)


def read_huggingface_config(text: str | bytes, field: str = "config_json") -> ModelArchitecture:
    """The architecture that a model's published config.json describes.

    `text` is the file's content, `field` the request field that it came in, which leads every violation's path. Nothing
    is guessed: a key is needed unless the family's own config class defines what its absence means.

    Raises InvalidInputError with all that is wrong: not JSON, over 1 MiB, unknown `model_type` or quantisation, missing
    keys, values out of range, dimensions that contradict each other.
    """
    violations: list[Violation] = []
    top = ConfigFields(parse_config_object(text, field), field, violations)
    model_type = _known_model_type(top)
    if model_type in MULTIMODAL_FAMILIES:
        architecture = _read_multimodal(top, model_type, MULTIMODAL_FAMILIES[model_type])
    else:
        architecture = _read_text(top, top, model_type, TEXT_FAMILIES[model_type])
    if not violations:
        violations.extend(violation.below(field) for violation in architecture_violations(architecture))
    if violations:
        # A key that serves two dimensions is read, and noted, twice.
        raise InvalidInputError(dict.fromkeys(violations))
    return architecture


def _known_model_type(top: ConfigFields) -> str:
    """Raises at once for an unknown family: without one, nothing else in the file can be judged."""
    model_type = top.text("model_type")
    if model_type in KNOWN_MODEL_TYPES:
        return model_type
    known = ", ".join(KNOWN_MODEL_TYPES)
    if model_type is not None:
        near = difflib.get_close_matches(model_type[:100], KNOWN_MODEL_TYPES, n=3, cutoff=0.5)
        nearest = f" (nearest: {', '.join(near)})" if near else ""
        top.note(
            "model_type", f"is {describe(model_type)}, which is not known{nearest}; known are {known}", "UNKNOWN_MODEL"
        )
    elif not top.has("model_type"):
        top.note("model_type", f"is missing; known are {known}", "MISSING")
    raise InvalidInputError(top.violations)


def _read_multimodal(top: ConfigFields, model_type: str, family: MultimodalFamily) -> ModelArchitecture:
    text_type = family.text_families[0]
    text = top.child("text_config", TEXT_FAMILIES[text_type].class_defaults)
    if text is not None:
        stated = text.text("model_type")
        if stated is not None and stated not in family.text_families:
            legal = ", ".join(family.text_families)
            text.note("model_type", f"is {describe(stated)}; legal inside {model_type} is {legal}", "UNKNOWN_MODEL")
    elif not family.flat or top.has("text_config"):
        if not top.has("text_config"):
            top.note("text_config", "is missing; needed is the object with the language model's dimensions", "MISSING")
        # Read an empty object without keeping what is noted, so that the one violation stands for all its keys.
        text = ConfigFields({}, top.path_of("text_config"), [])
    architecture = _read_text(text or top, top, model_type, TEXT_FAMILIES[text_type])
    return _with_vision(top, family, architecture)


def _with_vision(top: ConfigFields, family: MultimodalFamily, text: ModelArchitecture) -> ModelArchitecture:
    vision = top.child("vision_config")
    if vision is None:
        if not top.has("vision_config"):
            top.note(
                "vision_config",
                "is missing; needed is the object with the vision tower's dimensions (for the language model alone, "
                f"give the content of text_config with model_type {family.text_families[0]})",
                "MISSING",
            )
        return text
    parameters = family.count_vision_parameters(vision, top, text.hidden_size)
    return dataclasses.replace(text, vision_parameters=parameters)


def _read_text(fields: ConfigFields, top: ConfigFields, model_type: str, family: TextFamily) -> ModelArchitecture:
    """`fields` holds the language model's keys; `top` is the whole file, the same object in text-only models."""
    fields = fields.with_defaults(family.class_defaults)
    layers = fields.integer(*family.layers_keys, maximum=MAXIMUM_LAYERS)
    hidden_size = fields.integer(*family.hidden_keys, maximum=MAXIMUM_WIDTH)
    _check_embedding_width(fields, family, hidden_size)
    feed_forward, experts = family.feed_forward(fields, layers, hidden_size)
    return ModelArchitecture(
        family=model_type,
        layers=layers,
        hidden_size=hidden_size,
        vocabulary_size=fields.integer("vocab_size", maximum=MAXIMUM_VOCABULARY),
        tied_embeddings=_tied_embeddings(fields, top, family),
        maximum_context_tokens=_context_tokens(fields, family),
        attention=family.attention(fields, hidden_size),
        layer_groups=family.layer_groups(fields, layers),
        checkpoint_precision=_checkpoint_precision(fields, top, family),
        feed_forward=feed_forward,
        experts=experts,
        linear_attention=family.linear_attention(fields) if family.linear_attention else None,
        quantization=_quantization(fields, top, layers, experts is not None),
    )


def _check_embedding_width(fields: ConfigFields, family: TextFamily, hidden_size: int) -> None:
    if family.embedding_width_key is None:
        return
    width = fields.optional_integer(family.embedding_width_key, maximum=MAXIMUM_WIDTH)
    if width and hidden_size and width != hidden_size:
        fields.note(
            family.embedding_width_key, f"is {width}; legal is the hidden size {hidden_size}: no projection is known"
        )


def _tied_embeddings(fields: ConfigFields, top: ConfigFields, family: TextFamily) -> bool:
    """The language model's own key decides, then the whole file's, then the family's default."""
    key = "tie_word_embeddings"
    return fields.flag(key, top.flag(key, family.tied_by_default))


def _context_tokens(fields: ConfigFields, family: TextFamily) -> int:
    """The trained context, or what a YaRN scaling stretches it to, as vLLM derives it."""
    tokens = fields.integer(*family.context_keys, maximum=MAXIMUM_TOKENS)
    scaling = fields.child("rope_scaling") or fields.child("rope_parameters")
    if scaling is None or "yarn" not in (scaling.values.get("rope_type"), scaling.values.get("type")):
        return tokens
    original = scaling.optional_integer("original_max_position_embeddings", maximum=MAXIMUM_TOKENS) or tokens
    factor = scaling.positive_number("factor") or 1.0
    stretched = int(original * factor)
    if stretched > MAXIMUM_TOKENS:
        scaling.note("factor", f"stretches the context to {stretched} tokens; legal is up to {MAXIMUM_TOKENS}")
    return max(tokens, stretched)


def _checkpoint_precision(fields: ConfigFields, top: ConfigFields, family: TextFamily) -> Precision:
    for holder in (fields, top):
        for key in ("torch_dtype", "dtype"):
            name = holder.values.get(key)
            if isinstance(name, str) and name in _DTYPES:
                return _DTYPES[name]
            if name is not None:
                holder.note(key, f"is {describe(name)}; legal are {', '.join(_DTYPES)}")
                return Precision.BFLOAT16
    if family.checkpoint_precision is not None:
        return family.checkpoint_precision
    top.note("torch_dtype", f"is missing (also spelled dtype); legal are {', '.join(_DTYPES)}", "MISSING")
    return Precision.BFLOAT16


def _quantization(fields: ConfigFields, top: ConfigFields, layers: int, has_experts: bool) -> WeightQuantization | None:
    for holder in (top, fields):
        # compression_config is what compressed-tensors called its key at first.
        for key in ("quantization_config", "compression_config"):
            if holder.has(key):
                found = holder.child(key)
                return read_quantization(found, layers, has_experts) if found is not None else None
    return None
