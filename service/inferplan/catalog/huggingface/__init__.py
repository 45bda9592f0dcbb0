"""Reading the config.json that model publishers put on the Hugging Face Hub."""

from __future__ import annotations

from inferplan.catalog.huggingface.document import MAXIMUM_CONFIG_BYTES
from inferplan.catalog.huggingface.families import KNOWN_MODEL_TYPES
from inferplan.catalog.huggingface.reader import read_huggingface_config

__all__ = ["KNOWN_MODEL_TYPES", "MAXIMUM_CONFIG_BYTES", "read_huggingface_config"]
