"""One step's time by term, at an operating point: what a replica's time goes into."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.simulation.step_time import StepTimeCoefficients, soft_maximum
from inferplan.sizing.fleet import LimitingFactor
from inferplan.sizing.operating_point import OperatingPoint


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Seconds of one step. `gemm` is the soft maximum of `weights` and `gemm_compute`, so that those do not add up."""

    weights: float
    gemm_compute: float
    gemm: float
    decode_attention: float
    prefill_attention: float
    allreduce: float
    elementwise: float
    host: float

    @property
    def total(self) -> float:
        """The whole step."""
        attention = self.decode_attention + self.prefill_attention
        return self.gemm + attention + self.allreduce + self.elementwise + self.host

    @property
    def by_resource(self) -> dict[LimitingFactor, float]:
        """Seconds by what they are spent on; the GEMMs count for the larger of streaming and computing."""
        is_streaming = self.weights >= self.gemm_compute
        return {
            LimitingFactor.MEMORY_BANDWIDTH: self.decode_attention
            + self.elementwise
            + (self.gemm if is_streaming else 0.0),
            LimitingFactor.COMPUTE: self.prefill_attention + (0.0 if is_streaming else self.gemm),
            LimitingFactor.INTERCONNECT: self.allreduce,
            LimitingFactor.HOST: self.host,
        }

    @property
    def dominant(self) -> LimitingFactor:
        """The resource that takes most of the step."""
        seconds = self.by_resource
        return max(seconds, key=lambda factor: seconds[factor])


def step_terms(coefficients: StepTimeCoefficients, point: OperatingPoint) -> StepTerms:
    """The equation of the engine model, term by term, at mean values."""
    tokens = max(1.0, point.decode_sequences + point.prefill_tokens)
    weights = coefficients.dense_weight_seconds
    if coefficients.expert_weight_seconds > 0:
        untouched = (1.0 - coefficients.experts_per_token / coefficients.expert_count) ** tokens
        weights += coefficients.expert_weight_seconds * (1.0 - untouched)
    compute = coefficients.compute_seconds_per_token * (tokens + coefficients.gemm_padding_tokens)
    windowed = coefficients.windowed_fraction
    context = (1.0 - windowed) * point.context_tokens + windowed * point.windowed_context_tokens
    pairs = (1.0 - windowed) * point.prefill_pairs + windowed * point.windowed_prefill_pairs
    sequences = max(1.0, point.decode_sequences)
    return StepTerms(
        weights=weights,
        gemm_compute=compute,
        gemm=soft_maximum(weights, compute, coefficients.roofline_sharpness),
        decode_attention=sequences * context * coefficients.kv_seconds_per_context_token,
        prefill_attention=pairs * coefficients.prefill_attention_seconds_per_pair,
        allreduce=coefficients.allreduce_seconds_per_step + tokens * coefficients.allreduce_seconds_per_token,
        elementwise=tokens * coefficients.elementwise_seconds_per_token,
        host=coefficients.host_seconds_per_step + sequences * coefficients.host_seconds_per_sequence,
    )
