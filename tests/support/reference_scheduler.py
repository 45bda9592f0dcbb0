"""A second scheduler, written for reading and not for speed: objects, lists, one sequence after the other.

It shares no code with the kernel but the input types. As in vLLM, a sequence is a number of known tokens (prompt and
output so far) of which some are computed; a step computes some of the others; when none is left, a token comes out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field

from inferplan.simulation.engine import EngineParameters
from inferplan.simulation.step_time import StepTimeCoefficients


@dataclass(eq=False)
class Job:
    """One request and what has become of it."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    traffic_class: int = 0
    arrival_seconds: float = math.nan
    replica: int = -1
    first_scheduled_seconds: float | None = None
    first_token_seconds: float | None = None
    finish_seconds: float | None = None
    last_token_seconds: float = math.nan
    preemptions: int = 0
    gaps_seconds: list[float] = field(default_factory=list)
    generated_tokens: int = 0
    computed_tokens: int = 0
    prefill_until: int = 0
    blocks: int = 0

    @property
    def usable_cached_tokens(self) -> int:
        return min(self.cached_tokens, self.prompt_tokens - 1)

    @property
    def known_tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens

    @property
    def decoding(self) -> bool:
        return self.computed_tokens >= self.prefill_until


@dataclass
class Part:
    """What one sequence does in one step."""

    job: Job
    tokens: int
    before: int
    decoding: bool


def step_duration(coefficients: StepTimeCoefficients, parts: Sequences[Part]) -> float:
    c = coefficients
    n = sum(part.tokens for part in parts)
    decoders = [part for part in parts if part.decoding]
    weights = c.dense_weight_seconds
    if c.expert_weight_seconds:
        weights += c.expert_weight_seconds * (1 - (1 - c.experts_per_token / c.expert_count) ** n)
    compute = (n + c.gemm_padding_tokens) * c.compute_seconds_per_token
    if weights == 0 or compute == 0:
        gemms = weights + compute
    else:
        p = c.roofline_sharpness
        scale = max(weights, compute)
        gemms = scale * math.exp(math.log((weights / scale) ** p + (compute / scale) ** p) / p)
    window = c.window_tokens if c.windowed_fraction else 10**12
    attention = 0.0
    for part in parts:
        if part.decoding:
            context = part.before + 1
            attended = (1 - c.windowed_fraction) * context + c.windowed_fraction * min(context, window)
            attention += attended * c.kv_seconds_per_context_token
        else:
            pairs = _area(part.before, part.tokens, 10**12)
            windowed_pairs = _area(part.before, part.tokens, window)
            mixed = (1 - c.windowed_fraction) * pairs + c.windowed_fraction * windowed_pairs
            attention += mixed * c.prefill_attention_seconds_per_pair
    return (
        gemms
        + attention
        + c.allreduce_seconds_per_step
        + n * (c.allreduce_seconds_per_token + c.elementwise_seconds_per_token)
        + c.host_seconds_per_step
        + len(decoders) * c.host_seconds_per_sequence
    )


def _area(before: int, take: int, window: int) -> float:
    """Integral of min(x, window) from before to before + take."""

    def up_to(x: float) -> float:
        return x * x / 2 if x <= window else window * window / 2 + window * (x - window)

    return up_to(before + take) - up_to(before)


