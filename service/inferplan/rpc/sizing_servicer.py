"""SizingService: stateless questions."""

from __future__ import annotations

import grpc

from inferplan.errors import Violation
from inferplan.planning.planner import Planner
from inferplan.rpc.cancellation import cancelled_with
from inferplan.rpc.convert.plan import plan_input_from_wire, search_answer_to_wire
from inferplan.rpc.convert.sizing import (
    memory_estimate_to_wire,
    memory_request_from_wire,
    prediction_request_from_wire,
    prediction_to_wire,
)
from inferplan.rpc.gate import WorkGate
from inferplan.rpc.plan_servicer import input_parts
from inferplan.rpc.validation import message_violations, raise_violations
from inferplan.v1 import memory_pb2, sizing_service_pb2, sizing_service_pb2_grpc

DEFAULT_CANDIDATES = 20
MAXIMUM_CANDIDATES = 200


class SizingServicer(sizing_service_pb2_grpc.SizingServiceServicer):
    """Validates, converts, asks the planner, converts back. What simulates passes the gate."""

    def __init__(self, planner: Planner, gate: WorkGate) -> None:
        self._planner = planner
        self._gate = gate

    def EstimateMemory(
        self, request: sizing_service_pb2.EstimateMemoryRequest, _context: grpc.ServicerContext
    ) -> memory_pb2.MemoryEstimate:
        question = memory_request_from_wire(request)
        violations = message_violations(request)
        raise_violations([*violations, *self._planner.memory_violations(question, _parts(violations))])
        return memory_estimate_to_wire(self._planner.estimate_memory(question))

    def PredictPerformance(
        self, request: sizing_service_pb2.PredictPerformanceRequest, context: grpc.ServicerContext
    ) -> sizing_service_pb2.PredictPerformanceResponse:
        question = prediction_request_from_wire(request)
        violations = message_violations(request)
        raise_violations([*violations, *self._planner.prediction_violations(question, _parts(violations))])
        with self._gate.enter():
            return prediction_to_wire(self._planner.predict(question, cancelled_with(context)))

    def SearchConfigurations(
        self, request: sizing_service_pb2.SearchConfigurationsRequest, context: grpc.ServicerContext
    ) -> sizing_service_pb2.SearchConfigurationsResponse:
        plan_input = plan_input_from_wire(request.input)
        violations = message_violations(request)
        broken_parts = input_parts(violations, "input")
        raise_violations([*violations, *self._planner.search_violations(plan_input, "input", broken_parts)])
        most = min(request.maximum_candidates or DEFAULT_CANDIDATES, MAXIMUM_CANDIDATES)
        with self._gate.enter():
            answer = self._planner.search(plan_input, cancelled_with(context))
        return search_answer_to_wire(answer, most)


def _parts(violations: list[Violation]) -> set[str]:
    """The top-level fields of a request that hold an illegal value."""
    return {violation.field.split(".")[0].split("[")[0] for violation in violations}
