"""Fitting the step-time model's coefficients through the simulator.

Every point is played as it was measured, under candidate coefficients. Least squares on logarithms of predicted over
measured, with Cauchy's loss, so that a point that is simply wrong hardly counts, and with the defaults as one more
measurement of each coefficient. The stacks of an engine share what is physics and may differ in what is software: each
stack's own deviations are fitted with it, held near 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from inferplan.profiles.calibration.cases import MeasuredCase, Stack
from inferplan.profiles.calibration.coefficients import FITTED_COEFFICIENTS, FITTED_NAMES, with_values
from inferplan.profiles.calibration.playing import play_case, step_coefficients
from inferplan.sizing.efficiency import EfficiencyCoefficients

Array = npt.NDArray[np.float64]

FIGURE_SPREADS = {"ttft": 0.15, "tpot": 0.05, "e2e": 0.05, "throughput": 0.05}
"""Standard deviation, as a logarithm, that one figure of a good measurement is taken to have. TTFT depends on how the
harness sends its first burst, which is rarely recorded."""

DIFFERENCE_STEP = 0.03
"""Of the logarithm, for derivatives. Wide, since a simulation's outcome is a staircase of scheduling decisions."""

OUTLIER_SPREADS = 3.0

MAXIMUM_EVALUATIONS = 8
_TOLERANCE = 2e-3
_FRONT_END = FITTED_NAMES.index("front_end_seconds")


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted set of coefficients, in logarithms relative to the defaults.

    `shared` [coefficients] and `deviations` [stacks, coefficients]; `residuals` are logarithms of predicted over
    measured, one for each entry of `figures` (index of the case, name of the figure). `jacobian` holds their
    derivatives by the shared coefficients at the end of the fit. `loss_slopes` are the robust loss's weights, 0 to 1.
    """

    defaults: EfficiencyCoefficients
    stacks: tuple[Stack, ...]
    shared: Array
    deviations: Array
    figures: tuple[tuple[int, str], ...]
    residuals: Array
    jacobian: Array
    covariance: Array
    left_out_residuals: dict[str, Array]
    loss_slopes: Array

    def efficiency(self, stack: Stack | None = None) -> EfficiencyCoefficients:
        """The coefficients of a stack that was measured, or what the engine has in general."""
        logs = self.shared.copy()
        if stack is not None and stack in self.stacks:
            logs = logs + self.deviations[self.stacks.index(stack)]
        return efficiency_at(self.defaults, logs)


def efficiency_at(defaults: EfficiencyCoefficients, logs: Array) -> EfficiencyCoefficients:
    """The coefficients that lie `logs` above their defaults."""
    values = {name: getattr(defaults, name) * float(np.exp(log)) for name, log in zip(FITTED_NAMES, logs, strict=True)}
    return with_values(defaults, values)


class _Problem:
    """The residuals of all cases as a function of shared logs and stack deviations, with what makes them cheap."""

    def __init__(self, cases: Sequence[MeasuredCase], defaults: EfficiencyCoefficients) -> None:
        self.cases = cases
        self.defaults = defaults
        self.stacks = tuple(dict.fromkeys(case.stack for case in cases))
        self.stack_of_case = np.array([self.stacks.index(case.stack) for case in cases])
        self.figures = tuple((index, name) for index, case in enumerate(cases) for name in sorted(case.measured))
        self.measured = np.array([cases[index].measured[name] for index, name in self.figures])
        self.spreads = np.array([FIGURE_SPREADS[name] for _, name in self.figures])
        self.stack_of_figure = np.array([self.stack_of_case[index] for index, _ in self.figures])
        count = len(FITTED_COEFFICIENTS)
        self.shared_spreads = np.array([item.spread for item in FITTED_COEFFICIENTS])
        stack_spreads = np.array([item.stack_spread for item in FITTED_COEFFICIENTS])
        self.free = np.flatnonzero(stack_spreads > 0)
        self.stack_spreads = stack_spreads[self.free]
        self.size = count + len(self.stacks) * self.free.size

    def split(self, variables: Array) -> tuple[Array, Array]:
        """Shared logs, and deviations of every stack with 0 where there is none."""
        count = len(FITTED_COEFFICIENTS)
        deviations = np.zeros((len(self.stacks), count))
        deviations[:, self.free] = variables[count:].reshape(len(self.stacks), self.free.size)
        return variables[:count], deviations

    def residuals(self, variables: Array) -> Array:
        """log(predicted / measured) of every figure."""
        predictions = self._play_all(self._efficiencies(variables))
        return self._residuals_of(predictions)

    def _residuals_of(self, predictions: Sequence[dict[str, float]]) -> Array:
        predicted = np.array([predictions[index][name] for index, name in self.figures])
        return np.asarray(np.log(predicted / self.measured))

    def _efficiencies(self, variables: Array) -> list[EfficiencyCoefficients]:
        shared, deviations = self.split(variables)
        by_stack = [efficiency_at(self.defaults, shared + deviations[stack]) for stack in range(len(self.stacks))]
        return [by_stack[stack] for stack in self.stack_of_case]

    def _play_all(self, efficiencies: Sequence[EfficiencyCoefficients]) -> list[dict[str, float]]:
        with ThreadPoolExecutor() as pool:  # the kernel releases the GIL
            return list(pool.map(play_case, self.cases, efficiencies))

    def derivatives(self, variables: Array, residuals: Array) -> Array:
        """[figures, coefficients]: by the logarithm of each coefficient, shared or of the figure's own stack alike.

        A case whose steps a coefficient does not change is not played again.
        """
        before = self._efficiencies(variables)
        plain = [step_coefficients(case, efficiency) for case, efficiency in zip(self.cases, before, strict=True)]
        jacobian = np.zeros((len(self.figures), len(FITTED_COEFFICIENTS)))
        for column in range(len(FITTED_COEFFICIENTS)):
            shifted = variables.copy()
            shifted[column] += self._step(variables, column)
            after = self._efficiencies(shifted)
            changed = [
                index
                for index, case in enumerate(self.cases)
                if column == _FRONT_END or step_coefficients(case, after[index]) != plain[index]
            ]
            if not changed:
                continue
            with ThreadPoolExecutor() as pool:
                played = list(pool.map(play_case, [self.cases[i] for i in changed], [after[i] for i in changed]))
            by_case = dict(zip(changed, played, strict=True))
            for row, (index, name) in enumerate(self.figures):
                if index in by_case:
                    moved = np.log(by_case[index][name] / self.measured[row]) - residuals[row]
                    jacobian[row, column] = moved / self._step(variables, column)
        return jacobian

    def _step(self, variables: Array, column: int) -> float:
        """Downwards where a coefficient stands at its upper bound already."""
        bound = FITTED_COEFFICIENTS[column]
        value = getattr(self.defaults, bound.name) * np.exp(variables[column] + DIFFERENCE_STEP)
        return -DIFFERENCE_STEP if value > bound.upper else DIFFERENCE_STEP

    def bounds(self) -> tuple[Array, Array]:
        """Of the logs of the shared coefficients; deviations are free, the result is cut at the bounds."""
        lower, upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        for column, item in enumerate(FITTED_COEFFICIENTS):
            default = getattr(self.defaults, item.name)
            lower[column] = np.log(item.lower / default) - 1e-6
            upper[column] = np.log(item.upper / default) + 1e-6
        return lower, upper

    def expand(self, by_coefficient: Array) -> Array:
        """[figures, variables] from [figures, coefficients]: a stack's deviations act on its own figures only."""
        count = len(FITTED_COEFFICIENTS)
        full = np.zeros((by_coefficient.shape[0], self.size))
        full[:, :count] = by_coefficient
        for stack in range(len(self.stacks)):
            mine = self.stack_of_figure == stack
            start = count + stack * self.free.size
            full[np.ix_(mine, range(start, start + self.free.size))] = by_coefficient[np.ix_(mine, self.free)]
        return full

    def prior_weights(self) -> Array:
        """1 / spread of every variable."""
        spreads: Array = np.concatenate([self.shared_spreads, np.tile(self.stack_spreads, len(self.stacks))])
        return np.asarray(1.0 / spreads)