class ReferenceReplica:
    """One engine."""

    def __init__(self, coefficients: StepTimeCoefficients, engine: EngineParameters) -> None:
        self.coefficients = coefficients
        self.engine = engine
        self.now = 0.0
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.free_blocks = engine.kv_blocks
        self.steps = 0
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.block_seconds = 0.0
        self.sequence_seconds = 0.0
        self.finished: list[Job] = []

    def next_start(self) -> float:
        """When the next step begins; infinity if nobody is there."""
        if self.running:
            return self.now
        if self.waiting:
            return max(self.now, self.waiting[0].arrival_seconds)
        return math.inf

    def step(self) -> list[Job]:
        """Play one step. Returns the jobs that it finished."""
        self.now = self.next_start()
        parts = self._chunked_parts() if self.engine.chunked_prefill else self._old_style_parts()
        start = self.now
        seconds = step_duration(self.coefficients, parts)
        self.block_seconds += seconds * (self.engine.kv_blocks - self.free_blocks)
        self.sequence_seconds += seconds * len(self.running)
        self.now = start + seconds
        self.steps += 1
        finished = []
        for part in parts:
            if part.decoding:
                self.decode_tokens += part.tokens
            else:
                self.prefill_tokens += part.tokens
            part.job.computed_tokens += part.tokens
            if part.job.computed_tokens == part.job.known_tokens:
                self._give_token(part.job)
                if part.job.finish_seconds is not None:
                    finished.append(part.job)
        self.finished += finished
        return finished

    def _give_token(self, job: Job) -> None:
        if job.first_token_seconds is None:
            job.first_token_seconds = self.now
        else:
            job.gaps_seconds.append(self.now - job.last_token_seconds)
        job.last_token_seconds = self.now
        job.generated_tokens += 1
        if job.generated_tokens == job.output_tokens:
            job.finish_seconds = self.now
            self.running.remove(job)
            self.free_blocks += job.blocks
            job.blocks = 0

    def _allocate(self, job: Job, tokens: int) -> bool:
        """Blocks for `tokens` tokens in all, if there are enough."""
        shared = job.usable_cached_tokens // self.engine.block_tokens if self.engine.shared_prefix else 0
        more = math.ceil(tokens / self.engine.block_tokens) - shared - job.blocks
        if more > self.free_blocks:
            return False
        self.free_blocks -= more
        job.blocks += more
        return True

    def _preempt_last(self) -> Job:
        job = self.running.pop()
        self.free_blocks += job.blocks
        job.blocks = 0
        job.computed_tokens = 0
        job.preemptions += 1
        self.waiting.appendleft(job)
        return job

    def _chunked_parts(self) -> list[Part]:
        budget = self.engine.maximum_batched_tokens
        parts: list[Part] = []
        somebody_preempted = False
        position = 0
        while position < len(self.running) and budget > 0:
            job = self.running[position]
            take = min(job.known_tokens - job.computed_tokens, budget)
            allocated = self._allocate(job, job.computed_tokens + take)
            while not allocated:
                somebody_preempted = True
                if self._preempt_last() is job:
                    break
                allocated = self._allocate(job, job.computed_tokens + take)
            if allocated:
                parts.append(Part(job, take, job.computed_tokens, job.decoding))
                budget -= take
                position += 1
        while not somebody_preempted and budget > 0 and self._somebody_may_enter():
            job = self.waiting[0]
            cached = job.usable_cached_tokens
            take = min(job.known_tokens - cached, budget)
            if not self._allocate(job, cached + take):
                break
            self._enter(job)
            parts.append(Part(job, take, cached, False))
            budget -= take
        return parts

    def _old_style_parts(self) -> list[Part]:
        parts: list[Part] = []
        tokens = 0
        while self._somebody_may_enter():
            job = self.waiting[0]
            take = job.known_tokens - job.usable_cached_tokens
            if parts and tokens + take > self.engine.maximum_batched_tokens:
                break
            if not self._allocate(job, job.known_tokens):
                break
            self._enter(job)
            parts.append(Part(job, take, job.usable_cached_tokens, False))
            tokens += take
        if parts:
            return parts
        position = 0
        while position < len(self.running):
            job = self.running[position]
            if self._allocate(job, job.known_tokens):
                parts.append(Part(job, 1, job.computed_tokens, True))
                position += 1
            else:
                self._preempt_last()
        return parts

    def _somebody_may_enter(self) -> bool:
        if not self.waiting or len(self.running) >= self.engine.maximum_sequences:
            return False
        return self.waiting[0].arrival_seconds <= self.now

    def _enter(self, job: Job) -> None:
        self.waiting.popleft()
        self.running.append(job)
        job.computed_tokens = job.usable_cached_tokens
        job.prefill_until = job.known_tokens
        if job.first_scheduled_seconds is None:
            job.first_scheduled_seconds = self.now


