"""What measuring needs beyond the package itself, and what to install where it is missing."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from inferplan.errors import InvalidInputError

INSTALL_NODE = "pip install 'inferplan[measure]'"
INSTALL_ENDPOINT = "pip install 'inferplan[endpoint]'"


def require_torch() -> ModuleType:
    """PyTorch, imported here since it is an extra and slow. Raises InvalidInputError if it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise InvalidInputError.single(
            "", f"measuring a node needs PyTorch, which is not installed; install it with `{INSTALL_NODE}`"
        ) from None


def require_nvml() -> Any:
    """NVIDIA's management library, initialised. Raises InvalidInputError if it is missing or finds no driver."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        raise InvalidInputError.single(
            "", f"measuring a node needs nvidia-ml-py, which is not installed; install it with `{INSTALL_NODE}`"
        ) from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InvalidInputError.single(
            "",
            f"this machine has no NVIDIA GPU that can be used: {error}; install NVIDIA's driver, or measure elsewhere",
        ) from None
    return nvml


def require_gpus(torch: Any) -> int:
    """How many GPUs PyTorch sees. Raises InvalidInputError, with what to look at, if there is none."""
    count = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    if count == 0:
        raise InvalidInputError.single(
            "",
            f"PyTorch {torch.__version__} sees no GPU on this machine; `measure node` needs one. If there is one, "
            "install NVIDIA's driver and a PyTorch built for CUDA, and look at CUDA_VISIBLE_DEVICES",
        )
    return count
