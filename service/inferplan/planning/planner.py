"""The use cases: a request in domain terms goes in, a stored or stateless answer comes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar

from inferplan.autoscaling.rendering import Rendering
from inferplan.catalog import Accelerator, Catalog, Engine, Model
from inferplan.errors import Violation
from inferplan.planning.calibration_library import CalibrationLibrary
from inferplan.planning.coefficients import calibration_violations
from inferplan.planning.list_request import ListRequest
from inferplan.planning.memory import MemoryRequest, estimate_memory_for, memory_violations
from inferplan.planning.predict import Prediction, PredictionRequest, predict, prediction_violations
from inferplan.planning.profile_library import ProfileLibrary
from inferplan.planning.render import render_plan
from inferplan.planning.replay import ReplayQuestion, replay_plan
from inferplan.planning.resolve import input_violations, resolve_engine
from inferplan.planning.search import SearchAnswer, search_configurations
from inferplan.planning.simulate import SimulationChanges, SimulationReport, simulate_plan
from inferplan.planning.simulated_plan import plan_by_simulation, simulated_setup_violations, simulated_violations
from inferplan.planning.simulation_options import load_violations, percentile_violations
from inferplan.planning.textbook_plan import plan_by_textbook, textbook_setup_violations, textbook_violations
from inferplan.resources.deployment import Deployment
from inferplan.resources.plan import Plan, PlanContent, PlanInput, PlanMethod
from inferplan.simulation import Cancellation
from inferplan.sizing.memory import MemoryEstimate
from inferplan.storage.calibrations import CalibrationStore
from inferplan.storage.codec import request_digest
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.pages import ListScope, PageCursor, PageTokens, page_size_of
from inferplan.storage.plans import PlanStore
from inferplan.storage.profiles import ProfileStore

DEFAULT_METHOD = PlanMethod.SIMULATED

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """One request for a plan. `caller` is who asks; an empty `request_id` means that a repetition is a new request."""

    deployment_id: str
    input: PlanInput
    caller: str = ""
    request_id: str = ""
    validate_only: bool = False
    allow_missing_deployment: bool = False


class Planner:
    """Everything that the service can be asked, over one catalogue and one database."""

    def __init__(
        self,
        catalog: Catalog,
        deployments: DeploymentStore,
        plans: PlanStore,
        profiles: ProfileStore,
        calibrations: CalibrationStore,
        tokens: PageTokens,
    ) -> None:
        self.catalog = catalog
        self.profiles = ProfileLibrary(catalog, profiles, tokens)
        self.calibrations = CalibrationLibrary(catalog, calibrations, profiles, tokens)
        self._calibrations = calibrations
        self._deployments = deployments
        self._plans = plans
        self._tokens = tokens

    @classmethod
    def over(cls, catalog: Catalog, database: Database) -> Planner:
        """A planner whose stores live in `database`, which is at this program's revision."""
        tokens = PageTokens.load(database)
        return cls(
            catalog,
            DeploymentStore(database),
            PlanStore(database),
            ProfileStore(database),
            CalibrationStore(database),
            tokens,
        )

    def input_violations(self, plan_input: PlanInput, path: str, broken_parts: Collection[str] = ()) -> list[Violation]:
        """Everything that is wrong with a plan's input beyond its single fields; see resolve.input_violations."""
        simulated = self.simulates(plan_input)
        violations = input_violations(self.catalog, plan_input, path, broken_parts)
        if violations or broken_parts:
            return violations + ([] if simulated else textbook_violations(plan_input, path))
        if simulated:
            return self._simulated_violations(plan_input, path)
        return textbook_violations(plan_input, path) or textbook_setup_violations(self.catalog, plan_input, path)

    def search_violations(
        self, plan_input: PlanInput, path: str, broken_parts: Collection[str] = ()
    ) -> list[Violation]:
        """Everything that is wrong with a search's input beyond its single fields."""
        violations = input_violations(self.catalog, plan_input, path, broken_parts)
        return violations if violations or broken_parts else self._simulated_violations(plan_input, path)

    def search(self, plan_input: PlanInput, cancellation: Cancellation | None = None) -> SearchAnswer:
        """Configurations that hold what is asked, ranked. Raises CancelledError."""
        return search_configurations(self.catalog, plan_input, cancellation, self._calibrations)

    def _simulated_violations(self, plan_input: PlanInput, path: str) -> list[Violation]:
        return [
            *calibration_violations(
                plan_input.calibration,
                resolve_engine(self.catalog, plan_input.engine).engine.id,
                self._calibrations,
                f"{path}.calibration",
            ),
            *percentile_violations(plan_input.objectives, None, f"{path}.objectives"),
            *load_violations(plan_input.workload, f"{path}.workload"),
            *simulated_violations(plan_input, path),
        ] or simulated_setup_violations(self.catalog, plan_input, path)

    def create_plan(self, request: PlanRequest, cancellation: Cancellation | None = None) -> Plan:
        """Compute a plan and store it as its deployment's next revision.

        A `request_id` that was stored before returns that plan without computing anything, or raises AlreadyExistsError
        if it came with another content. Raises NothingFitsError if no configuration holds what is asked, NotFoundError
        for a deployment that does not exist.
        """
        digest = request_digest(request.deployment_id, request.input) if request.request_id else None
        if digest is not None and not request.validate_only:
            stored = self._plans.find_request(request.request_id, digest)
            if stored is not None:
                return stored
        if not request.allow_missing_deployment:
            self._deployments.get_deployment(request.deployment_id)
        content = self.compute(request.input, cancellation)
        if request.validate_only:
            return Plan(request.deployment_id, 0, content, request.caller)
        return self._plans.create_plan(
            request.deployment_id,
            content,
            created_by=request.caller,
            request_id=request.request_id or None,
            request_hash=digest,
            allow_missing_deployment=request.allow_missing_deployment,
        )

    def compute(self, plan_input: PlanInput, cancellation: Cancellation | None = None) -> PlanContent:
        """What a plan says, stored nowhere."""
        if self.simulates(plan_input):
            return plan_by_simulation(self.catalog, plan_input, cancellation, self._calibrations)
        return plan_by_textbook(self.catalog, plan_input)

    def get_plan(self, deployment_id: str, revision: int | Literal["latest"]) -> Plan:
        """One stored plan. Raises NotFoundError."""
        return self._plans.get_plan(deployment_id, revision)

    def list_plans(self, deployment_id: str | None, request: ListRequest) -> tuple[tuple[Plan, ...], str]:
        """One page of plans, newest first, and the next page's token; None lists over all deployments."""
        scope = request.scope("plans", parent=deployment_id or "-")
        page = self._plans.list_plans(deployment_id, request.query(self._tokens, scope))
        return page.items, self._tokens.encode(page.next_cursor, scope)

    def create_deployment(
        self, deployment_id: str, *, display_name: str, labels: Mapping[str, str], caller: str
    ) -> Deployment:
        """Store a deployment without plans. Raises AlreadyExistsError."""
        return self._deployments.create_deployment(
            deployment_id, display_name=display_name, labels=labels, created_by=caller
        )

    def get_deployment(self, deployment_id: str) -> Deployment:
        """One deployment. Raises NotFoundError."""
        return self._deployments.get_deployment(deployment_id)

    def delete_deployment(self, deployment_id: str, *, force: bool) -> Deployment:
        """Mark a deployment and its plans as deleted. Raises NotFoundError; PreconditionError if it has plans."""
        return self._deployments.delete_deployment(deployment_id, force=force)

    def list_deployments(self, request: ListRequest) -> tuple[tuple[Deployment, ...], str]:
        """One page of deployments, newest first, and the next page's token."""
        scope = request.scope("deployments")
        page = self._deployments.list_deployments(request.query(self._tokens, scope))
        return page.items, self._tokens.encode(page.next_cursor, scope)

    def list_models(self, request: ListRequest) -> tuple[Sequence[Model], str]:
        """One page of models by id, and the next page's token."""
        return self._catalog_page("models", self.catalog.models(), request)

    def list_accelerators(self, request: ListRequest) -> tuple[Sequence[Accelerator], str]:
        """One page of accelerators by id, and the next page's token."""
        return self._catalog_page("accelerators", self.catalog.accelerators(), request)

    def list_engines(self, request: ListRequest) -> tuple[Sequence[Engine], str]:
        """One page of engines by id, and the next page's token."""
        return self._catalog_page("engines", self.catalog.engines(), request)

    def simulates(self, plan_input: PlanInput) -> bool:
        """Whether a plan for this input is computed by simulation, which takes a core for a while."""
        return _method(plan_input) is PlanMethod.SIMULATED

    def prediction_violations(self, request: PredictionRequest, broken_parts: Collection[str] = ()) -> list[Violation]:
        """Everything that is wrong with a prediction request beyond its single fields."""
        return prediction_violations(self.catalog, request, broken_parts, self._calibrations)

    def predict(self, request: PredictionRequest, cancellation: Cancellation | None = None) -> Prediction:
        """What a configuration does under a load. Raises NothingFitsError if it does not start, CancelledError."""
        return predict(self.catalog, request, cancellation, self._calibrations)

    def simulate_plan(
        self,
        plan: Plan,
        changes: SimulationChanges,
        cancellation: Cancellation | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> SimulationReport:
        """Play a stored plan again. Raises InvalidInputError for a load that it cannot take, CancelledError."""
        return simulate_plan(plan.content, changes, cancellation, progress)

    def replay_plan(
        self,
        plan: Plan,
        question: ReplayQuestion,
        cancellation: Cancellation | None = None,
        progress: Callable[[float], None] = lambda _share: None,
    ) -> SimulationReport:
        """Play a stored plan under a load over time. Raises what `replay_plan` raises."""
        return replay_plan(plan.content, question, cancellation, progress)

    def render_plan(self, plan: Plan, target: str, options: Mapping[str, str]) -> Rendering:
        """A plan's configuration for a named target. Raises InvalidInputError."""
        return render_plan(plan, target, options)

    def memory_violations(self, request: MemoryRequest, broken_parts: Collection[str] = ()) -> list[Violation]:
        """Everything that is wrong with a memory question beyond its single fields."""
        return memory_violations(self.catalog, request, broken_parts)

    def estimate_memory(self, request: MemoryRequest) -> MemoryEstimate:
        """Where a GPU's memory goes. A configuration that does not fit is an answer, not an error."""
        return estimate_memory_for(self.catalog, request)

    def _catalog_page(
        self, collection: str, entries: Sequence[EntryT], request: ListRequest
    ) -> tuple[Sequence[EntryT], str]:
        """The catalogue does not change while the service runs, so a position in it is a cursor."""
        scope = ListScope(collection)
        cursor = self._tokens.decode(request.page_token, scope)
        start = cursor.id if cursor else 0
        end = start + page_size_of(request.page_size)
        following = PageCursor(_EPOCH, end) if end < len(entries) else None
        return entries[start:end], self._tokens.encode(following, scope)


def _method(plan_input: PlanInput) -> PlanMethod:
    return plan_input.method or DEFAULT_METHOD
