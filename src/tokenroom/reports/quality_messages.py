"""Sentences and labels of the ``quality`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUALITY_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "quality.title": (
        "{model} in {dtype} on {device}, text {text} ({tokens} tokens), seed {seed}; {versions}",
        "{model}，{dtype}，{device}，文本 {text}（{tokens} 个 token），种子 {seed}；{versions}",
    ),
    "quality.windows": (
        "Windows: {count}; lengths: {lengths}; {scored} tokens scored, each with every cache.",
        "{count} 个窗口，{lengths} 种长度，共评估 {scored} 个 token，每个窗口都用每种缓存评估。",
    ),
    "quality.interrupted": (
        "Ended early: {done} of {asked} windows were scored; the figures are of these.",
        "提前结束：{asked} 个窗口中完成 {done} 个，以下数字仅来自这些窗口。",
    ),
    "quality.identical": (
        "The full cache gives the same logits as the model without it, bit by bit.",
        "全精度缓存的 logits 与不用该缓存时逐位相同。",
    ),
    "quality.not_identical": (
        "The full cache's logits differ from those of the model without it in their last bits, so "
        "differences as small as that mean nothing.",
        "全精度缓存的 logits 与不用该缓存时在末位上有差异，如此小的差别没有意义。",
    ),
    "quality.states": (
        "States of recurrent layers stay in the model's type; only keys and values are quantised.",
        "循环层的状态保持模型类型；只量化键和值。",
    ),
    "quality.length": (
        "Windows of {context} tokens: full cache, perplexity {perplexity}, {size} a token "
        "({windows} windows)",
        "窗口 {context} 个 token：全精度缓存，困惑度 {perplexity}，每 token {size}"
        "（{windows} 个窗口）",
    ),
    "quality.column.scheme": ("cache", "缓存"),
    "quality.column.perplexity": ("perplexity", "困惑度"),
    "quality.column.change": ("change", "变化"),
    "quality.column.kl": ("KL, nats", "KL（nat）"),
    "quality.column.agreement": ("same top token", "首选 token 相同"),
    "quality.column.bytes": ("a token", "每 token"),
    "quality.column.saved": ("saved", "节省"),
    "quality.bars": (
        "In brackets and after ±: {share} intervals over windows, of paired differences to the "
        "full cache.",
        "括号内与 ± 之后：各窗口与全精度缓存配对差值的 {share} 区间。",
    ),
    "quality.scope": (
        "Measured is the next token of this text. Long-range retrieval, arithmetic, other "
        "languages and longer contexts may lose more.",
        "所测为该文本的下一个 token；长距离检索、算术、其他语言与更长上下文的损失可能更大。",
    ),
    "quality.verdict.keeps": (
        "{scheme} is the smallest of these whose perplexity rises by no more than {tolerance} on "
        "this text at every length measured: at most {highest} ({context} tokens, upper end of the "
        "{share} interval). It saves {saved} of the cache.",
        "在该文本的各测试长度上，困惑度上升不超过 {tolerance} 的最小缓存是 {scheme}：最多 {highest}"
        "（{context} 个 token，{share} 区间上端），节省缓存 {saved}。",
    ),
    "quality.verdict.none_keeps": (
        "None of these is shown to keep perplexity within {tolerance} of the full cache on this "
        "text: by the upper end of its interval each may exceed it, or it saves nothing.",
        "没有一种缓存能被证明在该文本上把困惑度保持在全精度缓存的 {tolerance} 以内：按区间上端"
        "都可能超出，或并不节省。",
    ),
    "quality.verdict.one_window": (
        "A single window says nothing of others: give longer text, a shorter --context or "
        "--stride.",
        "单个窗口不能说明其他窗口：请给出更长的文本，或更短的 --context、--stride。",
    ),
    "quality.verdict.random": (
        "The weights are random, so nothing here speaks of a trained model; what a cache takes is "
        "right all the same.",
        "权重是随机的，这里的损失不能说明训练好的模型；缓存占用的数字仍然正确。",
    ),
    "quality.written": ("Scores of every window are in {file}", "各窗口的评分已写入 {file}"),
    "quality.plot.title": (
        "What quantised KV caches cost {model}",
        "量化 KV 缓存对 {model} 的影响",
    ),
    "quality.plot.detail": (
        "perplexity on {text} against the full cache, with intervals over windows",
        "{text} 上的困惑度（相对全精度缓存），误差线为各窗口的区间",
    ),
    "quality.plot.x": (
        "Change of perplexity (linear up to 1%, logarithmic beyond)",
        "困惑度变化（1% 以内为线性，之外为对数）",
    ),
    "quality.plot.length": ("windows of {context} tokens", "窗口 {context} 个 token"),
}