def play_closed_loop(replica: ReferenceReplica, jobs: list[Job], concurrency: int, ramp_seconds: float = 0.0) -> None:
    """Clients that each wait for their answer."""
    unsent = deque(jobs)
    starts = deque(ramp_seconds * client / concurrency for client in range(min(concurrency, len(jobs))))

    def send(at_seconds: float) -> None:
        job = unsent.popleft()
        job.arrival_seconds = at_seconds
        replica.waiting.append(job)

    while True:
        begin = min(replica.next_start(), starts[0] if starts and unsent else math.inf)
        if begin == math.inf:
            return
        while starts and unsent and starts[0] <= begin:
            send(starts.popleft())
        finished = replica.step()
        while starts and unsent and starts[0] <= replica.now:
            send(starts.popleft())
        for _ in finished:
            if unsent:
                send(replica.now)


def play_static_batches(replica: ReferenceReplica, jobs: list[Job], batch_size: int) -> None:
    """Batch after batch."""
    for first in range(0, len(jobs), batch_size):
        for job in jobs[first : first + batch_size]:
            job.arrival_seconds = replica.now
            replica.waiting.append(job)
        while replica.next_start() < math.inf:
            replica.step()


class ReferenceFleet:
    """Replicas behind a router; every replica is brought to the moment of every arrival."""

    def __init__(self, replicas: list[ReferenceReplica], router: str, seed: int = 0) -> None:
        self.replicas = replicas
        self.router = router
        self.seed = seed
        self.alive = list(range(len(replicas)))
        self.last = -1
        self.routed: list[list[Job]] = [[] for _ in replicas]

    def play(self, jobs: list[Job], failure_seconds: float | None = None) -> None:
        for number, job in enumerate(jobs):
            if failure_seconds is not None and job.arrival_seconds >= failure_seconds:
                self._fail_last(jobs, failure_seconds)
                failure_seconds = None
            self._play_until(job.arrival_seconds)
            self._route(number, job, job.arrival_seconds)
        if failure_seconds is not None:
            self._fail_last(jobs, failure_seconds)
        self._play_until(math.inf)

    def _play_until(self, seconds: float) -> None:
        for where in self.alive:
            while self.replicas[where].next_start() < seconds:
                self.replicas[where].step()

    def _route(self, number: int, job: Job, now: float) -> None:
        where = self._choose(number, now)
        self.last = where
        job.replica = where
        self.routed[where].append(job)
        self.replicas[where].waiting.append(job)

    def _outstanding(self, where: int, now: float) -> int:
        return sum(1 for job in self.routed[where] if job.finish_seconds is None or job.finish_seconds > now)

    def _choose(self, number: int, now: float) -> int:
        in_turn = sorted(self.alive, key=lambda where: (where <= self.last, where))
        if self.router == "round_robin":
            return in_turn[0]
        if self.router == "least_outstanding":
            return min(in_turn, key=lambda where: self._outstanding(where, now))
        bits = splitmix64(self.seed, number)
        first = (bits & 0xFFFFFFFF) % len(self.alive)
        if len(self.alive) == 1:
            return self.alive[0]
        second = (first + 1 + (bits >> 32) % (len(self.alive) - 1)) % len(self.alive)
        return min((self.alive[first], self.alive[second]), key=lambda where: self._outstanding(where, now))

    def _fail_last(self, jobs: list[Job], seconds: float) -> None:
        self._play_until(seconds)
        failed = self.alive.pop()
        for where in range(len(self.replicas)):
            self.replicas[where].now = max(self.replicas[where].now, seconds)
        replica = self.replicas[failed]
        for job in [*replica.running, *replica.waiting]:
            self.routed[failed].remove(job)
            job.first_scheduled_seconds = job.first_token_seconds = None
            job.generated_tokens = job.computed_tokens = job.blocks = 0
            number = next(index for index, other in enumerate(jobs) if other is job)
            self._route(number, job, seconds)


def splitmix64(seed: int, index: int) -> int:
    """Output number `index` of the generator (https://prng.di.unimi.it/splitmix64.c)."""
    mask = 2**64 - 1
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)
