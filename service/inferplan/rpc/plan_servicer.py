"""PlanService: deployments and their plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import grpc

from inferplan.errors import Violation
from inferplan.planning.list_request import ListRequest
from inferplan.planning.planner import Planner, PlanRequest
from inferplan.planning.simulate import SimulationReport
from inferplan.resources.plan import Plan
from inferplan.rpc.cancellation import cancelled_with
from inferplan.rpc.convert.mapping import to_message
from inferplan.rpc.convert.plan import (
    deployment_to_wire,
    plan_input_from_wire,
    plan_to_wire,
    simulation_changes_from_wire,
    simulation_report_to_wire,
)
from inferplan.rpc.convert.replay import is_replay, policy_gaps, replay_question_from_wire
from inferplan.rpc.gate import WorkGate
from inferplan.rpc.read_mask import mask_violations, masked
from inferplan.rpc.validation import message_violations, raise_violations
from inferplan.simulation import Cancellation
from inferplan.v1 import deployment_pb2, plan_pb2, plan_service_pb2, plan_service_pb2_grpc

INPUT_PATH = "plan.input"
DEPLOYMENTS = "deployments/"
ANONYMOUS = "anonymous"

PROGRESS_SECONDS = 0.2
"""Time between two progress messages of a stream."""


class PlanServicer(plan_service_pb2_grpc.PlanServiceServicer):
    """Validates, converts, asks the planner, converts back."""

    def __init__(self, planner: Planner, gate: WorkGate) -> None:
        self._planner = planner
        self._gate = gate

    def CreateDeployment(
        self, request: plan_service_pb2.CreateDeploymentRequest, _context: grpc.ServicerContext
    ) -> deployment_pb2.Deployment:
        raise_violations(message_violations(request))
        deployment = self._planner.create_deployment(
            request.deployment_id,
            display_name=request.deployment.display_name,
            labels=dict(request.deployment.labels),
            caller=ANONYMOUS,
        )
        return deployment_to_wire(deployment)

    def GetDeployment(
        self, request: plan_service_pb2.GetDeploymentRequest, _context: grpc.ServicerContext
    ) -> deployment_pb2.Deployment:
        raise_violations(message_violations(request))
        return deployment_to_wire(self._planner.get_deployment(request.name.removeprefix(DEPLOYMENTS)))

    def ListDeployments(
        self, request: plan_service_pb2.ListDeploymentsRequest, _context: grpc.ServicerContext
    ) -> plan_service_pb2.ListDeploymentsResponse:
        raise_violations(message_violations(request))
        deployments, token = self._planner.list_deployments(
            ListRequest(request.page_size, request.page_token, request.show_deleted, request.filter)
        )
        return plan_service_pb2.ListDeploymentsResponse(
            deployments=[deployment_to_wire(deployment) for deployment in deployments], next_page_token=token
        )

    def DeleteDeployment(
        self, request: plan_service_pb2.DeleteDeploymentRequest, _context: grpc.ServicerContext
    ) -> deployment_pb2.Deployment:
        raise_violations(message_violations(request))
        name = request.name.removeprefix(DEPLOYMENTS)
        return deployment_to_wire(self._planner.delete_deployment(name, force=request.force))

    def CreatePlan(self, request: plan_service_pb2.CreatePlanRequest, context: grpc.ServicerContext) -> plan_pb2.Plan:
        plan_input = plan_input_from_wire(request.plan.input)
        violations = message_violations(request)
        raise_violations(
            [*violations, *self._planner.input_violations(plan_input, INPUT_PATH, input_parts(violations))]
        )
        plan = self._create_plan(
            PlanRequest(
                deployment_id=request.parent.removeprefix(DEPLOYMENTS),
                input=plan_input,
                caller=ANONYMOUS,
                request_id=request.request_id.lower(),
                validate_only=request.validate_only,
                allow_missing_deployment=request.allow_missing_deployment,
            ),
            cancelled_with(context),
        )
        return self._to_wire([plan])[0]

    def GetPlan(self, request: plan_service_pb2.GetPlanRequest, _context: grpc.ServicerContext) -> plan_pb2.Plan:
        raise_violations(message_violations(request))
        return self._to_wire([self._plan(request.name)])[0]

    def ListPlans(
        self, request: plan_service_pb2.ListPlansRequest, _context: grpc.ServicerContext
    ) -> plan_service_pb2.ListPlansResponse:
        mask = request.read_mask
        raise_violations([*message_violations(request), *mask_violations(mask, plan_pb2.Plan, "read_mask")])
        parent = request.parent.removeprefix(DEPLOYMENTS)
        plans, token = self._planner.list_plans(
            None if parent == "-" else parent,
            ListRequest(request.page_size, request.page_token, request.show_deleted, request.filter, request.order_by),
        )
        messages = masked(self._to_wire(plans), mask)
        return plan_service_pb2.ListPlansResponse(plans=messages, next_page_token=token)

    def RenderPlan(
        self, request: plan_service_pb2.RenderPlanRequest, _context: grpc.ServicerContext
    ) -> plan_service_pb2.RenderPlanResponse:
        raise_violations(message_violations(request))
        rendering = self._planner.render_plan(self._plan(request.name), request.target, dict(request.options))
        return to_message(rendering, plan_service_pb2.RenderPlanResponse)

    def SimulatePlan(
        self, request: plan_service_pb2.SimulatePlanRequest, context: grpc.ServicerContext
    ) -> Iterator[plan_service_pb2.SimulatePlanResponse]:
        raise_violations(
            [
                *message_violations(request),
                *(policy_gaps(request.policy, "policy") if request.HasField("policy") else ()),
            ]
        )
        plan = self._plan(request.name)
        cancellation = cancelled_with(context)
        shares = [0.0]  # what the worker said last

        def simulate() -> SimulationReport:
            if is_replay(request):
                return self._planner.replay_plan(plan, question, cancellation, shares.append)
            return self._planner.simulate_plan(plan, changes, cancellation, shares.append)

        question = replay_question_from_wire(request)
        changes = simulation_changes_from_wire(request)
        with self._gate.enter(), ThreadPoolExecutor(1, thread_name_prefix="simulate") as worker:
            future = worker.submit(simulate)
            while not wait([future], timeout=PROGRESS_SECONDS).done:
                progress = plan_service_pb2.SimulationProgress(
                    done_ratio=shares[-1], simulated_requests=cancellation.requests_finished
                )
                yield plan_service_pb2.SimulatePlanResponse(progress=progress)
            report = future.result()
        yield plan_service_pb2.SimulatePlanResponse(report=simulation_report_to_wire(report))

    def _to_wire(self, plans: Sequence[Plan]) -> list[plan_pb2.Plan]:
        """The plans as they stand today: with those of their profiles that were withdrawn since."""
        withdrawn = self._planner.profiles.withdrawn({name for plan in plans for name in plan.content.profiles})
        return [plan_to_wire(plan, withdrawn) for plan in plans]

    def _plan(self, name: str) -> Plan:
        deployment_id, _plans, revision = name.removeprefix(DEPLOYMENTS).split("/")
        return self._planner.get_plan(deployment_id, "latest" if revision == "latest" else int(revision))

    def _create_plan(self, request: PlanRequest, cancellation: Cancellation) -> Plan:
        """Only what simulates passes the gate: the textbook's arithmetic takes no longer than storing its plan."""
        if not self._planner.simulates(request.input):
            return self._planner.create_plan(request, cancellation)
        with self._gate.enter():
            return self._planner.create_plan(request, cancellation)


def input_parts(violations: list[Violation], input_path: str = INPUT_PATH) -> set[str]:
    """The parts of a plan's input, such as `workload`, that hold an illegal field; all of them if it is missing."""
    fields = {violation.field for violation in violations}
    if fields & {"plan", input_path}:
        return {descriptor.name for descriptor in plan_pb2.PlanInput.DESCRIPTOR.fields}
    prefix = f"{input_path}."
    below = [field.removeprefix(prefix) for field in fields if field.startswith(prefix)]
    return {path.split(".")[0].split("[")[0] for path in below}