def fit(
    cases: Sequence[MeasuredCase],
    defaults: EfficiencyCoefficients,
    check: Callable[[], None] = lambda: None,
) -> Fit:
    """Fit all coefficients of one engine to its cases, at least one.

    `check` is called between simulations and may raise to stop the fit.
    """
    problem = _Problem(cases, defaults)
    prior = problem.prior_weights()
    state: dict[str, Array] = {}

    def weighted(variables: Array) -> Array:
        check()
        residuals = problem.residuals(variables)
        state["variables"], state["residuals"] = variables.copy(), residuals
        return np.concatenate([_soft(residuals / problem.spreads), variables * prior])

    def jacobian(variables: Array) -> Array:
        check()
        if not np.array_equal(state["variables"], variables):
            weighted(variables)
        by_coefficient = problem.derivatives(variables, state["residuals"])
        state["jacobian"], state["jacobian_at"] = by_coefficient, variables.copy()
        slopes = _soft_slope(state["residuals"] / problem.spreads) / problem.spreads
        return np.vstack([problem.expand(by_coefficient) * slopes[:, None], np.diag(prior)])

    found = least_squares(
        weighted,
        np.zeros(problem.size),
        jac=jacobian,
        bounds=problem.bounds(),
        method="trf",
        xtol=_TOLERANCE,
        ftol=_TOLERANCE,
        gtol=1e-3,
        max_nfev=MAXIMUM_EVALUATIONS,
    )
    residuals = problem.residuals(found.x)
    return _finished(problem, found.x, residuals, state["jacobian"], prior)


