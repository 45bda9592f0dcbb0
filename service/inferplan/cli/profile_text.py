"""A profile as a person reads it: where it came from, whether it is in use, and each point with the rules it broke."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inferplan.cli.figures import duration_text, quantity_text
from inferplan.v1 import model_pb2, observation_pb2, profile_pb2, profile_service_pb2, workload_pb2

MOST_ROWS = 200
"""Of one table in a terminal; the JSON form has them all."""

_PROVENANCE = ("engine_version", "tool", "tool_version", "node", "driver_version", "runtime_version", "measured_by")
_LATENCIES = (
    workload_pb2.LATENCY_METRIC_TTFT,
    workload_pb2.LATENCY_METRIC_TPOT,
    workload_pb2.LATENCY_METRIC_END_TO_END,
)


def print_profile(profile: profile_pb2.Profile, console: Console) -> None:
    """Everything of a profile that fits a terminal."""
    provenance = profile.provenance
    engine = provenance.engine.removeprefix("engines/") or "no engine"
    accelerator = provenance.accelerator.removeprefix("accelerators/")
    console.print(f"[bold]{profile.name}[/]: {escape(accelerator)}, {escape(engine)}, {escape(status_text(profile))}")
    known = [f"{name.replace('_', ' ')} {getattr(provenance, name)}" for name in _PROVENANCE]
    console.print(escape(", ".join(text for text in known if not text.endswith(" "))) or "no further provenance")
    if provenance.HasField("measure_time"):
        console.print(f"measured {provenance.measure_time.ToDatetime():%Y-%m-%d %H:%M:%S}Z")
    for text in (provenance.source, provenance.raw_sha256 and f"raw file {provenance.raw_sha256}"):
        if text:
            console.print(escape(text))
    if profile.labels:
        console.print(escape(", ".join(f"{key}={value}" for key, value in sorted(profile.labels.items()))))
    _print_serving_points(profile, console)
    _print_device_measurements(profile, console)
    if profile.step_measurements:
        console.print(f"{len(profile.step_measurements)} scheduler steps")


def print_import(response: profile_service_pb2.ImportProfileResponse, console: Console) -> None:
    """What an import stored, every measurement with its verdict, and what was taken for granted while reading."""
    for profile in response.profiles:
        print_profile(profile, console)
    for note in response.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    names = ", ".join(profile.name for profile in response.profiles)
    done = "the same file was imported before, as" if response.already_imported else "stored as"
    console.print(
        f"{response.tool}: [bold]{response.accepted_points} accepted, {response.rejected_points} rejected[/]; "
        f"{done} {names}"
    )


def status_text(profile: profile_pb2.Profile) -> str:
    """`active`, `withdrawn: node throttled`, `superseded by profiles/b: newer driver`."""
    status = profile_pb2.Profile.Status.Name(profile.status).removeprefix("STATUS_").lower()
    replaced = f" by {profile.superseded_by}" if profile.superseded_by else ""
    return f"{status}{replaced}: {profile.status_reason}" if profile.status_reason else f"{status}{replaced}"


def measurement_count(profile: profile_pb2.Profile) -> int:
    """Serving points, device tests and scheduler steps together."""
    return len(profile.serving_points) + len(profile.device_measurements) + len(profile.step_measurements)


def rejected_count(profile: profile_pb2.Profile) -> int:
    """Those that are kept and not used."""
    points = sum(bool(point.broken_rules) for point in profile.serving_points)
    return points + sum(bool(item.rejected_reason) for item in profile.device_measurements)


def rejections_text(point: profile_pb2.ServingPoint) -> str:
    """Each rule that the point broke with its figures; `accepted` if it broke none."""
    return "; ".join(f"{rule.rule}: {rule.description}" for rule in point.broken_rules) or "accepted"


def _print_serving_points(profile: profile_pb2.Profile, console: Console) -> None:
    if not profile.serving_points:
        return
    table = Table(
        "point", "model", "tp", "weights", "load", "in / out", "TTFT", "TPOT", "end to end", "tokens/s", "verdict"
    )
    table.columns[-1].overflow = "fold"
    for index, point in enumerate(profile.serving_points[:MOST_ROWS]):
        table.add_row(
            escape(point.label or str(index)),
            escape(point.model.removeprefix("models/")),
            str(point.parallelism.tensor_parallel or "?"),
            _precision(point.weight_precision),
            load_text(point),
            f"{_length(point.load.input_tokens)} / {_length(point.load.output_tokens)}",
            *(latency_text(point, metric) for metric in _LATENCIES),
            f"{point.output_tokens_per_second:,.1f}" if point.HasField("output_tokens_per_second") else "",
            escape(rejections_text(point)),
        )
    console.print(table)
    if len(profile.serving_points) > MOST_ROWS:
        console.print(f"and {len(profile.serving_points) - MOST_ROWS} more points; --format json has them all")


def _print_device_measurements(profile: profile_pb2.Profile, console: Console) -> None:
    if not profile.device_measurements:
        return
    table = Table("test", "GPU", "size", "rate", "clock", "verdict")
    for item in profile.device_measurements[:MOST_ROWS]:
        kind = profile_pb2.DeviceMeasurement.Kind.Name(item.kind).removeprefix("KIND_").lower().replace("_", " ")
        is_matmul = item.kind == profile_pb2.DeviceMeasurement.KIND_MATMUL
        size = " x ".join(str(extent) for extent in item.shape) if is_matmul else quantity_text(item.buffer_bytes, "B")
        table.add_row(
            f"{kind} {_precision(item.precision)}".strip(),
            f"{item.gpu_index} to {item.peer_gpu_index}" if item.HasField("peer_gpu_index") else str(item.gpu_index),
            size,
            quantity_text(item.rate_per_second, "FLOP/s" if is_matmul else "B/s"),
            f"{item.clock_ratio:.0%}" if item.HasField("clock_ratio") else "",
            escape(item.rejected_reason or "accepted"),
        )
    console.print(table)
    if len(profile.device_measurements) > MOST_ROWS:
        console.print(f"and {len(profile.device_measurements) - MOST_ROWS} more tests; --format json has them all")


def load_text(point: profile_pb2.ServingPoint) -> str:
    """`64 clients`, `2.5 requests/s`, `batch of 8`."""
    if point.HasField("static_batch_sequences"):
        return f"batch of {point.static_batch_sequences}"
    if point.load.WhichOneof("load") == "concurrency":
        return f"{point.load.concurrency} clients"
    return f"{point.load.requests_per_second:.4g} requests/s"


def latency_text(point: profile_pb2.ServingPoint, metric: workload_pb2.LatencyMetric.ValueType) -> str:
    """The mean, or the lowest percentile that was measured, with its name; empty if there is none."""
    measured = [latency for latency in point.latencies if latency.metric == metric]
    if not measured:
        return ""
    shown = min(measured, key=_percentile)
    suffix = f" P{shown.percentile:g}" if shown.HasField("percentile") else ""
    return f"{duration_text(shown.value)}{suffix}"


def _percentile(latency: observation_pb2.MeasuredLatency) -> float:
    return latency.percentile if latency.HasField("percentile") else -1.0


def _length(length: workload_pb2.LengthDistribution) -> str:
    shape = length.WhichOneof("shape")
    if shape == "constant_tokens":
        return f"{length.constant_tokens:,}"
    if shape == "uniform":
        return f"{length.uniform.minimum_tokens:,} to {length.uniform.maximum_tokens:,}"
    return f"~{length.lognormal.mean_tokens:,.0f}" if shape == "lognormal" else "pairs"


def _precision(value: model_pb2.Precision.ValueType) -> str:
    name = model_pb2.Precision.Name(value).removeprefix("PRECISION_").lower()
    return "" if name == "unspecified" else name
