"""A deployment: the thing that a platform runs and re-plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from inferplan.resources.plan import plan_name


@dataclass(frozen=True, slots=True)
class Deployment:
    """`latest_revision` is 0 while there is no plan. Times are aware datetimes in UTC."""

    deployment_id: str
    create_time: datetime
    update_time: datetime
    display_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    latest_revision: int = 0
    created_by: str = ""
    delete_time: datetime | None = None

    @property
    def name(self) -> str:
        """`deployments/{deployment}`."""
        return deployment_name(self.deployment_id)

    @property
    def latest_plan(self) -> str:
        """Resource name of the newest plan; empty if there is none."""
        return plan_name(self.deployment_id, self.latest_revision) if self.latest_revision else ""


def deployment_name(deployment_id: str) -> str:
    """The resource name of a deployment."""
    return f"deployments/{deployment_id}"