def _finished(problem: _Problem, variables: Array, residuals: Array, by_coefficient: Array, prior: Array) -> Fit:
    scaled = residuals / problem.spreads
    slopes = _soft_slope(scaled)
    design = problem.expand(by_coefficient) * (slopes / problem.spreads)[:, None]
    information = design.T @ design + np.diag(prior**2)
    covariance = np.linalg.inv(information)
    # The spreads that figures are taken to have are a convention; what they really scatter by scales the uncertainty.
    scatter = max(1.0, float(np.median(np.abs(scaled)) / 0.6745))
    shared, deviations = problem.split(variables)
    return Fit(
        defaults=problem.defaults,
        stacks=problem.stacks,
        shared=shared,
        deviations=deviations,
        figures=problem.figures,
        residuals=residuals,
        jacobian=by_coefficient,
        covariance=covariance * scatter**2,
        left_out_residuals=_left_out(problem, residuals, design, information, by_coefficient),
        loss_slopes=slopes,
    )


def _left_out(
    problem: _Problem, residuals: Array, design: Array, information: Array, by_coefficient: Array
) -> dict[str, Array]:
    """Residuals that each figure would have had without its own part of the data, to first order.

    `point`: without its case. `degree`: without its stack's cases of the same tensor-parallel degree and prompt length.
    `stack`: without its whole stack, so with the engine's shared coefficients alone. One Gauss-Newton step from the
    fit: with the part's rows out of the normal equations the optimum moves by H^-1 J' r of the part.
    """
    cases = problem.cases
    full = problem.expand(by_coefficient)
    scaled = _soft(residuals / problem.spreads)
    parts = {
        "point": [str(index) for index, _ in problem.figures],
        "degree": [
            f"{problem.stack_of_case[index]}/{cases[index].parallelism.tensor_parallel}/"
            f"{round(float(cases[index].requests.prompt_tokens.mean()), -2)}"
            for index, _ in problem.figures
        ],
        "stack": [str(problem.stack_of_case[index]) for index, _ in problem.figures],
    }
    results = {}
    for kind, labels in parts.items():
        left_out = residuals.copy()
        for label in dict.fromkeys(labels):
            mine = np.array([item == label for item in labels])
            if kind == "stack" and mine.all():
                left_out[mine] = np.nan
                continue
            reduced = information - design[mine].T @ design[mine]
            change = np.linalg.lstsq(reduced, design[mine].T @ scaled[mine], rcond=None)[0]
            left_out[mine] = residuals[mine] + full[mine] @ change
        results[kind] = left_out
    return results


def _soft(scaled: Array) -> Array:
    """sign(r) c sqrt(log(1 + (r / c)^2)), whose square is Cauchy's loss.

    The pull of a point falls again beyond c spreads, so that a measurement that is simply wrong does not move the fit.
    """
    return np.asarray(np.sign(scaled) * OUTLIER_SPREADS * np.sqrt(np.log1p((scaled / OUTLIER_SPREADS) ** 2)))


def _soft_slope(scaled: Array) -> Array:
    soft = np.abs(_soft(scaled))
    slope = np.abs(scaled) / ((1.0 + (scaled / OUTLIER_SPREADS) ** 2) * np.maximum(soft, 1e-12))
    return np.asarray(np.where(np.abs(scaled) < 1e-6, 1.0, slope))
