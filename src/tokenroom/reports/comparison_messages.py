"""Sentences and labels of the ``compare`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMPARISON_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "compare.title": (
        "{count} deployments on the same requests",
        "{count} 个部署处理相同的请求",
    ),
    "compare.seeds": (
        "Drawn {count} times, with the seeds {first} to {last}; each draw is served by all of them",
        "以种子 {first} 至 {last} 生成 {count} 次；每次均由所有部署处理",
    ),
    "compare.stretches": (
        "Cut into {count} stretches of equal time; each is served by all of them, for itself",
        "按时间等分为 {count} 段；每段均由所有部署单独处理",
    ),
    "compare.one_seed": ("Drawn once, with the seed {first}", "以种子 {first} 生成一次"),
    "compare.interrupted": (
        "Interrupted: figures are of the {done} of {count} rounds that all of them had served.",
        "已中断：数据来自所有部署均已完成的 {done} 轮（共 {count} 轮）。",
    ),
    "compare.nothing_done": (
        "Interrupted before all of them had served anything.",
        "在所有部署完成任何一次之前已中断。",
    ),
    "compare.does_not_start": ("{name} does not start: {reason}", "{name} 无法启动：{reason}"),
    "compare.none_starts": (
        "Fewer than two deployments start, so there is nothing to compare.",
        "能启动的部署不足两个，无从比较。",
    ),
    "compare.falls_behind": (
        "{name} cannot keep up in {runs} of {count} runs: its queue grows to the end, so its "
        "latencies depend on how long the workload lasts.",
        "{name} 在 {count} 次运行中有 {runs} 次跟不上：队列一直增长到最后，"
        "延迟取决于负载持续多久。",
    ),
    "compare.means.seed": ("Means over {count} draws", "{count} 次生成的均值"),
    "compare.means.stretch": ("Means over {count} stretches", "{count} 段的均值"),
    "compare.promised": (
        "{heading}; goodput is of requests that keep {limits}",
        "{heading}；有效请求为满足 {limits} 的请求",
    ),
    "compare.one_run": ("One run of each", "各运行一次"),
    "compare.differences.stretch": (
        "Differences to {base}; ± is half of a {confidence} confidence interval (Student's t, of "
        "{count} differences paired by stretch)",
        "与 {base} 的差异；± 为 {confidence} 置信区间的一半"
        "（按时间段配对的 {count} 个差值，学生 t 分布）",
    ),
    "compare.differences.seed": (
        "Differences to {base}; ± is half of a {confidence} confidence interval (Student's t, of "
        "{count} differences paired by seed)",
        "与 {base} 的差异；± 为 {confidence} 置信区间的一半"
        "（按种子配对的 {count} 个差值，学生 t 分布）",
    ),
    "compare.one_difference": (
        "Differences to {base}, without intervals: each served once, and one run says nothing of "
        "how much another would differ",
        "与 {base} 的差异，无置信区间：各只运行一次，无从得知其他运行会相差多少",
    ),
    "compare.not_significant": (
        "~ not significant: the interval holds 0",
        "~ 不显著：区间包含 0",
    ),
    "compare.points": ("pp: percentage points", "pp：百分点"),
    "compare.same": ("same", "相同"),
    "compare.figure": ("Figure", "指标"),
    "compare.plot.empty": (
        "fewer than two deployments have served anything, so no differences are drawn",
        "处理过请求的部署不足两个，未绘制差异图",
    ),
    "compare.written": ("Runs written to {file}", "各次运行已写入 {file}"),
    "compare.run_again": (
        "warning: the worker of {run} ended, killed or out of memory; it is run again",
        "警告：{run} 的工作进程被终止或内存不足；已重新运行",
    ),
    "compare.run_lost": (
        "warning: {run} is left out: its worker ended twice, killed or out of memory",
        "警告：{run} 被略去：其工作进程两次被终止或内存不足",
    ),
    "compare.ttft_mean_seconds": ("TTFT mean", "TTFT 均值"),
    "compare.ttft_p50_seconds": ("TTFT 50%", "TTFT 50%"),
    "compare.ttft_p90_seconds": ("TTFT 90%", "TTFT 90%"),
    "compare.ttft_p95_seconds": ("TTFT 95%", "TTFT 95%"),
    "compare.ttft_p99_seconds": ("TTFT 99%", "TTFT 99%"),
    "compare.tpot_mean_seconds": ("TPOT mean", "TPOT 均值"),
    "compare.tpot_p50_seconds": ("TPOT 50%", "TPOT 50%"),
    "compare.tpot_p90_seconds": ("TPOT 90%", "TPOT 90%"),
    "compare.tpot_p95_seconds": ("TPOT 95%", "TPOT 95%"),
    "compare.tpot_p99_seconds": ("TPOT 99%", "TPOT 99%"),
    "compare.itl_mean_seconds": ("ITL mean", "ITL 均值"),
    "compare.itl_p50_seconds": ("ITL 50%", "ITL 50%"),
    "compare.itl_p90_seconds": ("ITL 90%", "ITL 90%"),
    "compare.itl_p95_seconds": ("ITL 95%", "ITL 95%"),
    "compare.itl_p99_seconds": ("ITL 99%", "ITL 99%"),
    "compare.e2e_mean_seconds": ("end to end mean", "端到端均值"),
    "compare.e2e_p50_seconds": ("end to end 50%", "端到端 50%"),
    "compare.e2e_p90_seconds": ("end to end 90%", "端到端 90%"),
    "compare.e2e_p95_seconds": ("end to end 95%", "端到端 95%"),
    "compare.e2e_p99_seconds": ("end to end 99%", "端到端 99%"),
    "compare.queue_mean_seconds": ("until scheduled", "等待调度"),
    "compare.requests_per_second": ("requests/s", "每秒请求"),
    "compare.output_tokens_per_second": ("output tokens/s", "每秒输出 token"),
    "compare.goodput_per_second": ("goodput/s", "每秒有效请求"),
    "compare.goodput_share": ("goodput share", "有效请求占比"),
    "compare.refused": ("refused requests", "被拒绝的请求"),
    "compare.preemptions": ("preemptions", "抢占次数"),
    "compare.prefix_hit_rate": ("prefix hit rate", "前缀命中率"),
    "compare.kv_pool_usage_mean": ("KV pool held", "KV 池占用"),
    "compare.kv_pool_usage_max": ("KV pool at most", "KV 池最高"),
    "compare.running_mean": ("running", "运行中"),
    "compare.running_max": ("running at most", "最多运行"),
    "compare.waiting_mean": ("waiting", "等待中"),
    "compare.gpu_hours": ("GPU-hours", "GPU 小时"),
    "compare.usd": ("USD", "美元"),
    "compare.usd_per_million_output_tokens": ("USD a million out", "每百万输出美元"),
    "compare.plot.title": ("Differences to {base}", "与 {base} 的差异"),
    "compare.plot.axis": (
        "Difference in percent; bars: {confidence} confidence intervals, hollow: not significant",
        "差异（百分比）；线段：{confidence} 置信区间，空心：不显著",
    ),
    "compare.plot.axis_alone": (
        "Difference in percent, of one run each",
        "差异（百分比），各运行一次",
    ),
}
