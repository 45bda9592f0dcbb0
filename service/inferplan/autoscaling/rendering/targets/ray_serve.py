"""Ray Serve's config file for ray.serve.llm.

Field facts: Ray counts requests that run and wait at a replica together (`target_ongoing_requests`). Unknown keys are
accepted without a word, so they are refused here. ray.serve.llm's own defaults for ongoing requests (1e9) never scale,
so both limits are always stated. There is one delay a direction, and no limit on a step.
"""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.policy import AutoscalingPolicy
from inferplan.autoscaling.rendering.behavior import one_delay
from inferplan.autoscaling.rendering.documents import Commented, formula, header_lines, yaml_file
from inferplan.autoscaling.rendering.engine_flags import MODEL_PATH_OPTION, model_path, require_engine, vllm_flags
from inferplan.autoscaling.rendering.known_fields import KnownFields, require_known_fields
from inferplan.autoscaling.rendering.losses import rule_losses, shown_missing
from inferplan.autoscaling.rendering.naming import object_name
from inferplan.autoscaling.rendering.options import Option, ResolvedOptions, kubernetes_name, matching, optional
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.replicas import replica_bounds
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.signals import SIGNAL_OPTIONS, requests_per_replica, with_companion
from inferplan.errors import InvalidInputError

_AUTOSCALING_FIELDS: KnownFields = dict.fromkeys(
    (
        "min_replicas",
        "initial_replicas",
        "max_replicas",
        "target_ongoing_requests",
        "metrics_interval_s",
        "look_back_period_s",
        "smoothing_factor",
        "upscale_smoothing_factor",
        "downscale_smoothing_factor",
        "upscaling_factor",
        "downscaling_factor",
        "downscale_delay_s",
        "downscale_to_zero_delay_s",
        "upscale_delay_s",
        "aggregation_function",
        "policy",
    )
)
"""ray.serve.config.AutoscalingConfig, as its API page lists it."""

_DEPLOYMENT_FIELDS: KnownFields = {
    **dict.fromkeys(
        (
            "name",
            "num_replicas",
            "ray_actor_options",
            "max_ongoing_requests",
            "max_queued_requests",
            "user_config",
            "health_check_period_s",
            "health_check_timeout_s",
            "graceful_shutdown_wait_loop_s",
            "graceful_shutdown_timeout_s",
            "logging_config",
            "request_router_config",
        )
    ),
    "autoscaling_config": _AUTOSCALING_FIELDS,
}
"""LLMConfig.deployment_config, as its API page lists it."""

_ENGINE_FIELDS: KnownFields = dict.fromkeys(
    (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "enable_expert_parallel",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "dtype",
        "quantization",
        "enable_prefix_caching",
    )
)
"""Arguments of vLLM's AsyncEngineArgs that a plan states."""

CONFIG_FIELDS: KnownFields = {
    "applications": {
        "name": None,
        "route_prefix": None,
        "import_path": None,
        "runtime_env": None,
        "args": {
            "llm_configs": {
                "model_loading_config": dict.fromkeys(("model_id", "model_source", "tokenizer_source")),
                "accelerator_type": None,
                "placement_group_config": None,
                "engine_kwargs": _ENGINE_FIELDS,
                "deployment_config": _DEPLOYMENT_FIELDS,
            }
        },
    }
}

NO_LIMIT_REQUESTS = 1_000_000_000
"""ray.serve.llm's own limit, which stands for none."""

_LOOK_BACK_SECONDS = 30.0
"""Ray's look-back; a delay shorter than it makes replicas start and stop in turns (ray issue 26455)."""


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    require_engine(request, "vllm")
    policy = request.policy
    signals, companion_losses = with_companion(request, options)
    target, signal_losses = requests_per_replica(signals)
    if target is None:
        raise InvalidInputError.single(
            "policy.signals",
            "has no count of requests in flight, the only signal of Ray Serve; legal: running or ongoing per replica",
            "NOTHING_TO_SCALE_ON",
        )
    bounds = replica_bounds(policy, can_run_ahead=False)
    autoscaling, autoscaling_losses = _autoscaling(policy, bounds.floor, bounds.floor_comment, target)
    engine, flag_losses = _engine_arguments(request)
    deployment: dict[str, Any] = {
        "autoscaling_config": autoscaling,
        "max_ongoing_requests": policy.maximum_concurrency_per_replica or NO_LIMIT_REQUESTS,
    }
    if policy.drain_seconds is not None:
        deployment["graceful_shutdown_timeout_s"] = policy.drain_seconds
    llm: dict[str, Any] = {
        "model_loading_config": {"model_id": request.model_name, "model_source": model_path(request, options)},
        **({"accelerator_type": options.text("accelerator_type")} if options.text("accelerator_type") else {}),
        "engine_kwargs": engine,
        "deployment_config": deployment,
    }
    application = {
        "name": object_name(request, options),
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [llm]},
    }
    document = {"applications": [application]}
    require_known_fields(document, CONFIG_FIELDS)
    header = header_lines(
        request,
        "Ray Serve config: `serve deploy serve-config.yaml`, or serveConfigV2 of a RayService. No `num_replicas` "
        "beside it.",
    )
    losses = (
        *bounds.losses,
        *companion_losses,
        *signal_losses,
        *autoscaling_losses,
        *flag_losses,
        *_other_losses(request, options),
    )
    return Rendering((yaml_file("serve-config.yaml", header, [document]),), losses)


