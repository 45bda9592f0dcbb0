"""What the TEXTBOOK method would have bought for the same request, and what happens to that fleet under the load."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError, NothingFitsError
from inferplan.planning.textbook_plan import plan_by_textbook, textbook_setup_violations, textbook_violations
from inferplan.resources.plan import PlanInput, PlanMethod
from inferplan.sizing.candidates import CandidateReplica, build_replica
from inferplan.sizing.evaluation import EvaluationSettings, evaluate_fleet
from inferplan.sizing.explanation import PlanWarning, Quantity
from inferplan.sizing.fleet import Fleet
from inferplan.sizing.fleet_size import fleet_evidence
from inferplan.sizing.performance import FleetEvidence
from inferplan.sizing.ranking import p95_seconds
from inferplan.sizing.search_question import SearchQuestion
from inferplan.sizing.workload import LatencyMetric


@dataclass(frozen=True, slots=True)
class TextbookComparison:
    """The textbook's fleet side by side with the plan's: in words with numbers, and as evidence."""

    warning: PlanWarning
    evidence: FleetEvidence


def compare_with_textbook(
    catalog: Catalog, plan_input: PlanInput, question: SearchQuestion, chosen: Fleet, settings: EvaluationSettings
) -> TextbookComparison | None:
    """None where the textbook cannot take the request, or finds no answer to it."""
    unlimited = dataclasses.replace(
        plan_input,
        method=PlanMethod.TEXTBOOK,
        hardware=dataclasses.replace(plan_input.hardware, maximum_gpus=None, maximum_cost_usd_per_hour=None),
    )
    if textbook_violations(unlimited, "") or textbook_setup_violations(catalog, unlimited, ""):
        return None
    try:
        textbook = plan_by_textbook(catalog, unlimited)
    except (NothingFitsError, InvalidInputError):
        return None
    parallelism = textbook.configuration.parallelism
    replica = build_replica(question, question.accelerators[0], question.settings, parallelism)
    if not isinstance(replica, CandidateReplica):
        return None
    replicas = textbook.fleet.active_replicas
    evaluation = evaluate_fleet(replica.model, question.workload, question.objectives, replicas, settings)
    found = fleet_evidence(replicas, evaluation)
    evidence = dataclasses.replace(found, summary=f"TEXTBOOK's fleet, {replica.label}: {found.summary}")
    return TextbookComparison(_warning(textbook.fleet, chosen, evidence), evidence)


def _warning(textbook: Fleet, chosen: Fleet, evidence: FleetEvidence) -> PlanWarning:
    performance = evidence.performance
    ttft = p95_seconds(performance, LatencyMetric.TTFT)
    growth = performance.queue_growth_requests_per_second or 0.0
    quantities = [
        Quantity("N_textbook", float(textbook.active_replicas), "replicas", "active replicas by TEXTBOOK"),
        Quantity("N_simulated", float(chosen.active_replicas), "replicas", "active replicas of this plan"),
        Quantity("cost_textbook", textbook.cost_usd_per_hour, "USD/h", "cost of TEXTBOOK's fleet, spares included"),
        Quantity("cost_simulated", chosen.cost_usd_per_hour, "USD/h", "cost of this plan's fleet, spares included"),
        Quantity("saturated", float(bool(performance.saturated)), "", "1 if TEXTBOOK's fleet cannot keep up"),
        Quantity("queue_growth", growth, "requests/s", "growth of the queue of TEXTBOOK's fleet"),
    ]
    if ttft is not None:
        quantities.append(Quantity("P95_TTFT", ttft, "s", "P95 TTFT of TEXTBOOK's fleet in the time simulated"))
    if evidence.first_broken_after_seconds is not None:
        quantities.append(
            Quantity("first_broken", evidence.first_broken_after_seconds, "s", "when an objective is first broken")
        )
    bought = (
        f"TEXTBOOK would buy {textbook.active_replicas} active + {textbook.spare_replicas} spare replicas at "
        f"${textbook.cost_usd_per_hour:,.2f} an hour, this plan {chosen.active_replicas} + {chosen.spare_replicas} at "
        f"${chosen.cost_usd_per_hour:,.2f}."
    )
    if evidence.holds:
        return PlanWarning("TEXTBOOK_HOLDS", f"{bought} Under the load TEXTBOOK's fleet holds.", tuple(quantities))
    ttft_text = "" if ttft is None else f", P95 TTFT is {ttft:.3g} s in the time simulated"
    first = evidence.first_broken_after_seconds
    first_text = "" if first is None else f", and an objective is first broken after {first:.3g} s"
    state = f"is saturated: its queue grows by {growth:.3g} requests/s" if performance.saturated else "does not hold"
    return PlanWarning(
        "TEXTBOOK_UNDERPROVISIONS",
        f"{bought} Under the load TEXTBOOK's fleet {state}{ttft_text}{first_text}.",
        tuple(quantities),
    )
