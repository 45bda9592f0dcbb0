"""How long prompts and outputs are: constant, uniform, log-normal, or drawn from observed pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation.requests import LONGEST_LENGTH_TOKENS

TokenCounts = npt.NDArray[np.int32]


class LengthDistribution(Protocol):
    """Lengths of one kind, in whole tokens of at least 1."""

    def sample(self, count: int, generator: np.random.Generator) -> TokenCounts:
        """`count` lengths; the same generator state gives the same ones."""


class PairDistribution(Protocol):
    """Prompt and output lengths of requests."""

    def sample(
        self, count: int, prompt_generator: np.random.Generator, output_generator: np.random.Generator
    ) -> tuple[TokenCounts, TokenCounts]:
        """`count` prompt lengths and their output lengths."""


def _token_violation(name: str, tokens: float) -> list[Violation]:
    if math.isfinite(tokens) and 1 <= tokens <= LONGEST_LENGTH_TOKENS:
        return []
    return [Violation(name, f"is {tokens}; must be from 1 to {LONGEST_LENGTH_TOKENS} tokens")]


@dataclass(frozen=True, slots=True)
class ConstantLength:
    """Every length the same."""

    tokens: int

    def __post_init__(self) -> None:
        if violations := _token_violation("tokens", self.tokens):
            raise InvalidInputError(violations)

    def sample(self, count: int, generator: np.random.Generator) -> TokenCounts:  # noqa: ARG002 - nothing is random
        """`count` times the same length."""
        return np.full(count, self.tokens, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class UniformLength:
    """Every whole length from `minimum_tokens` to `maximum_tokens` equally likely."""

    minimum_tokens: int
    maximum_tokens: int

    def __post_init__(self) -> None:
        violations = _token_violation("minimum_tokens", self.minimum_tokens)
        violations += _token_violation("maximum_tokens", self.maximum_tokens)
        if not violations and self.minimum_tokens > self.maximum_tokens:
            violations.append(
                Violation("minimum_tokens", f"is {self.minimum_tokens}; must not exceed {self.maximum_tokens}")
            )
        if violations:
            raise InvalidInputError(violations)

    @classmethod
    def up_to_nominal(cls, nominal_tokens: int, lowest_fraction: float) -> UniformLength:
        """From `lowest_fraction` (above 0, at most 1) of the nominal length up to it, as benchmark tools draw."""
        if not 0 < lowest_fraction <= 1:
            raise InvalidInputError.single("lowest_fraction", f"is {lowest_fraction}; must be above 0 and at most 1")
        return cls(max(1, math.ceil(lowest_fraction * nominal_tokens)), nominal_tokens)

    def sample(self, count: int, generator: np.random.Generator) -> TokenCounts:
        """Independent draws."""
        return generator.integers(self.minimum_tokens, self.maximum_tokens, count, dtype=np.int32, endpoint=True)


@dataclass(frozen=True, slots=True)
class LognormalLength:
    """Log-normal lengths with the given mean and coefficient of variation, rounded.

    Draws above `maximum_tokens` (the context, say) are cut to it, draws below 1 raised to 1; `mean_tokens` is the mean
    before that.
    """

    mean_tokens: float
    coefficient_of_variation: float
    maximum_tokens: int = LONGEST_LENGTH_TOKENS

    def __post_init__(self) -> None:
        violations = _token_violation("mean_tokens", self.mean_tokens)
        violations += _token_violation("maximum_tokens", self.maximum_tokens)
        if not (math.isfinite(self.coefficient_of_variation) and 0 <= self.coefficient_of_variation <= 100):
            violations.append(
                Violation("coefficient_of_variation", f"is {self.coefficient_of_variation}; must be from 0 to 100")
            )
        if violations:
            raise InvalidInputError(violations)

    def sample(self, count: int, generator: np.random.Generator) -> TokenCounts:
        """Independent draws: exp(normal) with sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2."""
        variance = math.log1p(self.coefficient_of_variation**2)
        draws = generator.standard_normal(count)
        draws *= math.sqrt(variance)
        draws += math.log(self.mean_tokens) - variance / 2
        # Cut before exp(), which would overflow far in the tail.
        np.minimum(draws, math.log(LONGEST_LENGTH_TOKENS), out=draws)
        np.rint(np.exp(draws, out=draws), out=draws)
        return np.clip(draws, 1, self.maximum_tokens, out=draws).astype(np.int32)


@dataclass(frozen=True, slots=True)
class IndependentLengths:
    """Prompt and output lengths that know nothing of each other."""

    prompt: LengthDistribution
    output: LengthDistribution

    def sample(
        self, count: int, prompt_generator: np.random.Generator, output_generator: np.random.Generator
    ) -> tuple[TokenCounts, TokenCounts]:
        """Each from its own generator, so that a change of one distribution leaves the other's draws as they are."""
        return self.prompt.sample(count, prompt_generator), self.output.sample(count, output_generator)


@dataclass(frozen=True, slots=True)
class ObservedLengths:
    """Pairs (prompt, output) drawn with equal probability, with replacement, from observed requests."""

    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise InvalidInputError.single("pairs", "must not be empty", "REQUIRED")
        violations: list[Violation] = []
        for index, (prompt_tokens, output_tokens) in enumerate(self.pairs):
            violations += _token_violation(f"pairs[{index}].prompt_tokens", prompt_tokens)
            violations += _token_violation(f"pairs[{index}].output_tokens", output_tokens)
        if violations:
            raise InvalidInputError(violations)

    def sample(
        self,
        count: int,
        prompt_generator: np.random.Generator,
        output_generator: np.random.Generator,  # noqa: ARG002 - one draw gives both lengths
    ) -> tuple[TokenCounts, TokenCounts]:
        """Both lengths of a request come from the same observed one."""
        observed = np.array(self.pairs, dtype=np.int32)
        chosen = prompt_generator.integers(0, len(observed), count)
        return observed[chosen, 0], observed[chosen, 1]
