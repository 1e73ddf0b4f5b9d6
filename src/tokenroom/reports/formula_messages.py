"""Formulas of the ledger in Chinese; symbols and settings keep the names that engines give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tokenroom.reports.messages import Language

_PHASE: Final = re.compile(r"(.*) \(([a-z ]+)\)")
_PHASES: Final[Mapping[str, str]] = {
    "attention backend": "注意力后端",
    "capture": "捕获",
    "compilation": "编译",
    "encoder": "编码器",
    "estimate": "估计",
    "first pass": "首次前向",
    "layers": "各层",
    "not charged by this version": "此版本不计入",
    "prefill": "预填充",
    "profile run": "profile 运行",
    "sampler": "采样器",
}
_FORMULAS: Final[Mapping[str, str]] = {
    # English: Chinese
    "(slots + padding) x state of a request, and what drafting keeps": (
        "(槽位 + 填充) x 单个请求的状态，以及草稿模型所保留的部分"
    ),
    "CUDA context and communicators": "CUDA 上下文与通信器",
    "CUDA context and communicators set up before the first snapshot": (
        "首次快照之前建立的 CUDA 上下文与通信器"
    ),
    "CUDA context and communicators, and what other processes hold": (
        "CUDA 上下文与通信器，以及其他进程占用的部分"
    ),
    "CUDA context and other processes": "CUDA 上下文与其他进程",
    "CUDA context, and what other processes hold": "CUDA 上下文，以及其他进程占用的部分",
    "CUDA context, communicators and other processes": "CUDA 上下文、通信器与其他进程",
    "CUDA context, where the version did not count it": "CUDA 上下文（该版本未计入时）",
    "blocks of one request of max_model_len x block": "一个 max_model_len 请求的块数 x 每块大小",
    "blocks x tokens_per_block x bytes a token of each window, + slots x state": (
        "各窗口的 块数 x tokens_per_block x 每 token 字节数，再加 槽位 x 状态"
    ),
    "driver memory outside PyTorch's allocator": "PyTorch 分配器之外的驱动显存",
    "engine's estimate: first capture + (graphs - 1) x second capture, per mode": (
        "引擎的估计：每种模式为 首次捕获 + (图数 - 1) x 第二次捕获"
    ),
    "graphs captured after the pools": "池建立之后捕获的图",
    "in use beyond llama.cpp's own buffers": "llama.cpp 自身缓冲区之外的占用",
    "kernels and segments that loading leaves beside the weights": (
        "加载后留在权重之外的内核与显存段"
    ),
    "kernels and workspaces after the pools": "池建立之后的内核与工作区",
    "kernels in driver memory": "驱动显存中的内核",
    "largest over the groups of (sum of the pages of its layers)": (
        "各组中（组内各层页大小之和）的最大值"
    ),
    "max_total_num_tokens x bytes a token; tokens = token_budget // bytes a token, in whole "
    "pages, at most max_total_tokens, the fewest of all stages": (
        "max_total_num_tokens x 每 token 字节数；token 数 = token_budget // 每 token 字节数，"
        "取整页，不超过 max_total_tokens，取各阶段最小值"
    ),
    "modules that device_map puts on this GPU, as stored": (
        "device_map 放在此 GPU 上的模块，按存储格式"
    ),
    "n_vocab x n_seq_max x 4; grows with the outputs of a batch": (
        "n_vocab x n_seq_max x 4；随一批的输出数增长"
    ),
    "num_blocks x block, num_blocks = least over the stages of floor(available / block)": (
        "num_blocks x 每块大小，num_blocks = 各阶段 floor(可用 / 每块大小) 的最小值"
    ),
    "peak of the tensors alive at once in the graph of one micro-batch": (
        "一个微批的计算图中同时存活张量的峰值"
    ),
    "pool - reserved while a request waits": "有请求等待时：池 - 已预留",
    "pool of the largest graph + driver nodes": "最大的图的池 + 驱动节点",
    "pools x (max_batch_size + graphs' batches) x 2 x blocks of the longest x 4": (
        "池数 x (max_batch_size + 各图批大小) x 2 x 最长请求的块数 x 4"
    ),
    "reserved - used": "已预留 - 已使用",
    "running requests x entries of the longest x 4 bytes": "运行请求数 x 最长请求的条目数 x 4 字节",
    "streams x cells x (row(type_k, K width) + row(type_v, V width)), summed over its "
    "layers; states in float32": (
        "对各层求和：流数 x 单元数 x (row(type_k, K 宽度) + row(type_v, V 宽度))；状态为 float32"
    ),
    "sum of the parts the rank holds": "该 rank 持有的各部分之和",
    "sum of the parts the rank holds, as stored": "该 rank 持有的各部分之和，按存储格式",
    "sum of the tensors placed there, each aligned": "放在该处的各张量之和，逐个对齐",
    "sum over layers of ceil(KV heads / ranks) x cell, or of the latent": (
        "对各层求和：ceil(KV 头数 / rank 数) x 单元，或潜向量"
    ),
    "sum over the layers of batch x kept tokens x heads x (key + value width) x bytes": (
        "对各层求和：批大小 x 保留的 token x 头数 x (键 + 值宽度) x 字节数"
    ),
    "sum over the running requests of bytes(ceil(length / block_size) x block_size)": (
        "对运行中的请求求和：bytes(ceil(长度 / block_size) x block_size)"
    ),
    "sum over the running requests of bytes(length)": "对运行中的请求求和：bytes(长度)",
    "sum over the running requests of bytes(max_model_len)": (
        "对运行中的请求求和：bytes(max_model_len)"
    ),
    "tables and staging buffers of the runner": "执行器的表与暂存缓冲区",
    "total memory": "总显存",
    "total memory that torch.cuda.mem_get_info reports": "torch.cuda.mem_get_info 报告的总显存",
    "up to --cache-ram and --ctx-checkpoints": "至多为 --cache-ram 与 --ctx-checkpoints",
    "what capturing takes": "捕获所需",
    "what lives at once in the profile run": "profile 运行中同时存活的张量",
    "what lives at once in the widest pass": "最宽一次前向中同时存活的张量",
    "what nobody takes; negative when the largest prefill finds no room": (
        "无人占用的部分；最大预填充放不下时为负"
    ),
    "widest layer of a prefill step": "预填充步中最宽的一层",
    "widest moment of the largest prefill": "最大预填充中占用最高的时刻",
}


def formula_text(formula: str, language: Language) -> str:
    """A formula in the reader's language; one of symbols alone is the same in both."""
    if language is Language.ENGLISH or not formula:
        return formula
    if formula in _FORMULAS:
        return _FORMULAS[formula]
    phased = _PHASE.fullmatch(formula)
    if phased is None:
        return formula
    phase = _PHASES.get(phased[2], phased[2])
    return f"{_FORMULAS.get(phased[1], phased[1])}（{phase}）"
