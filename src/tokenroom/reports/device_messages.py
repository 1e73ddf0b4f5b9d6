"""Sentences of ``fit`` for engines that place parts on devices by name, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DEVICE_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "device.gpu": ("Memory of {device}", "{device} 的显存"),
    "device.host": ("Host memory ({device})", "主机内存（{device}）"),
    "device.model": ("model buffer", "模型缓冲区（model buffer）"),
    "device.kv": ("KV buffer", "KV 缓冲区（KV buffer）"),
    "device.compute": ("compute buffer", "计算缓冲区（compute buffer）"),
    "device.generation": ("of it in a decode step", "其中解码一步所需"),
    "device.output": ("output buffer", "输出缓冲区（output buffer）"),
    "device.driver": ("driver, libraries, others", "驱动、库及其他进程"),
    "notice.draft_left_out": (
        "the draft model {model} is not counted: it takes {weights_bytes} of weights, and a KV "
        "cache and a compute buffer of its own",
        "未计入草稿模型 {model}：其权重为 {weights_bytes}，另有自己的 KV 缓存与计算缓冲区",
    ),
    "device.longest": (
        "The longest n_ctx of a slot that fits: {longest} tokens",
        "放得下的每槽最大 n_ctx：{longest} 个 token",
    ),
    "device.longest_none": (
        "No n_ctx fits with these settings",
        "按当前设置，任何 n_ctx 都放不下",
    ),
    "device.saved": ("saved prompts, with use", "保存的提示（随使用增加）"),
    "device.total_gpu": ("GPU memory", "显存总量"),
    "device.total_host": ("host memory", "主机内存总量"),
    "device.needed": ("host memory needed", "所需主机内存"),
    "device.cells": (
        "n_ctx {cells} cells; slots: {slots}; n_ctx of a slot {length}",
        "n_ctx {cells} 个单元，{slots} 个槽，每槽 n_ctx {length}",
    ),
    "device.group": (
        "  layers of {kind}: {layers}, {page} a cell and layer",
        "  {kind}：{layers} 层，每单元每层 {page}",
    ),
    "device.state": (
        "  layers of {kind}: {layers}, {page} a sequence and layer",
        "  {kind}：{layers} 层，每序列每层 {page}",
    ),
    "fit.phase.compute_graph": ("graph of a micro-batch", "微批次的计算图"),
    "notice.placement_all_gpu": (
        "All {total} layers are on the GPU: all-GPU speed",
        "全部 {total} 层都在 GPU 上：纯 GPU 速度",
    ),
    "notice.placement_mostly_gpu": (
        "{layers} of {total} layers are on the GPU and {host_bytes} of weights in host memory: "
        "mostly GPU, each token reads {read_bytes} from RAM",
        "{total} 层中有 {layers} 层在 GPU 上，{host_bytes} 权重在主机内存："
        "以 GPU 为主，每个 token 从内存读取 {read_bytes}",
    ),
    "notice.placement_experts_on_cpu": (
        "All layers but {host_bytes} of their experts are on the GPU: experts on the CPU, each "
        "token reads {read_bytes} from RAM",
        "各层都在 GPU 上，其中 {host_bytes} 的专家在主机内存："
        "专家在 CPU 上，每个 token 从内存读取 {read_bytes}",
    ),
    "notice.placement_cpu_bound": (
        "{layers} of {total} layers are on the GPU and {host_bytes} of weights in host memory: "
        "bound by RAM bandwidth, each token reads {read_bytes} from RAM",
        "{total} 层中有 {layers} 层在 GPU 上，{host_bytes} 权重在主机内存："
        "受内存带宽限制，每个 token 从内存读取 {read_bytes}",
    ),
    "notice.placement_cpu_only": (
        "All weights ({host_bytes}) are in host memory: CPU speed, each token reads {read_bytes} "
        "from RAM",
        "全部权重（{host_bytes}）都在主机内存：CPU 速度，每个 token 从内存读取 {read_bytes}",
    ),
    "notice.host_memory_unknown": (
        "Whether the host has the {needed_bytes} of memory this takes is not known here: give its "
        "memory with --ram",
        "此处未知主机是否有所需的 {needed_bytes} 内存：请用 --ram 给出主机内存",
    ),
    "notice.context_fitted": (
        "--fit shortens the context from {asked} to {tokens} cells",
        "--fit 将上下文从 {asked} 缩短到 {tokens} 个单元",
    ),
    "notice.context_fitted_first": (
        "--fit shortens the context from {asked} to {tokens} cells before it moves layers: "
        "-c {asked_flag} keeps it, with less of the model on the GPU",
        "--fit 先将上下文从 {asked} 缩短到 {tokens} 个单元，再移动层："
        "-c {asked_flag} 可保留原长度，但 GPU 上的模型部分会减少",
    ),
    "notice.layers_fitted": (
        "--fit decides on {flags}",
        "--fit 决定为 {flags}",
    ),
    "notice.pipeline_given_up": (
        "the compute buffers do not fit with pipeline parallelism: llama.cpp retries without it",
        "流水线并行的计算缓冲区放不下：llama.cpp 会改为不用流水线并行",
    ),
    "notice.ollama_context_cut": (
        "Ollama cuts num_ctx {tokens} to the {trained} tokens the model was trained for",
        "Ollama 将 num_ctx {tokens} 缩短到模型训练长度 {trained}",
    ),
    "notice.beyond_trained_context": (
        "a context of {tokens} tokens a slot is beyond the {trained} the model was trained for",
        "每槽上下文 {tokens} 超过模型训练长度 {trained}",
    ),
    "notice.paged_from_disk": (
        "{mapped_bytes} of mapped weights do not stay in {host_bytes} of host memory: they are "
        "read from disk again and again",
        "映射的权重 {mapped_bytes} 无法全部留在 {host_bytes} 主机内存中：会反复从磁盘读取",
    ),
    "notice.libraries_short": (
        "{device} lacks {missing_bytes} for libraries and kernels, by the middle estimate: it may "
        "start and fail at the first prompt",
        "按中间估计，{device} 缺 {missing_bytes} 供库与内核使用：可能启动后在首个提示时失败",
    ),
    "notice.projector_not_counted": (
        "the projector {file} takes memory of its own, which is not counted",
        "投影文件 {file} 另占内存，未计入",
    ),
    "refusal.kv_buffer": (
        "The KV buffer of {buffer_bytes} does not fit on {device} beside the model: {needed_bytes} "
        "are needed and there are {available_bytes}.",
        "{device} 上放下模型后放不下 {buffer_bytes} 的 KV 缓冲区：需要 {needed_bytes}，"
        "可用 {available_bytes}。",
    ),
    "refusal.compute_buffer": (
        "The compute buffer of {buffer_bytes} does not fit on {device} beside model and KV cache: "
        "{needed_bytes} are needed and there are {available_bytes}.",
        "{device} 上放下模型和 KV 缓存后放不下 {buffer_bytes} 的计算缓冲区："
        "需要 {needed_bytes}，可用 {available_bytes}。",
    ),
    "refusal.host_memory": (
        "{needed_bytes} of host memory are needed and there are {available_bytes}.",
        "需要 {needed_bytes} 主机内存，可用 {available_bytes}。",
    ),
    "change.n_ctx": ("longer requests are refused or cut", "更长的请求会被拒绝或截断"),
    "change.slots": (
        "as many times the KV cache; each slot decodes more slowly",
        "KV 缓存成倍增加；每个槽解码变慢",
    ),
    "change.kv_quantised": (
        "a small loss of quality, check it on your task",
        "质量略有损失，请在自己的任务上验证",
    ),
    "change.flash_attn": ("none where there is a kernel for it", "有相应内核时没有代价"),
    "change.n_ubatch": (
        "prompts are read in smaller steps: a longer time to first token",
        "提示按更小的步处理：首 token 时间变长",
    ),
    "change.n_cpu_moe": (
        "these experts are read from RAM: slower with every layer",
        "这些专家从内存读取：层数越多越慢",
    ),
    "change.n_gpu_layers": (
        "layers that do not fit run on the CPU: far slower",
        "放不下的层在 CPU 上运行：慢得多",
    ),
    "change.more_gpus": (
        "more GPUs: layers are divided between them, one works at a time",
        "更多 GPU：各层分布其上，轮流工作",
    ),
}
