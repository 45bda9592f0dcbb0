"""Plays an engine's scheduler step by step, for one replica or a fleet. Knows numbers, not models or accelerators."""

from inferplan.simulation.arrivals import (
    RateArrivals,
    TraceArrivals,
    VaryingArrivals,
    constant_arrivals,
    gamma_arrivals,
    poisson_arrivals,
)
from inferplan.simulation.closed_loop import simulate_closed_loop, simulate_static_batches
from inferplan.simulation.engine import Cancellation, EngineParameters, SimulationLimits
from inferplan.simulation.fleet import Fleet, Router, simulate_fleet
from inferplan.simulation.lengths import (
    ConstantLength,
    IndependentLengths,
    LognormalLength,
    ObservedLengths,
    UniformLength,
)
from inferplan.simulation.outcome import Ending, ReplicaTotals, SimulationOutcome
from inferplan.simulation.percentiles import Interval, requests_for_interval, requests_for_percentile
from inferplan.simulation.play import compile_kernels
from inferplan.simulation.requests import Requests, make_requests
from inferplan.simulation.results import LatencyObjective, LatencyReport, Metric, ObjectiveResult, Verdict
from inferplan.simulation.saturation import Saturation, assess_saturation
from inferplan.simulation.session import FleetSession, ReplicaState
from inferplan.simulation.step_time import StepTimeCoefficients, step_seconds
from inferplan.simulation.traffic import PrefixHits, TrafficClass, draw_closed_loop_requests, draw_requests

__all__ = [
    "Cancellation",
    "ConstantLength",
    "Ending",
    "EngineParameters",
    "Fleet",
    "FleetSession",
    "IndependentLengths",
    "Interval",
    "LatencyObjective",
    "LatencyReport",
    "LognormalLength",
    "Metric",
    "ObjectiveResult",
    "ObservedLengths",
    "PrefixHits",
    "RateArrivals",
    "ReplicaState",
    "ReplicaTotals",
    "Requests",
    "Router",
    "Saturation",
    "SimulationLimits",
    "SimulationOutcome",
    "StepTimeCoefficients",
    "TraceArrivals",
    "TrafficClass",
    "UniformLength",
    "VaryingArrivals",
    "Verdict",
    "assess_saturation",
    "compile_kernels",
    "constant_arrivals",
    "draw_closed_loop_requests",
    "draw_requests",
    "gamma_arrivals",
    "make_requests",
    "poisson_arrivals",
    "requests_for_interval",
    "requests_for_percentile",
    "simulate_closed_loop",
    "simulate_fleet",
    "simulate_static_batches",
    "step_seconds",
]