def _autoscaling(
    policy: AutoscalingPolicy, floor: int, floor_comment: str, target: float
) -> tuple[dict[str, Any], list[RenderingLoss]]:
    up, up_losses = one_delay("scale_up", policy.scale_up)
    down, down_losses = one_delay("scale_down", policy.scale_down)
    values: dict[str, Any] = {
        "min_replicas": floor,
        "initial_replicas": max(1, floor),
        "max_replicas": policy.maximum_replicas,
        "target_ongoing_requests": target,
        "upscale_delay_s": up,
        "downscale_delay_s": down,
        "look_back_period_s": min(_LOOK_BACK_SECONDS, max(1.0, min(up, down))),
    }
    losses = [*up_losses, *down_losses]
    if policy.allow_zero and floor == 0:
        values["downscale_to_zero_delay_s"] = down
    elif policy.allow_zero:
        losses.append(RenderingLoss("allow_zero", f"Ray goes to zero only from a floor of 0; at least {floor} stay"))
    if up:
        losses.append(
            RenderingLoss(
                "scale_up.cooldown",
                f"{policy.scale_up.cooldown_seconds:g} s: Ray has one delay, which the signal must hold before every "
                f"action; the first scale-up waits {up:g} s too",
            )
        )
    comments = {
        "min_replicas": floor_comment,
        "max_replicas": formula(policy, "maximum_replicas"),
        "target_ongoing_requests": "running + queued",
        "upscale_delay_s": formula(policy, "scale_up.cooldown"),
        "downscale_delay_s": formula(policy, "scale_down.cooldown"),
    }
    return Commented(values, comments), losses


def _engine_arguments(request: RenderingRequest) -> tuple[dict[str, Any], list[RenderingLoss]]:
    flags, losses = vllm_flags(request)
    arguments: dict[str, Any] = {}
    for flag in flags:
        if flag.name in ("--served-model-name", "--distributed-executor-backend", "--shutdown-timeout"):
            continue
        if flag.value is None:
            arguments[flag.name.removeprefix("--no-").removeprefix("--").replace("-", "_")] = not flag.name.startswith(
                "--no-"
            )
        else:
            arguments[flag.name.removeprefix("--").replace("-", "_")] = _number_or_text(flag.value)
    # Ray drains the replica itself, so that the engine's own shutdown is not asked.
    return arguments, [loss for loss in losses if loss.field != "drain_seconds"]


def _number_or_text(value: str) -> int | float | str:
    for convert in (int, float):
        try:
            return convert(value)
        except ValueError:
            continue
    return value


def _other_losses(request: RenderingRequest, options: ResolvedOptions) -> list[RenderingLoss]:
    policy = request.policy
    losses = rule_losses(
        policy,
        ("scale_up.cooldown", "scale_up.sustain", "scale_down.cooldown", "scale_down.sustain"),
        "Ray bounds no step and has no tolerance",
    )
    losses.append(
        RenderingLoss("missing_metrics", f"{shown_missing(policy)}: Ray counts at its own handles and has no such rule")
    )
    if policy.pre_stop_seconds is not None:
        losses.append(
            RenderingLoss(
                "pre_stop_seconds",
                f"{policy.pre_stop_seconds:g} s: Ray's proxies stop sending by themselves; there is no such time",
            )
        )
    if not options.text("accelerator_type"):
        losses.append(
            RenderingLoss(
                "configuration.accelerator",
                f"{request.configuration.accelerator}: any node with GPUs is taken; option accelerator_type names "
                "Ray's own",
            )
        )
    return losses


TARGET = Target(
    "ray-serve",
    "Ray Serve config for ray.serve.llm",
    (
        Option("name", "", "name of the application; empty: the deployment's id", optional(kubernetes_name)),
        MODEL_PATH_OPTION,
        Option(
            "accelerator_type",
            "",
            "Ray's name of the accelerator, such as H100",
            optional(matching(r"[A-Za-z0-9][A-Za-z0-9_-]*", "Ray's name of an accelerator, such as H100")),
        ),
        *(option for option in SIGNAL_OPTIONS if option.key == "running_target"),
    ),
    _render,
)
