"""What Prometheus would scrape, over a real connection, and the dashboard that draws it."""

import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from observations import OBSERVATION, PLANNED
from prometheus_client.parser import text_string_to_metric_families

from tokenroom.errors import CommandLineError
from tokenroom.watching.exporter import Exporter

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-watch.json"


def scraped(exporter: Exporter) -> str:
    with urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, {})[tuple(sorted(one.labels.items()))] = one.value
    return found


def one(name: str, found: dict[str, dict[tuple[tuple[str, str], ...], float]]) -> float:
    (value,) = found[f"tokenroom_watch_{name}"].values()
    return value


def test_figures_are_those_of_the_observation() -> None:
    with Exporter(host="127.0.0.1", port=0) as exporter:
        assert "tokenroom_watch" not in scraped(exporter)  # nothing was seen yet
        exporter.take(OBSERVATION)
        found = samples(scraped(exporter))
        exporter.take(replace(OBSERVATION, endpoints=()))
        assert "tokenroom_watch_requests_running{" not in scraped(exporter)
    assert one("requests_running", found) == 8
    assert one("requests_waiting", found) == 4
    assert one("kv_usage_ratio", found) == 0.873
    assert one("generation_tokens_total", found) == 300_000
    assert one("preemptions_total", found) == 17
    assert one("planned_kv_pool_tokens", found) == PLANNED.kv_pool_tokens
    up = {dict(labels)["endpoint"]: value for labels, value in found["tokenroom_watch_up"].items()}
    assert up == {"http://127.0.0.1:8000": 1, "http://127.0.0.1:30000": 0}
    memory = {
        dict(labels)["state"]: value
        for labels, value in found["tokenroom_watch_gpu_memory_bytes"].items()
    }
    assert memory == {"total": 80 * 2**30, "used": 71 * 2**30, "free": 9 * 2**30, "reserved": 2**30}
    ttft = {
        dict(labels)["statistic"]: value
        for labels, value in found["tokenroom_watch_latency_seconds"].items()
        if dict(labels)["latency"] == "ttft"
    }
    assert ttft == {"p50": 0.1, "p90": 0.2, "p99": 0.4, "mean": 0.12}
    alerts = {dict(labels)["key"] for labels in found["tokenroom_watch_alert"]}
    assert alerts == {"endpoint_down", "kv_high"}


def test_a_port_that_is_taken_is_refused_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        exporter = Exporter(host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(CommandLineError, match="another --exporter"), exporter:
            pass


def test_the_dashboard_asks_for_what_is_exported_alone() -> None:
    with Exporter(host="127.0.0.1", port=0) as exporter:
        exporter.take(OBSERVATION)
        found = samples(scraped(exporter))
    labels = {
        name: {label for series in values for label, _ in series} for name, values in found.items()
    }
    text = DASHBOARD.read_text("utf-8")
    named = set(re.findall(r"tokenroom_watch_\w+", text))
    assert named <= set(found)
    # Everything is drawn but what the totals tell better, and the time.
    rates = {"prompt_tokens", "generation_tokens", "requests"}
    left = {f"tokenroom_watch_{name}_per_second" for name in rates}
    assert set(found) - named == left | {"tokenroom_watch_observed_at_seconds"} | {
        name for name in found if not name.startswith("tokenroom_watch_")
    }
    dashboard = json.loads(text)
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            (name,) = set(re.findall(r"tokenroom_watch_\w+", target["expr"]))
            asked = set(re.findall(r"(\w+)=~?\"", target["expr"]))
            asked |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert asked <= labels[name], panel["title"]
    for variable in dashboard["templating"]["list"][1:]:
        name, label = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"])[0]
        assert label in labels[name]


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
