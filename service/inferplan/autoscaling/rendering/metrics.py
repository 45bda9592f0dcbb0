"""Metric names by engine and version, and the PromQL that is built from them.

Every query gives one element. Counts are sums over the fleet and never divided by replicas: the autoscaler divides.

Sources of the names: the engines' own metric pages and sources (vLLM docs/usage/metrics, SGLang's metrics collector,
TensorRT-LLM's trtllm-serve metrics, the llm-d inference scheduler's and Dynamo's metric lists).
"""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.autoscaling.policy import SignalKind
from inferplan.errors import InvalidInputError
from inferplan.sizing.workload import LatencyMetric

RATE_WINDOW = "2m"
"""Window of histogram rates: four samples at the usual scrape interval of 30 s, eight at 15 s."""


@dataclass(frozen=True, slots=True)
class MetricDialect:
    """Metric names of one reporter; None or empty where it has no such metric.

    `rank_label_sets` are labels that one pod's series differ in although they report the same thing: tensor-parallel
    ranks. They are collapsed by the maximum over (pod, `kept_rank_labels`) before series are summed. `pool_wide`
    metrics carry no model. `liveness` exists as soon as the reporter is scraped, which an idle queue's series may not.
    """

    key: str
    waiting: str | None
    running: str | None
    ongoing: str | None = None
    kv_cache_ratio: str | None = None
    kv_cache_ratio_is_pool_wide: bool = False
    ttft_histogram: str | None = None
    tpot_histograms: tuple[str, ...] = ()
    end_to_end_histogram: str | None = None
    queue_wait_histogram: str | None = None
    model_label: str = "model_name"
    collapses_ranks: bool = False
    liveness: str | None = None
    is_gateway: bool = False


_VLLM = MetricDialect(
    key="vllm",
    waiting="vllm:num_requests_waiting",
    running="vllm:num_requests_running",
    kv_cache_ratio="vllm:kv_cache_usage_perc",
    ttft_histogram="vllm:time_to_first_token_seconds",
    # Renamed between 0.12 and 0.17; whichever the release has is taken.
    tpot_histograms=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    end_to_end_histogram="vllm:e2e_request_latency_seconds",
    queue_wait_histogram="vllm:request_queue_time_seconds",
)

_VLLM_UP_TO_0_11 = MetricDialect(
    key="vllm-up-to-0.11",
    waiting="vllm:num_requests_waiting",
    running="vllm:num_requests_running",
    kv_cache_ratio="vllm:gpu_cache_usage_perc",
    ttft_histogram="vllm:time_to_first_token_seconds",
    tpot_histograms=("vllm:time_per_output_token_seconds",),
    end_to_end_histogram="vllm:e2e_request_latency_seconds",
    queue_wait_histogram="vllm:request_queue_time_seconds",
)

_SGLANG = MetricDialect(
    key="sglang",
    waiting="sglang:num_queue_reqs",
    running="sglang:num_running_reqs",
    kv_cache_ratio="sglang:token_usage",
    ttft_histogram="sglang:time_to_first_token_seconds",
    tpot_histograms=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    end_to_end_histogram="sglang:e2e_request_latency_seconds",
    queue_wait_histogram="sglang:queue_time_seconds",
    collapses_ranks=True,
)

_TRTLLM = MetricDialect(
    key="trtllm",
    waiting="trtllm_num_requests_waiting",
    running="trtllm_num_requests_running",
    kv_cache_ratio="trtllm_kv_cache_utilization",
    ttft_histogram="trtllm_time_to_first_token_seconds",
    tpot_histograms=("trtllm_time_per_output_token_seconds",),
    end_to_end_histogram="trtllm_e2e_request_latency_seconds",
    queue_wait_histogram="trtllm_request_queue_time_seconds",
)

_LLM_D = MetricDialect(
    key="llm-d",
    waiting="llm_d_epp_flow_control_queue_size",
    running="llm_d_epp_request_running",
    kv_cache_ratio="llm_d_epp_average_kv_cache_utilization",
    kv_cache_ratio_is_pool_wide=True,
    # A flow's queue series appears with the first request that queues; the count of endpoints is always there.
    liveness="llm_d_epp_ready_endpoints",
    is_gateway=True,
)

_DYNAMO = MetricDialect(
    key="dynamo",
    waiting="dynamo_frontend_queued_requests",
    running=None,
    # From arrival to the last token, so that running is what is left without the queue.
    ongoing="dynamo_frontend_inflight_requests",
    ttft_histogram="dynamo_frontend_time_to_first_token_seconds",
    tpot_histograms=("dynamo_frontend_inter_token_latency_seconds",),
    end_to_end_histogram="dynamo_frontend_request_duration_seconds",
    model_label="model",
    is_gateway=True,
)

_DIALECTS = {dialect.key: dialect for dialect in (_VLLM, _VLLM_UP_TO_0_11, _SGLANG, _TRTLLM, _LLM_D, _DYNAMO)}

GATEWAY_DIALECTS = tuple(key for key, dialect in _DIALECTS.items() if dialect.is_gateway)
ENGINE_DIALECTS = tuple(key for key, dialect in _DIALECTS.items() if not dialect.is_gateway)


def engine_dialect(key: str) -> MetricDialect:
    """The dialect of an engine release. Raises InvalidInputError for one that is not known."""
    if key not in ENGINE_DIALECTS:
        raise InvalidInputError.single(
            "metric_dialect", f"{key[:80]!r} is not known; legal: {', '.join(ENGINE_DIALECTS)}", "UNKNOWN_DIALECT"
        )
    return _DIALECTS[key]


