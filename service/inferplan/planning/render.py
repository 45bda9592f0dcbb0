"""A stored plan's policy and configuration for a named target."""

from __future__ import annotations

from collections.abc import Mapping

from inferplan.autoscaling.rendering import Rendering, RenderingRequest, render
from inferplan.resources.plan import Plan


def render_plan(plan: Plan, target: str, options: Mapping[str, str]) -> Rendering:
    """The files of `target`, and what they leave out; the same plan gives the same bytes.

    Raises InvalidInputError for a target or options that are not known, and for a plan that the target cannot run.
    """
    content = plan.content
    model = content.resolved.model
    accelerators = {accelerator.id: accelerator for accelerator in content.resolved.accelerators}
    request = RenderingRequest(
        policy=content.autoscaling_policy,
        configuration=content.configuration,
        metric_dialect=content.resolved.engine.releases[0].metric_dialect,
        # A config.json that was given inline has no name; the deployment's is what its operators know it by.
        model_name=next(iter(model.aliases), "") or model.id or plan.deployment_id,
        plan_name=plan.name,
        revision=plan.revision,
        checkpoint_precision=model.architecture.weight_precision,
        gpus_per_node=accelerators[content.configuration.accelerator].gpus_per_node,
        objectives=content.input.objectives,
        options=options,
    )
    return render(target, request)
