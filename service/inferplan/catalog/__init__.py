"""What is known before measuring: models, accelerators and engines, and reading a model's own config.json."""

from __future__ import annotations

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import (
    AttentionScope,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    MixtureOfExperts,
    Model,
    ModelArchitecture,
    QuantizationMethod,
    WeightQuantization,
)
from inferplan.catalog.catalog import Catalog
from inferplan.catalog.checks import accelerator_violations, architecture_violations, model_violations
from inferplan.catalog.engine import Engine, EngineDefaults, EngineMemory, EngineRelease
from inferplan.catalog.huggingface import read_huggingface_config
from inferplan.catalog.loader import is_built_in, load_catalog
from inferplan.catalog.precision import Precision

__all__ = [
    "Accelerator",
    "AttentionScope",
    "Catalog",
    "Engine",
    "EngineDefaults",
    "EngineMemory",
    "EngineRelease",
    "FeedForward",
    "GroupedAttention",
    "LatentAttention",
    "LayerGroup",
    "LinearAttention",
    "MixtureOfExperts",
    "Model",
    "ModelArchitecture",
    "Precision",
    "QuantizationMethod",
    "WeightQuantization",
    "accelerator_violations",
    "architecture_violations",
    "is_built_in",
    "load_catalog",
    "model_violations",
    "read_huggingface_config",
]
