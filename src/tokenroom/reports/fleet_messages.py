"""Sentences and labels of reports on several servers, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FLEET_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "fleet.servers": ("{servers} x ({title})", "{servers} x（{title}）"),
    "fleet.servers_of_copies": (
        "{servers} x ({title}) of {copies} data-parallel copies",
        "{servers} x（{title}），各含 {copies} 个数据并行副本",
    ),
    "fleet.scaled": ("{least} to {most}", "{least} 至 {most}"),
    "fleet.both": ("{name}: {line}", "{name}：{line}"),
    "fleet.prefill": ("{name} (prefill): {line}", "{name}（预填充）：{line}"),
    "fleet.decode": ("{name} (decode): {line}", "{name}（解码）：{line}"),
    "fleet.head.pool": ("Pool", "池"),
    "fleet.head.servers": ("servers, most", "服务器（最多）"),
    "fleet.head.requests": ("requests", "请求"),
    "fleet.head.ttft": ("mean TTFT", "平均 TTFT"),
    "fleet.head.tpot": ("mean TPOT", "平均 TPOT"),
    "fleet.head.running": ("running, mean / most", "运行中，平均 / 最多"),
    "fleet.head.waiting": ("waiting, mean / most", "等待，平均 / 最多"),
    "fleet.head.kv": ("KV pool, mean / most", "KV 池，平均 / 最多"),
    "fleet.head.busy": ("busy", "忙碌"),
    "fleet.head.hours": ("GPU-hours", "GPU 小时"),
    "fleet.head.usd": ("USD", "美元"),
    "fleet.each": (
        "Running, waiting and KV pool are of one engine.",
        "运行中、等待与 KV 池均按单个引擎计。",
    ),
    "fleet.work": (
        "{preemptions} preemptions",
        "抢占 {preemptions} 次",
    ),
}
