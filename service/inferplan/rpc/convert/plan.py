"""Plans and deployments on the wire."""

from __future__ import annotations

from collections.abc import Collection

from inferplan.planning.search import SearchAnswer
from inferplan.planning.simulate import SimulationChanges, SimulationReport
from inferplan.resources.deployment import Deployment
from inferplan.resources.plan import Plan, PlanInput, ResolvedInput
from inferplan.rpc.convert.catalog import accelerator_to_wire, engine_to_wire, model_to_wire
from inferplan.rpc.convert.mapping import fill_message, from_message, timestamp_from_datetime, to_message
from inferplan.v1 import deployment_pb2, plan_pb2, plan_service_pb2, sizing_service_pb2

_CONTENT_BY_RULE = (
    "input",
    "configuration",
    "memory",
    "fleet",
    "replica_capacity",
    "performance",
    "autoscaling_policy",
)
_REPEATED_CONTENT_BY_RULE = ("verdicts", "evidence", "alternatives", "pareto_front", "steps", "warnings")


def plan_input_from_wire(message: plan_pb2.PlanInput) -> PlanInput:
    """What is asked of the planner; not yet validated."""
    return from_message(message, PlanInput)


def plan_to_wire(plan: Plan, withdrawn_profiles: Collection[str] = ()) -> plan_pb2.Plan:
    """A plan as a message; the same plan always gives the same bytes.

    `withdrawn_profiles` are profiles that are out of use by now; those that the plan rests on are named.
    """
    content = plan.content
    message = plan_pb2.Plan(
        name=plan.name,
        revision=plan.revision,
        resolved=_resolved_to_wire(content.resolved),
        calibration=content.calibration,
        profiles=content.profiles,
        seed=content.seed,
        service_version=content.service_version,
        created_by=plan.created_by,
        withdrawn_profiles=[name for name in content.profiles if name in withdrawn_profiles],
    )
    for field in _CONTENT_BY_RULE:
        fill_message(getattr(content, field), getattr(message, field))
    for field in _REPEATED_CONTENT_BY_RULE:
        for item in getattr(content, field):
            fill_message(item, getattr(message, field).add())
    if content.calibration_use is not None:
        fill_message(content.calibration_use, message.calibration_use)
    if plan.create_time is not None:
        message.create_time.CopyFrom(timestamp_from_datetime(plan.create_time))
    if plan.delete_time is not None:
        message.delete_time.CopyFrom(timestamp_from_datetime(plan.delete_time))
    return message


def _resolved_to_wire(resolved: ResolvedInput) -> plan_pb2.ResolvedInput:
    return plan_pb2.ResolvedInput(
        model=model_to_wire(resolved.model),
        accelerators=[accelerator_to_wire(accelerator) for accelerator in resolved.accelerators],
        engine=engine_to_wire(resolved.engine),
    )


def deployment_to_wire(deployment: Deployment) -> deployment_pb2.Deployment:
    """A deployment as a message."""
    message = deployment_pb2.Deployment(
        name=deployment.name,
        display_name=deployment.display_name,
        labels=dict(deployment.labels),
        latest_revision=deployment.latest_revision,
        latest_plan=deployment.latest_plan,
        create_time=timestamp_from_datetime(deployment.create_time),
        update_time=timestamp_from_datetime(deployment.update_time),
        created_by=deployment.created_by,
    )
    if deployment.delete_time is not None:
        message.delete_time.CopyFrom(timestamp_from_datetime(deployment.delete_time))
    return message


def simulation_changes_from_wire(message: plan_service_pb2.SimulatePlanRequest) -> SimulationChanges:
    """What is to differ from the stored plan."""
    return from_message(message, SimulationChanges)


def simulation_report_to_wire(report: SimulationReport) -> plan_service_pb2.SimulationReport:
    """What came of a simulation."""
    return to_message(report, plan_service_pb2.SimulationReport)


def search_answer_to_wire(
    answer: SearchAnswer, most_candidates: int
) -> sizing_service_pb2.SearchConfigurationsResponse:
    """The best candidates, the whole Pareto front, and what was ruled out."""
    message = sizing_service_pb2.SearchConfigurationsResponse(calibration=answer.calibration, seed=answer.seed)
    for candidate in answer.candidates[:most_candidates]:
        fill_message(candidate, message.candidates.add())
    for candidate in answer.pareto_front[:most_candidates]:
        fill_message(candidate, message.pareto_front.add())
    for rule in answer.ruled_out:
        fill_message(rule, message.ruled_out.add())
    for warning in answer.warnings:
        fill_message(warning, message.warnings.add())
    if answer.calibration_use is not None:
        fill_message(answer.calibration_use, message.calibration_use)
    return message
