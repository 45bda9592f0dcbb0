"""Names of rendered objects: the option's, or the deployment's id."""

from __future__ import annotations

from inferplan.autoscaling.rendering.options import ResolvedOptions, kubernetes_name, service_name
from inferplan.autoscaling.rendering.request import RenderingRequest
from inferplan.errors import InvalidInputError


def object_name(request: RenderingRequest, options: ResolvedOptions, suffix: str | None = None) -> str:
    """The name of the rendered object; `suffix` is what a controller appends for the Service that it makes.

    Raises InvalidInputError where the deployment's id is no such name, so that the option must be given.
    """
    name = options.text("name") or request.deployment_id
    problem = kubernetes_name(name) if suffix is None else service_name(suffix)(name)
    if problem is not None:
        raise InvalidInputError.single("options[name]", f"{name[:80]!r} {problem}")
    return name


def metadata(name: str, options: ResolvedOptions) -> dict[str, str]:
    """`metadata` of an object in the option's namespace."""
    return {"name": name, "namespace": options.text("namespace")}
