"""Parameters of the vision towers that engines load beside a language model.

Counted from the layer shapes of the `transformers` library (version 5.24 was read), norms and biases included. The
results equal the published totals of whole checkpoints less the language model: see tests.
"""

from __future__ import annotations

from inferplan.catalog.huggingface.fields import MAXIMUM_LAYERS, MAXIMUM_WIDTH, ConfigFields

MAXIMUM_PIXELS = 65_536


def pixtral_parameters(vision: ConfigFields, outer: ConfigFields, text_hidden_size: int) -> int:
    """Pixtral tower with the patch merger and projector of Mistral Small 3.x."""
    hidden, layers, intermediate = _transformer(vision)
    patch = vision.integer("patch_size", maximum=MAXIMUM_PIXELS)
    channels = vision.integer("num_channels", maximum=64, default=3)
    merge = outer.integer("spatial_merge_size", maximum=64, default=2)
    features = outer.values.get("vision_feature_layer")
    feature_layers = len(features) if isinstance(features, list) else 1
    has_bias = outer.flag("multimodal_projector_bias", default=False)
    block = 4 * hidden * hidden + 3 * hidden * intermediate + 2 * hidden
    tower = layers * block + channels * patch * patch * hidden + hidden
    merger = hidden + hidden * merge * merge * hidden
    projector = hidden * feature_layers * text_hidden_size + text_hidden_size * text_hidden_size
    return tower + merger + projector + (2 * text_hidden_size if has_bias else 0)


def siglip_parameters(vision: ConfigFields, _outer: ConfigFields, text_hidden_size: int) -> int:
    """SigLIP tower with the projection and norm of Gemma 3."""
    hidden, layers, intermediate = _transformer(vision)
    patch = vision.integer("patch_size", maximum=MAXIMUM_PIXELS)
    image = vision.integer("image_size", maximum=MAXIMUM_PIXELS)
    channels = vision.integer("num_channels", maximum=64, default=3)
    positions = (image // patch) ** 2 if patch else 0
    tower = layers * _biased_block(hidden, intermediate) + channels * patch * patch * hidden + hidden
    return tower + positions * hidden + 2 * hidden + hidden * text_hidden_size + hidden


def llama4_parameters(vision: ConfigFields, _outer: ConfigFields, text_hidden_size: int) -> int:
    """Llama 4 tower with its pixel-shuffle adapter and projector."""
    hidden, layers, intermediate = _transformer(vision)
    patch = vision.integer("patch_size", maximum=MAXIMUM_PIXELS)
    image = vision.integer("image_size", maximum=MAXIMUM_PIXELS)
    channels = vision.integer("num_channels", maximum=64, default=3)
    projector_input = vision.integer("projector_input_dim", maximum=MAXIMUM_WIDTH)
    projector_output = vision.integer("projector_output_dim", maximum=MAXIMUM_WIDTH)
    vision_output = vision.integer("vision_output_dim", maximum=MAXIMUM_WIDTH)
    positions = (image // patch) ** 2 + 1 if patch else 0
    tower = layers * _biased_block(hidden, intermediate) + channels * patch * patch * hidden
    tower += hidden + positions * hidden + 4 * hidden
    adapter = intermediate * projector_input + projector_output * projector_output
    return tower + adapter + vision_output * text_hidden_size


def qwen2_vl_parameters(vision: ConfigFields, _outer: ConfigFields, text_hidden_size: int) -> int:
    """Qwen2-VL tower with the merger that joins patches for the language model."""
    width = vision.integer("embed_dim", maximum=MAXIMUM_WIDTH)
    depth = vision.integer("depth", maximum=MAXIMUM_LAYERS)
    ratio = vision.integer("mlp_ratio", maximum=64)
    merged = width * vision.integer("spatial_merge_size", maximum=64, default=2) ** 2
    merger = 2 * width + _two_layers(merged, merged, text_hidden_size)
    return _patch_embedding(vision, width) + depth * _biased_block(width, width * ratio) + merger


def qwen2_5_vl_parameters(vision: ConfigFields, _outer: ConfigFields, _text_hidden_size: int) -> int:
    """Qwen2.5-VL tower: as Qwen2-VL with a gated MLP and norms without biases."""
    width = vision.integer("hidden_size", maximum=MAXIMUM_WIDTH)
    depth = vision.integer("depth", maximum=MAXIMUM_LAYERS)
    intermediate = vision.integer("intermediate_size", maximum=MAXIMUM_WIDTH)
    out = vision.integer("out_hidden_size", maximum=MAXIMUM_WIDTH)
    merged = width * vision.integer("spatial_merge_size", maximum=64, default=2) ** 2
    attention = 4 * width * width + 4 * width
    gated_mlp = 3 * width * intermediate + 2 * intermediate + width
    merger = width + _two_layers(merged, merged, out)
    return _patch_embedding(vision, width) + depth * (attention + gated_mlp + 2 * width) + merger


def qwen3_vl_parameters(vision: ConfigFields, _outer: ConfigFields, _text_hidden_size: int) -> int:
    """Qwen3-VL: one merger at the end and one for each layer whose features are fed into the language model."""
    width = vision.integer("hidden_size", maximum=MAXIMUM_WIDTH)
    depth = vision.integer("depth", maximum=MAXIMUM_LAYERS)
    intermediate = vision.integer("intermediate_size", maximum=MAXIMUM_WIDTH)
    out = vision.integer("out_hidden_size", maximum=MAXIMUM_WIDTH)
    positions = vision.integer("num_position_embeddings", maximum=MAXIMUM_WIDTH)
    merged = width * vision.integer("spatial_merge_size", maximum=64, default=2) ** 2
    taps = vision.integers("deepstack_visual_indexes", maximum=MAXIMUM_LAYERS)
    if taps is None and not vision.has("deepstack_visual_indexes"):
        vision.note("deepstack_visual_indexes", "is missing; needed is a list of layer numbers", "MISSING")
    merger = _two_layers(merged, merged, out)
    mergers = 2 * width + merger + len(taps or ()) * (2 * merged + merger)
    tower = _patch_embedding(vision, width) + width + positions * width
    return tower + depth * _biased_block(width, intermediate) + mergers


def _transformer(vision: ConfigFields) -> tuple[int, int, int]:
    hidden = vision.integer("hidden_size", maximum=MAXIMUM_WIDTH)
    layers = vision.integer("num_hidden_layers", maximum=MAXIMUM_LAYERS)
    return hidden, layers, vision.integer("intermediate_size", maximum=MAXIMUM_WIDTH)


def _biased_block(width: int, intermediate: int) -> int:
    """Attention, a plain two-matrix MLP and two layer norms, all with biases."""
    attention = 4 * width * width + 4 * width
    return attention + 2 * width * intermediate + intermediate + width + 4 * width


def _two_layers(inner: int, middle: int, outer: int) -> int:
    return inner * middle + middle + middle * outer + outer


def _patch_embedding(vision: ConfigFields, width: int) -> int:
    """Qwen's three-dimensional patch convolution, without its bias."""
    patch = vision.integer("patch_size", maximum=MAXIMUM_PIXELS)
    frames = vision.integer("temporal_patch_size", maximum=64, default=2)
    channels = vision.integer("in_channels", "in_chans", maximum=64, default=3)
    return channels * frames * patch * patch * width
