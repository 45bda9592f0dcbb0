"""Stateless sizing questions and answers on the wire."""

from __future__ import annotations

from inferplan.planning.memory import MemoryRequest
from inferplan.planning.predict import Prediction, PredictionRequest
from inferplan.rpc.convert import common  # noqa: F401 - registers what breaks the field-for-field rules
from inferplan.rpc.convert.mapping import from_message, to_message
from inferplan.sizing.memory import MemoryEstimate
from inferplan.v1 import memory_pb2, sizing_service_pb2


def memory_request_from_wire(message: sizing_service_pb2.EstimateMemoryRequest) -> MemoryRequest:
    """What is asked of the memory model; not yet validated."""
    return from_message(message, MemoryRequest)


def memory_estimate_to_wire(estimate: MemoryEstimate) -> memory_pb2.MemoryEstimate:
    """An estimate as a message."""
    return to_message(estimate, memory_pb2.MemoryEstimate)


def prediction_request_from_wire(message: sizing_service_pb2.PredictPerformanceRequest) -> PredictionRequest:
    """What is to be predicted; not yet validated."""
    return from_message(message, PredictionRequest)


def prediction_to_wire(prediction: Prediction) -> sizing_service_pb2.PredictPerformanceResponse:
    """A prediction as a message."""
    return to_message(prediction, sizing_service_pb2.PredictPerformanceResponse)
