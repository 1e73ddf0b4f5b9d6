"""Figures of a watch for Prometheus, by ``prometheus_client``.

Names are one set for every engine, so that one dashboard (``docs/grafana-watch.json``) serves all.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from tokenroom.errors import CommandLineError
from tokenroom.watching.observation import Endpoint, Latency, Observation, Replica

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_PREFIX: Final = "tokenroom_watch_"
_ENDPOINT: Final = ("endpoint", "engine")
_REPLICA: Final = (*_ENDPOINT, "model", "rank")
_GPU: Final = ("gpu", "uuid", "name")
_LATENCIES: Final = ("ttft", "itl", "tpot", "queue", "e2e")
_QUANTILES: Final = ("p50", "p90", "p99", "mean")
_PLANNED: Final = ("weights", "activation", "graphs", "other", "kv_pool", "peak")


class Exporter:
    """Serves the last observation at ``/metrics`` of a port.

    Args:
        host: Address to listen on.
        port: Port; 0 for any that is free.

    Attributes:
        port: The port that it listens on.
    """

    def __init__(self, *, host: str, port: int) -> None:
        self.port = port
        self._host = host
        self._seen: Observation | None = None
        self._server: Any = None
        self._thread: Any = None

    def __enter__(self) -> Exporter:
        """Begin to listen.

        Raises:
            CommandLineError: The address cannot be listened on.
        """
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(
                self.port, addr=self._host, registry=registry
            )
        except OSError as error:
            raise CommandLineError(
                f"{self._host} port {self.port} cannot be listened on: {error.strerror or error}; "
                f"give another --exporter or --exporter-host"
            ) from error
        self.port = self._server.server_port
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, seen: Observation) -> None:
        """Serve this one from now on."""
        self._seen = seen

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that a registry does not ask for figures when it is told of them."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The figures of the last observation, as a registry asks for them."""
        return iter(()) if self._seen is None else metrics(self._seen)


def metrics(seen: Observation) -> Iterator[Metric]:
    """The figures of an observation; what is not known is left out."""
    yield from _of_endpoints(seen)
    yield from _of_replicas(seen)
    yield from _of_gpus(seen)
    alerts = _gauge("alert", "1 for each alert that is on", ("key", "severity", "subject"))
    for alert in seen.alerts:
        alerts.add_metric([alert.key, alert.severity, alert.subject], 1)
    yield alerts
    time = _gauge("observed_at_seconds", "Time of the observation since the epoch", ())
    time.add_metric([], seen.time)
    yield time


def _of_endpoints(seen: Observation) -> Iterator[Metric]:
    up = _gauge("up", "Whether the server answers", _ENDPOINT)
    restarts = _counter("restarts", "How often it began anew", _ENDPOINT)
    pool = _gauge("planned_kv_pool_tokens", "Predicted tokens of the KV pool", _ENDPOINT)
    planned = _gauge("planned_bytes", "Predicted memory of a GPU by part", (*_ENDPOINT, "part"))
    for endpoint in seen.endpoints:
        labels = _labels(endpoint)
        up.add_metric(labels, endpoint.status == "up")
        restarts.add_metric(labels, endpoint.restarts)
        plan = endpoint.planned
        if plan is not None:
            pool.add_metric(labels, plan.kv_pool_tokens)
            for part in _PLANNED:
                planned.add_metric([*labels, part], getattr(plan, f"{part}_bytes"))
    yield from (up, restarts, pool, planned)


_GAUGES: Final = {
    # field of a replica: (name, help)
    "running": ("requests_running", "Requests in the batch"),
    "waiting": ("requests_waiting", "Requests in the queue"),
    "kv_share": ("kv_usage_ratio", "Share of the KV pool in use"),
    "kv_used_tokens": ("kv_used_tokens", "Tokens in the KV pool"),
    "kv_pool_tokens": ("kv_pool_tokens", "Tokens of the KV pool"),
    "prefix_hit_share": ("prefix_hit_ratio", "Share of prompt tokens found in the cache"),
    "prompt_tokens_per_second": ("prompt_tokens_per_second", "Prompt tokens a second"),
    "generation_tokens_per_second": ("generation_tokens_per_second", "Output tokens a second"),
    "requests_per_second": ("requests_per_second", "Requests that ended, a second"),
}
_COUNTERS: Final = {
    # field of the totals: (name, help)
    "prompt_tokens": ("prompt_tokens", "Prompt tokens since the watch began"),
    "generation_tokens": ("generation_tokens", "Output tokens since the watch began"),
    "requests": ("requests", "Requests that ended since the watch began"),
    "preemptions": ("preemptions", "Preemptions since the watch began"),
}


def _of_replicas(seen: Observation) -> Iterator[Metric]:
    replicas = [
        (replica, [*_labels(endpoint), replica.model or "", replica.rank or ""])
        for endpoint in seen.endpoints
        for replica in endpoint.replicas
    ]
    for field, (name, text) in _GAUGES.items():
        gauge = _gauge(name, text, _REPLICA)
        for replica, labels in replicas:
            if (value := getattr(replica, field)) is not None:
                gauge.add_metric(labels, value)
        yield gauge
    for field, (name, text) in _COUNTERS.items():
        counter = _counter(name, text, _REPLICA)
        for replica, labels in replicas:
            if (value := getattr(replica.totals, field)) is not None:
                counter.add_metric(labels, value)
        yield counter
    yield from _latencies(replicas)


def _latencies(replicas: list[tuple[Replica, list[str]]]) -> Iterator[Metric]:
    gauge = _gauge(
        "latency_seconds", "Latencies over the window", (*_REPLICA, "latency", "statistic")
    )
    for replica, labels in replicas:
        for name in _LATENCIES:
            latency: Latency | None = getattr(replica, name)
            if latency is not None:
                for quantile in _QUANTILES:
                    value = getattr(latency, f"{quantile}_seconds")
                    gauge.add_metric([*labels, name, quantile], value)
    yield gauge


def _of_gpus(seen: Observation) -> Iterator[Metric]:
    memory = _gauge("gpu_memory_bytes", "Memory of a GPU", (*_GPU, "state"))
    busy = _gauge("gpu_busy_ratio", "Share of the time in which a kernel ran", _GPU)
    processes = _gauge(
        "gpu_process_memory_bytes", "Memory of a process on a GPU", ("gpu", "pid", "process")
    )
    for gpu in seen.gpus:
        labels = [gpu.index, gpu.uuid, gpu.name]
        for state in ("total", "used", "free", "reserved"):
            value = getattr(gpu, f"{state}_bytes")
            if value is not None:
                memory.add_metric([*labels, state], value)
        if gpu.busy_share is not None:
            busy.add_metric(labels, gpu.busy_share)
        for one in gpu.processes or ():
            if one.used_bytes is not None:
                processes.add_metric([gpu.index, str(one.pid), one.name or ""], one.used_bytes)
    yield from (memory, busy, processes)


def _labels(endpoint: Endpoint) -> list[str]:
    return [endpoint.url, "" if endpoint.facts is None else endpoint.facts.engine]


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(_PREFIX + name, text, labels=labels)


def _counter(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(_PREFIX + name, text, labels=labels)
