"""Sentences and labels of the ``workload`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WORKLOAD_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "workload.trace": ("{name}: {title}", "{name}：{title}"),
    "workload.drawn": ("Drawn: {text}", "生成：{text}"),
    "workload.requests": ("{count} requests over {span}", "{count} 个请求，历时 {span}"),
    "workload.requests_once": ("{count} requests, all at once", "{count} 个请求，同时到达"),
    "workload.requests_closed": (
        "{count} requests; when they come depends on how fast answers are",
        "{count} 个请求；到达时间取决于响应速度",
    ),
    "workload.sessions": (
        "{sessions} sessions, {turns} requests each on average",
        "{sessions} 个会话，平均每个 {turns} 个请求",
    ),
    "workload.lengths": ("Tokens", "token 数"),
    "workload.input": ("input", "输入"),
    "workload.output": ("output", "输出"),
    "workload.column.mean": ("mean", "均值"),
    "workload.column.smallest": ("shortest", "最短"),
    "workload.column.largest": ("longest", "最长"),
    "workload.longest": (
        "The longest request (number {number}) has {tokens} tokens, input and output together.",
        "最长的请求（编号 {number}）输入与输出共 {tokens} 个 token。",
    ),
    "workload.rate": (
        "Rate: {rate} requests/s on average, {peak} in the fullest minute ({factor} times)",
        "速率：平均每秒 {rate} 个请求，最忙的一分钟为 {peak}（{factor} 倍）",
    ),
    "workload.rate_alone": (
        "Rate: {rate} requests/s on average",
        "速率：平均每秒 {rate} 个请求",
    ),
    "workload.gaps": (
        "Burstiness: gaps between requests have a coefficient of variation of {cv} (a Poisson "
        "process: 1)",
        "突发性：请求间隔的变异系数 {cv}（泊松过程为 1）",
    ),
    "workload.burstiness": (
        "Burstiness: gaps between requests have a coefficient of variation of {cv}, counts by "
        "minute a Fano factor of {fano} (a Poisson process: 1 and 1)",
        "突发性：请求间隔的变异系数 {cv}，每分钟计数的 Fano 因子 {fano}（泊松过程均为 1）",
    ),
    "workload.same_time": (
        "{share} of the requests come at the same time as the one before, so the gaps tell of the "
        "clock, too.",
        "{share} 的请求与前一个时间相同，间隔也受时钟精度影响。",
    ),
    "workload.over_time": ("Rate over time, {width} a column", "速率随时间变化，每列 {width}"),
    "workload.sharing": (
        "Prefix cache without limit: {ratio} of the input's tokens are in full blocks of {block} "
        "tokens that came before",
        "前缀缓存（无限容量）：输入中 {ratio} 的 token 位于此前出现过的完整块中"
        "（每块 {block} 个 token）",
    ),
    "workload.ids": (
        "By the trace's own blocks of {block} tokens, partly filled ones among them: {ratio}",
        "按该记录自身的块（每块 {block} 个 token，含未满的块）计：{ratio}",
    ),
    "workload.long_prompts": (
        "Refused by every engine, since the input leaves no room for an answer within "
        "max_model_len {length}: {count} requests",
        "{count} 个请求的输入在 max_model_len {length} 内没有回答的余地：任何引擎都会拒绝",
    ),
    "workload.long_answers": (
        "Beyond max_model_len {length} with the answer, which vLLM cuts there and SGLang refuses: "
        "{count} requests",
        "{count} 个请求连同回答超过 max_model_len {length}：vLLM 在此截断回答，SGLang 拒绝请求",
    ),
    "workload.all_fit": (
        "All requests fit within max_model_len {length}.",
        "所有请求都在 max_model_len {length} 之内。",
    ),
    "workload.moved": (
        "Put in order, since they stood after a later one: {count} rows",
        "{count} 行次序颠倒，已重新排序",
    ),
    "workload.left_out": (
        "Left out, {count} rows: {reasons}",
        "{count} 行未计入：{reasons}",
    ),
    "workload.reason": (
        "{reason} {count} (first: line {line})",
        "{reason} {count}（首见第 {line} 行）",
    ),
    "workload.reason.text": ("no row at all", "不是有效的行"),
    "workload.reason.missing": ("a field missing", "缺少字段"),
    "workload.reason.number": ("no whole number", "不是整数"),
    "workload.reason.length": ("an impossible length", "长度不可能"),
    "workload.reason.no_output": ("no output (failed)", "没有输出（失败）"),
    "workload.reason.time": ("no usable time", "时间无效"),
    "workload.reason.order": ("far out of order", "次序相差太远"),
    "workload.reason.blocks": ("wrong block ids", "块编号不符"),
    "workload.reason.cut": ("the file is cut", "文件被截断"),
    "workload.preset": ("preset", "预设"),
    "workload.source": ("Sources: {source}", "来源：{source}"),
    "workload.presets": (
        "A preset's own parts may be replaced, as in {example}",
        "预设的各部分可以替换，例如 {example}",
    ),
}