def gateway_dialect(key: str) -> MetricDialect:
    """The dialect of a gateway. Raises InvalidInputError for one that is not known."""
    if key not in GATEWAY_DIALECTS:
        raise InvalidInputError.single(
            "options[gateway]", f"{key[:80]!r} is not known; legal: {', '.join(GATEWAY_DIALECTS)}", "UNKNOWN_DIALECT"
        )
    return _DIALECTS[key]


@dataclass(frozen=True, slots=True)
class SeriesSelector:
    """Which series are read: label values that must be equal, and a prefix that a collector puts before every name."""

    labels: tuple[tuple[str, str], ...]
    prefix: str = ""

    def of(self, metric: str, *, without: str = "") -> str:
        """The selector of one metric, leaving out one label."""
        shown = ",".join(f"{name}={quoted(value)}" for name, value in self.labels if name != without)
        return f"{self.prefix}{metric}{{{shown}}}"


def quoted(value: str) -> str:
    """A PromQL string."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def fleet_query(dialect: MetricDialect, kind: SignalKind, selector: SeriesSelector) -> str | None:
    """PromQL for a signal of the whole fleet: one element, a sum for counts, seconds for latency; None: no such metric.

    The KV ratio is the sum over pods of each pod's fullest cache, which the autoscaler divides by replicas like a
    count.
    """
    if kind is SignalKind.QUEUE_DEPTH:
        return _count(dialect, dialect.waiting, selector)
    if kind is SignalKind.RUNNING:
        return _running(dialect, selector)
    if kind is SignalKind.ONGOING:
        return _ongoing(dialect, selector)
    if kind is SignalKind.KV_CACHE_RATIO and dialect.kv_cache_ratio and not dialect.kv_cache_ratio_is_pool_wide:
        return f"sum(max by (pod) ({selector.of(dialect.kv_cache_ratio)}))"
    if kind is SignalKind.TTFT_P95 and dialect.ttft_histogram:
        alive = _running(dialect, selector)
        # NaN without traffic, which no autoscaler understands: 0 then, and nothing if the reporters are gone.
        quantile = latency_quantile((dialect.ttft_histogram,), 95.0, selector)
        return f"({quantile} >= 0) or 0 * {alive}" if alive else f"{quantile} >= 0"
    return None


def pod_query(dialect: MetricDialect, kind: SignalKind, series: str) -> str | None:
    """PromQL over `series` (a template's selector) with one element a pod, for adapters that serve metrics of pods."""
    if kind is SignalKind.KV_CACHE_RATIO:
        return f"max by (<<.GroupBy>>) ({series})"
    if dialect.collapses_ranks:
        return f"sum by (<<.GroupBy>>) (max by (<<.GroupBy>>, dp_rank) ({series}))"
    return f"sum by (<<.GroupBy>>) ({series})"


def pod_metric(dialect: MetricDialect, kind: SignalKind) -> str | None:
    """The metric that each pod reports for a signal; None where no single one does."""
    return {
        SignalKind.QUEUE_DEPTH: dialect.waiting,
        SignalKind.RUNNING: dialect.running,
        SignalKind.KV_CACHE_RATIO: dialect.kv_cache_ratio,
    }.get(kind)


def per_pod(dialect: MetricDialect, series: str, by: str = "pod") -> str:
    """`series` with tensor-parallel ranks collapsed; data-parallel ranks, which queue apart, stay apart."""
    return f"max by ({by}, dp_rank) ({series})" if dialect.collapses_ranks else series


def latency_quantile(histograms: tuple[str, ...], percentile: float, selector: SeriesSelector) -> str:
    """A percentile in seconds; of several names the first that has series."""
    return " or ".join(
        f"histogram_quantile({percentile / 100:.10g}, sum by (le) "
        f"(rate({selector.of(name + '_bucket')}[{RATE_WINDOW}])))"
        for name in histograms
    )


def objective_histograms(dialect: MetricDialect, metric: LatencyMetric) -> tuple[str, ...]:
    """Histograms that hold an objective's latency; empty where the reporter has none."""
    single = {
        LatencyMetric.TTFT: dialect.ttft_histogram,
        LatencyMetric.END_TO_END: dialect.end_to_end_histogram,
        LatencyMetric.QUEUE_WAIT: dialect.queue_wait_histogram,
    }
    if metric in (LatencyMetric.TPOT, LatencyMetric.INTER_TOKEN):
        return dialect.tpot_histograms
    name = single.get(metric)
    return (name,) if name else ()


def _count(dialect: MetricDialect, metric: str | None, selector: SeriesSelector) -> str | None:
    if metric is None:
        return None
    total = f"sum({per_pod(dialect, selector.of(metric))})"
    if dialect.liveness is None:
        return total
    return f"({total} or 0 * sum({selector.of(dialect.liveness, without=dialect.model_label)}))"


def _running(dialect: MetricDialect, selector: SeriesSelector) -> str | None:
    if dialect.running is not None:
        return _count(dialect, dialect.running, selector)
    if dialect.ongoing is not None and dialect.waiting is not None:
        return f"(sum({selector.of(dialect.ongoing)}) - sum({selector.of(dialect.waiting)}))"
    return None


def _ongoing(dialect: MetricDialect, selector: SeriesSelector) -> str | None:
    if dialect.ongoing is not None:
        return _count(dialect, dialect.ongoing, selector)
    waiting, running = _count(dialect, dialect.waiting, selector), _running(dialect, selector)
    return f"({waiting} + {running})" if waiting and running else None
