"""inferplan: the planning service that provisioning systems ask before they buy or start GPUs for LLM inference."""

__version__ = "0.1.0"
