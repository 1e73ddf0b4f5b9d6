"""Sentences and labels of the ``simulate`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SIMULATION_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "simulate.workload": ("Workload: {name}", "负载：{name}"),
    "simulate.scheduler.static": (
        "Scheduler: static batches, each run to the end of its longest answer",
        "调度：静态批处理，每批运行到最长的回答结束",
    ),
    "simulate.scheduler.contiguous": (
        "Scheduler: continuous batching, max_model_len tokens in one piece for each request",
        "调度：连续批处理，为每个请求连续预留 max_model_len 个 token",
    ),
    "simulate.scheduler.contiguous-exact": (
        "Scheduler: continuous batching, one piece as long as it will become for each request",
        "调度：连续批处理，按每个请求的最终长度连续预留",
    ),
    "simulate.compiling": (
        "compiling the engine, once on this machine: about 10 s",
        "正在编译引擎（本机仅一次，约 10 秒）",
    ),
    "simulate.not_installed": (
        "serving step by step, with the same result: what compiles the engine is not installed "
        "(pip install 'tokenroom[simulate]')",
        "逐步模拟，结果相同：未安装编译引擎所需的组件（pip install 'tokenroom[simulate]'）",
    ),
    "simulate.served": (
        "{count} requests served in {span} of simulated time, {steps} steps",
        "模拟时间 {span} 内完成 {count} 个请求，共 {steps} 步",
    ),
    "simulate.interrupted": (
        "Interrupted: these are the figures of the {count} requests that had ended; {left} more "
        "had come.",
        "已中断：以下是已结束的 {count} 个请求的数据；另有 {left} 个已到达。",
    ),
    "simulate.falls_behind": (
        "The deployment cannot keep up: requests come faster than they are served, and the queue "
        "grows to the end. Latencies below depend on how long the workload lasts.",
        "该部署跟不上：请求到达快于处理，队列一直增长到最后。下列延迟取决于负载持续多久。",
    ),
    "simulate.own_step_times": (
        "Steps take as long as the given table says; how wrong it may be is not known here.",
        "每一步的时间取自给定的表；其误差在此未知。",
    ),
    "simulate.keeps_up": (
        "The deployment keeps up; the longest wait for room was {longest}.",
        "该部署跟得上；等待空间最长 {longest}。",
    ),
    "simulate.overloaded": (
        "The deployment was overloaded for a time and caught up again: up to {most} requests "
        "waited, the longest {longest}.",
        "该部署曾一度过载，随后追上：最多 {most} 个请求等待，最长 {longest}。",
    ),
    "simulate.latency": ("Latency", "延迟"),
    "simulate.mean": ("mean", "均值"),
    "simulate.longest": ("longest", "最长"),
    "simulate.ttft": ("TTFT", "TTFT"),
    "simulate.tpot": ("TPOT", "TPOT"),
    "simulate.itl": ("ITL", "ITL"),
    "simulate.e2e": ("end to end", "端到端"),
    "simulate.queue": ("until scheduled", "等待调度"),
    "simulate.throughput": (
        "Throughput: {requests} requests/s, {output} output tokens/s, {total} tokens/s in all",
        "吞吐：每秒 {requests} 个请求，{output} 个输出 token，合计 {total} 个 token",
    ),
    "simulate.goodput": (
        "Goodput: {rate} requests/s; {share} of all requests keep {limits}",
        "有效吞吐：每秒 {rate} 个请求；{share} 的请求满足 {limits}",
    ),
    "simulate.goodput_missed": (
        "That is less than the {wanted} asked for.",
        "低于要求的 {wanted}。",
    ),
    "simulate.running": (
        "Running: {mean} requests on average, {most} at most; waiting: {waiting_mean} on average, "
        "{waiting_most} at most",
        "运行中：平均 {mean} 个请求，最多 {most}；等待：平均 {waiting_mean}，最多 {waiting_most}",
    ),
    "simulate.busy": (
        "Steps ran in {share} of the time.",
        "有步骤运行的时间占 {share}。",
    ),
    "simulate.pool": (
        "KV pool: {mean} held on average, {most} at most, of {tokens} tokens; {preemptions} "
        "preemptions",
        "KV 池：平均占用 {mean}，最多 {most}（共 {tokens} 个 token）；抢占 {preemptions} 次",
    ),
    "simulate.over_time": (
        "KV pool over time, {width} a column; the full height is the whole pool",
        "KV 池随时间变化，每列 {width}；满高为整个池",
    ),
    "simulate.hits": (
        "Prefix cache: {share} of the prompts' tokens were there",
        "前缀缓存：提示中 {share} 的 token 命中",
    ),
    "simulate.hours": ("GPU time: {hours} GPU-hours", "GPU 时间：{hours} GPU 小时"),
    "simulate.cost": (
        "GPU time: {hours} GPU-hours, {cost} USD; {each} USD for a million output tokens",
        "GPU 时间：{hours} GPU 小时，{cost} 美元；每百万输出 token {each} 美元",
    ),
    "simulate.refused": (
        "Refused, {count} requests: {reasons}",
        "拒绝 {count} 个请求：{reasons}",
    ),
    "simulate.refused.too_long": (
        "{count} whose prompt leaves no room for an answer within max_model_len {length}",
        "{count} 个的提示在 max_model_len {length} 内没有回答的余地",
    ),
    "simulate.refused.beyond_step": (
        "{count} whose prompt is longer than a step may be, as prompts are not divided",
        "{count} 个的提示超过一步的上限，而提示不分块",
    ),
    "simulate.refused.context_full": (
        "{count} that ended with an error, as the {tokens} cells that all slots share had run out",
        "{count} 个因所有槽共享的 {tokens} 个单元用尽而出错结束",
    ),
    "simulate.refused.beyond_pool": (
        "{count} that the KV pool of {tokens} tokens would never hold, so that they would wait for "
        "ever",
        "{count} 个超出 {tokens} 个 token 的 KV 池，会永远等待",
    ),
    "simulate.first_refused": (
        "request {number} of {input} input tokens is refused: {reason}; others like it are counted",
        "请求 {number}（输入 {input} 个 token）被拒绝：{reason}；同类请求只计数",
    ),
    "simulate.reason.too_long": (
        "no room for an answer within max_model_len {length}",
        "在 max_model_len {length} 内没有回答的余地",
    ),
    "simulate.reason.beyond_step": (
        "it is longer than a step may be, and prompts are not divided",
        "超过一步的上限，而提示不分块",
    ),
    "simulate.reason.context_full": (
        "the {tokens} cells that all slots share have run out, which ends all in them with an "
        "error",
        "所有槽共享的 {tokens} 个单元已用尽，所有请求出错结束",
    ),
    "simulate.reason.beyond_pool": (
        "the KV pool of {tokens} tokens never holds it",
        "{tokens} 个 token 的 KV 池永远放不下",
    ),
    "simulate.progress": (
        "{count} requests ended, {span} simulated, {rate} requests/s",
        "已结束 {count} 个请求，模拟 {span}，每秒 {rate} 个请求",
    ),
    "simulate.plot.requests": ("Requests", "请求数"),
    "simulate.plot.running": ("running", "运行中"),
    "simulate.plot.waiting": ("waiting", "等待"),
    "simulate.plot.share": ("Share at or below", "累计占比"),
    "simulate.plot.latency": ("Latency (logarithmic)", "延迟（对数坐标）"),
    "simulate.plot.latency_limits": (
        "Latency (logarithmic); dashed: the promises",
        "延迟（对数坐标）；虚线为目标",
    ),
    "simulate.plot.held": ("(dark: held)", "（深色：已占用）"),
    "simulate.plot.hours": ("Time (hours)", "时间（小时）"),
    "simulate.plot.minutes": ("Time (minutes)", "时间（分钟）"),
    "simulate.plot.seconds": ("Time (seconds)", "时间（秒）"),
    "simulate.gantt.y": ("Requests, by arrival", "请求（按到达顺序）"),
    "simulate.gantt.waiting": ("waiting", "等待"),
    "simulate.gantt.prompt": ("prompt", "预填充"),
    "simulate.gantt.answer": ("answer", "生成"),
    "simulate.gantt.preempted": ("preempted", "被抢占"),
    "simulate.plot.empty": (
        "nothing was served, so no picture of it is drawn",
        "没有请求被处理，未绘制图表",
    ),
    "simulate.gantt.empty": (
        "no request that was served is there in the window of the Gantt picture, so none is drawn",
        "甘特图窗口内没有被处理的请求，未绘制",
    ),
    "simulate.gantt.part": (
        "The first {drawn} of the {present} requests that were there, by arrival",
        "在场的 {present} 个请求中最先到达的 {drawn} 个",
    ),
    "simulate.requests_written": ("Requests written to {file}", "请求记录已写入 {file}"),
    "simulate.timeline_written": (
        "Timeline written to {file}; open it at ui.perfetto.dev or chrome://tracing",
        "时间线已写入 {file}；可在 ui.perfetto.dev 或 chrome://tracing 打开",
    ),
}
