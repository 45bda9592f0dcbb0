"""Small random cases for the simulator, as hypothesis draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from inferplan.simulation.engine import EngineParameters
from inferplan.simulation.requests import Requests, make_requests
from inferplan.simulation.step_time import StepTimeCoefficients
from support.reference_scheduler import Job, ReferenceReplica


@dataclass(frozen=True)
class Case:
    coefficients: StepTimeCoefficients
    engine: EngineParameters
    prompt_tokens: list[int]
    output_tokens: list[int]
    cached_tokens: list[int]
    classes: list[int]
    arrivals: list[float]

    def requests(self, with_arrivals: bool) -> Requests:
        return make_requests(
            self.prompt_tokens,
            self.output_tokens,
            self.arrivals if with_arrivals else None,
            self.cached_tokens,
            self.classes,
            ("a", "b"),
        )

    def jobs(self, with_arrivals: bool) -> list[Job]:
        return [
            Job(prompt, output, cached, traffic_class, arrival if with_arrivals else math.nan)
            for prompt, output, cached, traffic_class, arrival in zip(
                self.prompt_tokens, self.output_tokens, self.cached_tokens, self.classes, self.arrivals, strict=True
            )
        ]

    def replica(self) -> ReferenceReplica:
        return ReferenceReplica(self.coefficients, self.engine)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small cases where everything happens: prompts over several steps, blocks that run out, hits, windows, experts."""
    count = draw(st.integers(1, 30))
    lengths = st.lists(st.integers(1, draw(st.sampled_from([3, 30, 90]))), min_size=count, max_size=count)
    prompts, outputs = draw(lengths), draw(lengths)
    cached = draw(st.lists(st.sampled_from([0, 0, 1, 7, 16, 40]), min_size=count, max_size=count))
    block_tokens = draw(st.sampled_from([1, 3, 4, 16]))
    largest = max(p + o - 1 for p, o in zip(prompts, outputs, strict=True))
    slots = draw(st.integers(1, 12))
    engine = EngineParameters(
        maximum_sequences=slots,
        maximum_batched_tokens=slots + draw(st.integers(0, 60)),
        kv_blocks=-(-largest // block_tokens) + draw(st.sampled_from([0, 1, 5, 20, 1000])),
        block_tokens=block_tokens,
        chunked_prefill=draw(st.booleans()),
        shared_prefix=draw(st.booleans()),
    )
    windowed, experts = draw(st.booleans()), draw(st.booleans())
    # Irregular numbers, so that no step ends at the very moment of an arrival.
    coefficients = StepTimeCoefficients(
        dense_weight_seconds=0.0041791,
        compute_seconds_per_token=draw(st.sampled_from([0.0, 0.00002317, 0.0009331])),
        kv_seconds_per_context_token=0.000013713,
        prefill_attention_seconds_per_pair=0.0000003171,
        allreduce_seconds_per_step=0.00019117,
        allreduce_seconds_per_token=0.0000007119,
        elementwise_seconds_per_token=0.0000011313,
        host_seconds_per_step=0.00113717,
        host_seconds_per_sequence=0.00005137,
        roofline_sharpness=draw(st.sampled_from([1.0, 4.7, 60.0])),
        expert_weight_seconds=0.0171371 if experts else 0.0,
        expert_count=8 if experts else 0,
        experts_per_token=2 if experts else 0,
        window_tokens=draw(st.sampled_from([1, 13, 60])) if windowed else 0,
        windowed_fraction=0.7 if windowed else 0.0,
        gemm_padding_tokens=draw(st.sampled_from([0.0, 31.7])),
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    gaps = random.exponential(draw(st.sampled_from([0.0001, 0.01, 0.3])), count)
    return Case(
        coefficients,
        engine,
        prompts,
        outputs,
        cached,
        draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)),
        [float(arrival) for arrival in np.cumsum(gaps)],
    )
