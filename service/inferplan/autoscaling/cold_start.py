"""What a new replica's start takes, part by part: a site's own figures, else measured defaults.

Only the part that grows with the model is computed; the others are times that were measured elsewhere, and said to be.
"""

from __future__ import annotations

from inferplan.autoscaling.policy import ColdStart, PolicyDerivation, StatedColdStart

NODE_BOOT_SECONDS = 90.0
IMAGE_PULL_SECONDS = 30.0
"""Assumptions, and said to be: no source that we know measures these two by themselves."""

VOLUME_BYTES_PER_SECOND = 2.39e9
"""From a Kubernetes volume into GPU memory: Llama-3.3-70B FP8, 67.7 GiB in 30.47 s (vLLM's log on an 80 GiB GPU)."""

LOAD_BYTES_PER_SECOND = 5.25e9
"""From page cache into GPU memory: Qwen3-32B, 65.5 GB of safetensors in 12.47 s on H100 (ServerlessLLM, h100_2025)."""

FETCH_BYTES_PER_SECOND = 1.0 / (1.0 / VOLUME_BYTES_PER_SECOND - 1.0 / LOAD_BYTES_PER_SECOND)
"""What is left of the volume's time without the load: 4.4 GB/s."""

COMPILE_AND_CAPTURE_SECONDS = 44.0
"""torch.compile of the same Llama-3.3-70B, 26 s, and the engine's start beyond loading: 18 s from weights loaded to
ready for Llama-3-8B (Run:ai model streamer's benchmarks, vLLM 0.5.5: 66.1 - 48.0 s)."""

EXPERTS_COMPILE_AND_CAPTURE_SECONDS = 195.0
"""Mixtures of experts take longer: GLM-4.7, 3 to 4 minutes in all of which 15 s load. DeepSeek-V4-Pro on eight B200
took 93 s with its kernels cached, 409 s without (ModelExpress)."""

_SOURCES = {
    "node_boot": "assumed",
    "image_pull": "assumed",
    "weights_fetch": f"at {FETCH_BYTES_PER_SECOND / 1e9:.1f} GB/s from a volume",
    "weights_load": f"at {LOAD_BYTES_PER_SECOND / 1e9:.2f} GB/s to the GPUs",
    "compile_and_capture": "as measured elsewhere",
}


def expected_cold_start(
    weights_bytes: float, *, routed_experts: bool, stated: StatedColdStart | None = None
) -> tuple[ColdStart, PolicyDerivation]:
    """The cold start of a replica whose weights take `weights_bytes` on all its GPUs, and where it came from."""
    stated = stated or StatedColdStart()
    if stated.total_seconds is not None:
        cold_start = ColdStart(
            stated.total_seconds,
            stated.node_boot_seconds,
            stated.image_pull_seconds,
            stated.weights_fetch_seconds,
            stated.weights_load_seconds,
            stated.compile_and_capture_seconds,
        )
        return cold_start, PolicyDerivation("cold_start.total", f"{stated.total_seconds:g} s, as stated")
    defaults = {
        "node_boot": NODE_BOOT_SECONDS,
        "image_pull": IMAGE_PULL_SECONDS,
        "weights_fetch": weights_bytes / FETCH_BYTES_PER_SECOND,
        "weights_load": weights_bytes / LOAD_BYTES_PER_SECOND,
        "compile_and_capture": EXPERTS_COMPILE_AND_CAPTURE_SECONDS if routed_experts else COMPILE_AND_CAPTURE_SECONDS,
    }
    parts, words = {}, []
    for name, default in defaults.items():
        own: float | None = getattr(stated, f"{name}_seconds")
        parts[name] = default if own is None else own
        words.append(f"{name} {parts[name]:.3g} s ({_SOURCES[name] if own is None else 'stated'})")
    total = sum(parts.values())
    cold_start = ColdStart(
        total_seconds=total,
        node_boot_seconds=parts["node_boot"],
        image_pull_seconds=parts["image_pull"],
        weights_fetch_seconds=parts["weights_fetch"],
        weights_load_seconds=parts["weights_load"],
        compile_and_capture_seconds=parts["compile_and_capture"],
    )
    formula = f"{' + '.join(words)} = {total:.0f} s, for {weights_bytes / 1e9:.1f} GB of weights"
    return cold_start, PolicyDerivation("cold_start.total", formula)
