"""Write docs/grafana-watch.json, the Grafana dashboard of ``tokenroom watch --exporter``::

python scripts/write_watch_dashboard.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "docs" / "grafana-watch.json"
PREFIX = "tokenroom_watch_"
REPLICA = '{endpoint=~"$endpoint",model=~"$model"}'
SERVER = '{endpoint=~"$endpoint"}'
WIDTH, HEIGHT = 8, 8

PANELS: tuple[tuple[str, str, list[tuple[str, str]]], ...] = (
    # title, unit of Grafana, (expression, legend) with {name} of the exporter
    ("Servers up", "short", [("up" + SERVER, "{{endpoint}}")]),
    ("Alerts", "short", [("alert", "{{severity}} {{key}} {{subject}}")]),
    (
        "Requests",
        "short",
        [
            ("requests_running" + REPLICA, "running {{endpoint}} {{rank}}"),
            ("requests_waiting" + REPLICA, "waiting {{endpoint}} {{rank}}"),
        ],
    ),
    ("KV pool in use", "percentunit", [("kv_usage_ratio" + REPLICA, "{{endpoint}} {{rank}}")]),
    (
        "KV tokens",
        "short",
        [
            ("kv_used_tokens" + REPLICA, "used {{endpoint}} {{rank}}"),
            ("kv_pool_tokens" + REPLICA, "pool {{endpoint}} {{rank}}"),
            ("planned_kv_pool_tokens" + SERVER, "planned {{endpoint}}"),
        ],
    ),
    (
        "Prefix cache hits",
        "percentunit",
        [("prefix_hit_ratio" + REPLICA, "{{endpoint}} {{rank}}")],
    ),
    (
        "Tokens a second",
        "short",
        [
            (f"rate({PREFIX}prompt_tokens_total{REPLICA}[1m])", "prompt {{endpoint}} {{rank}}"),
            (f"rate({PREFIX}generation_tokens_total{REPLICA}[1m])", "output {{endpoint}} {{rank}}"),
        ],
    ),
    (
        "Requests a second",
        "reqps",
        [(f"rate({PREFIX}requests_total{REPLICA}[1m])", "{{endpoint}} {{rank}}")],
    ),
    (
        "Preemptions in a minute",
        "short",
        [(f"increase({PREFIX}preemptions_total{REPLICA}[1m])", "{{endpoint}} {{rank}}")],
    ),
    (
        "Time to the first token",
        "s",
        [
            (
                'latency_seconds{endpoint=~"$endpoint",model=~"$model",latency="ttft"}',
                "{{statistic}} {{endpoint}} {{rank}}",
            )
        ],
    ),
    (
        "Time between tokens",
        "s",
        [
            (
                'latency_seconds{endpoint=~"$endpoint",model=~"$model",latency=~"itl|tpot"}',
                "{{latency}} {{statistic}} {{endpoint}} {{rank}}",
            )
        ],
    ),
    (
        "Time in the queue",
        "s",
        [
            (
                'latency_seconds{endpoint=~"$endpoint",model=~"$model",latency="queue"}',
                "{{statistic}} {{endpoint}} {{rank}}",
            )
        ],
    ),
    (
        "GPU memory",
        "bytes",
        [
            ('gpu_memory_bytes{state=~"used|total"}', "{{state}} {{gpu}}"),
            ('planned_bytes{endpoint=~"$endpoint",part="peak"}', "planned {{endpoint}}"),
        ],
    ),
    (
        "GPU memory of processes",
        "bytes",
        [("gpu_process_memory_bytes", "{{gpu}} {{pid}} {{process}}")],
    ),
    ("GPUs busy", "percentunit", [("gpu_busy_ratio", "{{gpu}}")]),
    ("Planned memory of a GPU", "bytes", [("planned_bytes" + SERVER, "{{part}} {{endpoint}}")]),
    ("Restarts", "short", [(f"increase({PREFIX}restarts_total{SERVER}[10m])", "{{endpoint}}")]),
)


def panel(number: int, title: str, unit: str, targets: list[tuple[str, str]]) -> dict[str, Any]:
    """One panel in a row of three."""
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "x": number % 3 * WIDTH,
            "y": number // 3 * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "expr": expression if PREFIX in expression else PREFIX + expression,
                "legendFormat": legend,
            }
            for index, (expression, legend) in enumerate(targets)
        ],
    }


def variable(name: str) -> dict[str, Any]:
    """A choice of the values of a label."""
    source = "up" if name == "endpoint" else "requests_running"
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({PREFIX}{source}, {name})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    return {
        "title": "tokenroom watch",
        "uid": "tokenroom-watch",
        "schemaVersion": 39,
        "tags": ["llm", "gpu"],
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                variable("endpoint"),
                variable("model"),
            ]
        },
        "panels": [panel(number, *one) for number, one in enumerate(PANELS)],
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")
