"""Sentences and labels of the ``validate`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VALIDATION_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "validate.summary": (
        "Rows: {rows}; figures compared: {figures}; rows not predicted: {unpredicted}; "
        "left out: {left_out}",
        "行数：{rows}；比较的数字：{figures}；无法预测的行：{unpredicted}；未计入的行：{left_out}",
    ),
    "validate.interrupted": (
        "Stopped before the end: what follows is what was done.",
        "提前中止：以下为已完成的部分。",
    ),
    "validate.rows": (
        "Predicted against observed",
        "预测与实测",
    ),
    "validate.row": (
        "{id} ({engine} {version}, {kind}, grade {grade})",
        "{id}（{engine} {version}，{kind}，等级 {grade}）",
    ),
    "validate.quantities": (
        "Error by quantity, grades A and B (percent of the observed)",
        "按数量的误差，等级 A 与 B（占实测的百分比）",
    ),
    "validate.versions": (
        "Error by version, grades A and B",
        "按版本的误差，等级 A 与 B",
    ),
    "validate.classes": (
        "Error by kind of model, grades A and B",
        "按模型类别的误差，等级 A 与 B",
    ),
    "validate.apart": (
        "Tried but not counted: grade C",
        "已尝试但不计入：等级 C",
    ),
    "validate.outcomes": (
        "Starts and failures: {agree} of {count} foreseen",
        "启动与失败：预测正确 {agree}/{count}",
    ),
    "validate.outcome": (
        "{id}: observed {observed}, predicted {verdict}",
        "{id}：实测 {observed}，预测 {verdict}",
    ),
    "validate.outcome_cause": ("({cause})", "（{cause}）"),
    "validate.explained": ("cause: {cause}", "原因：{cause}"),
    "validate.unpredicted": ("Not predicted", "无法预测"),
    "validate.partly": ("Predicted in part", "部分预测"),
    "validate.left_out": ("Left out", "未计入"),
    "validate.speed_count": (
        "; speeds compared: {speeds}",
        "；比较的速度：{speeds}",
    ),
    "validate.speed_rows": ("Measured speeds", "实测速度"),
    "validate.speed_farthest": (
        "Measured speeds: the {count} farthest of {total} (--markdown and --json have all)",
        "实测速度：{total} 个中误差最大的 {count} 个（--markdown 与 --json 含全部）",
    ),
    "validate.speed_quantities": (
        "Error of speeds (percent of the observed)",
        "速度的误差（占实测的百分比）",
    ),
    "validate.speed_engines": ("Error of speeds by engine", "按引擎的速度误差"),
    "validate.speed_gpus": ("Error of speeds by GPU", "按 GPU 的速度误差"),
    "validate.speed_kinds": ("Error of speeds by kind of model", "按模型类别的速度误差"),
    "validate.speed_fitted": (
        "Not counted: measurements that coefficients were set on",
        "不计入：用于拟合系数的实测",
    ),
    "validate.speed_order": (
        "Order of deployments by output per GPU (Kendall's tau)",
        "按每 GPU 输出对部署排序（Kendall's tau）",
    ),
    "validate.speed_all": ("all", "全部"),
    "validate.speed_max": ("max load", "最大负载"),
    "validate.reasons": ("{reason} ({count}): {ids}", "{reason}（{count}）：{ids}"),
    "validate.and_more": ("{ids}, and {count} more", "{ids} 等，另有 {count} 个"),
    "validate.remarks": ("Remarks", "说明"),
    "validate.odd": ("Values that mean nothing here", "无法理解的值"),
    "validate.odd_count": (
        "; values that mean nothing: {count}",
        "；无法理解的值：{count}",
    ),
    "validate.bad_count": (
        "; rows that cannot be read: {count}",
        "；无法读取的行：{count}",
    ),
    "validate.more": ("and {count} more", "另有 {count} 处"),
    "validate.bad": ("Rows that cannot be read", "无法读取的行"),
    "validate.remark.facts": (
        "Beyond the row: {facts} ({source}).",
        "该行之外的信息：{facts}（{source}）。",
    ),
    "validate.remark.taken": (
        "Taken from the log or the flags, as the command does not give them: {settings}.",
        "命令未给出、取自日志或 flags 的设置：{settings}。",
    ),
    "validate.remark.overruled": (
        "The command says {name} {command}, the log {log}; the command's is used.",
        "命令给出 {name} {command}，日志为 {log}；以命令为准。",
    ),
    "validate.remark.differs": (
        "The log is of another {what} than was given: {log}, not {given}; predicted is the latter.",
        "日志的{what}与所给的不同：日志为 {log}，所给为 {given}；按后者预测。",
    ),
    "validate.remark.held": (
        "Others held {held} of each GPU, as the figures it prints say; that is taken off.",
        "由该行打印的数值可知，每张 GPU 有 {held} 被其他进程占用；已扣除。",
    ),
    "validate.remark.ended": (
        "The log ends with an error: {error}",
        "日志以错误结束：{error}",
    ),
    "validate.remark.foreseen": (
        "The failure is foreseen: {said}",
        "该失败已被预测到：{said}",
    ),
    "validate.remark.refused": (
        "The failure is foreseen, as the settings are refused here too: {said}",
        "该失败已被预测到，此处同样拒绝这些设置：{said}",
    ),
    "validate.remark.other_cause": (
        "A failure is foreseen, but for want of memory ({said}).",
        "预测到失败，但原因是显存不足（{said}）。",
    ),
    "validate.remark.not_foreseen": (
        "The failure is not foreseen: by settings and memory alone it would start ({said}).",
        "该失败未被预测到：仅就设置与显存而言可以启动（{said}）。",
    ),
    "validate.remark.gpu": (
        "The GPU is concluded from its memory, which several have ({names}); {gpu} is taken. "
        "--gpu NAME makes the figures count (grade A or B instead of C).",
        "GPU 由其显存推断，多种 GPU 显存相同（{names}）；此处取 {gpu}。"
        "用 --gpu NAME 指明后数字才计入（等级由 C 升为 A 或 B）。",
    ),
    "validate.reason": ("{id}: {reason}", "{id}：{reason}"),
    "validate.column.engine": ("engine", "引擎"),
    "validate.column.version": ("version", "版本"),
    "validate.column.kind": ("kind", "类别"),
    "validate.column.quantity": ("quantity", "数量"),
    "validate.column.predicted": ("predicted", "预测"),
    "validate.column.observed": ("observed", "实测"),
    "validate.column.error": ("error", "误差"),
    "validate.column.n": ("n", "个数"),
    "validate.column.median": ("median", "中位"),
    "validate.column.p90": ("p90", "p90"),
    "validate.column.worst": ("worst", "最差"),
    "validate.column.bias": ("bias", "偏差"),
    "validate.column.gpu": ("GPU", "GPU"),
    "validate.column.ratio": ("predicted/observed", "预测/实测"),
    "validate.column.inside": ("in range", "在范围内"),
    "validate.column.pairs": ("pairs", "对数"),
    "validate.column.tau": ("tau", "tau"),
    "validate.column.what": ("what", "部署"),
    "validate.column.load": ("load", "负载"),
    "validate.column.range": ("range", "范围"),
    "validate.column.error_pct": ("error %", "误差 %"),
    "validate.column.row": ("row", "行"),
    "validate.column.cause": ("cause", "原因"),
    "validate.kind.hybrid": ("linear or SSM hybrid", "线性注意力或 SSM 混合"),
    "validate.kind.latent_attention": ("latent attention (MLA)", "潜在注意力（MLA）"),
    "validate.kind.sliding_window": ("sliding window", "滑动窗口"),
    "validate.kind.multimodal": ("multimodal", "多模态"),
    "validate.kind.moe": ("mixture of experts", "混合专家"),
    "validate.kind.dense": ("dense", "稠密"),
    "validate.plot.title": ("Predicted against observed", "预测与实测"),
    "validate.plot.sizes": ("Sizes (GiB)", "大小（GiB）"),
    "validate.plot.tokens": ("Tokens of the KV pool", "KV 池的 token 数"),
    "validate.plot.times": ("TTFT, TPOT (ms)", "TTFT、TPOT（毫秒）"),
    "validate.plot.rates": ("Tokens a second", "每秒 token 数"),
    "validate.plot.observed": ("observed", "实测"),
    "validate.plot.predicted": ("predicted", "预测"),
    "validate.markdown.title": ("Predicted against observed", "预测与实测"),
    "validate.no_figures": (
        "No figure could be compared.",
        "没有可比较的数字。",
    ),
}
