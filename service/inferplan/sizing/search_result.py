"""What a search finds: candidates that hold, best first, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.errors import BrokenRule
from inferplan.sizing.candidates import CandidateReplica
from inferplan.sizing.evaluation import FleetEvaluation
from inferplan.sizing.fleet import Fleet
from inferplan.sizing.fleet_size import ProvenFleet
from inferplan.sizing.performance import FleetEvidence
from inferplan.sizing.ranking import CandidateFigures


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A configuration with the smallest fleet of it that holds; `proven` is what that rests on."""

    replica: CandidateReplica
    fleet: Fleet
    proven: ProvenFleet
    figures: CandidateFigures
    on_pareto_front: bool = False


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A rule that a candidate broke. `replica` is None where it is not even a legal configuration that fits.

    `evaluation` is of the fleet that was simulated, None where closed form was enough.
    """

    rule: BrokenRule
    replica: CandidateReplica | None = None
    evaluation: FleetEvaluation | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`candidates` are all that hold, cheapest first, then by P95 TTFT; the first is chosen.

    `evidence` is the chosen fleet's: N, N - 1, and N with spares while `failures_to_survive` are down. `pareto_front`
    holds the candidates that no other beats in cost, P95 TTFT, P95 TPOT and GPUs at once.
    """

    candidates: tuple[RankedCandidate, ...]
    pareto_front: tuple[RankedCandidate, ...]
    ruled_out: tuple[RuledOut, ...]
    evidence: tuple[FleetEvidence, ...]

    @property
    def chosen(self) -> RankedCandidate:
        """The cheapest."""
        return self.candidates[0]
