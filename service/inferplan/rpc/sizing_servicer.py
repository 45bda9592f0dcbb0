"""SizingService: stateless questions."""

from __future__ import annotations

import grpc

from inferplan.planning.planner import Planner
from inferplan.rpc.convert.sizing import memory_estimate_to_wire, memory_request_from_wire
from inferplan.rpc.validation import message_violations, raise_violations
from inferplan.v1 import memory_pb2, sizing_service_pb2, sizing_service_pb2_grpc


class SizingServicer(sizing_service_pb2_grpc.SizingServiceServicer):
    """Validates, converts, asks the planner, converts back."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def EstimateMemory(
        self, request: sizing_service_pb2.EstimateMemoryRequest, _context: grpc.ServicerContext
    ) -> memory_pb2.MemoryEstimate:
        question = memory_request_from_wire(request)
        violations = message_violations(request)
        broken_parts = {violation.field.split(".")[0] for violation in violations}
        raise_violations([*violations, *self._planner.memory_violations(question, broken_parts)])
        return memory_estimate_to_wire(self._planner.estimate_memory(question))
