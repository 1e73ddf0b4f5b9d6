"""Sentences and labels that engines other than vLLM need, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ENGINE_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "occupancy.batch": (
        "Workload: the first {batch} requests are admitted at once; {mean_batch} run on average "
        "while others wait",
        "工作负载：开始时可同时容纳 {batch} 个请求；有请求等待时平均运行 {mean_batch} 个",
    ),
    "occupancy.all": (
        "Workload: all run at once ({batch} requests)",
        "工作负载：全部 {batch} 个请求同时运行",
    ),
    "occupancy.pool": (
        "Of the pool {used_bytes} hold tokens ({used_share} %), {internal_waste_bytes} are "
        "reserved in vain, {external_waste_bytes} are free but of no use to the request that waits",
        "池中 {used_bytes} 存放 token（{used_share} %），{internal_waste_bytes} 为预留而未用，"
        "{external_waste_bytes} 空闲但不足以容纳等待的请求",
    ),
    "occupancy.table": (
        "Block tables: {table} beside the pool",
        "块表：池外 {table}",
    ),
    "fit.holds_workload": (
        "requests of the workload at once: {requests}",
        "可同时容纳的请求数：{requests}",
    ),
    "fit.holds_workload_less": (
        "of {asked} requests of the workload, {requests} run at once and {waiting} wait outside "
        "the GPU",
        "工作负载共 {asked} 个请求，可同时运行 {requests} 个，其余 {waiting} 个在 GPU 之外排队",
    ),
    "sweep.block_size": ("block size", "块大小"),
    "sweep.batch": ("at once", "同时容纳"),
    "sweep.used": ("used %", "利用率 %"),
    "sweep.internal": ("in vain", "预留未用"),
    "sweep.external": ("unreachable", "不可用"),
    "sweep.table": ("block tables", "块表"),
    "sweep.wasted": ("wasted", "浪费"),
    "notice.max_seq_len_reduced": (
        "the pool does not hold one request of max_seq_len {asked}: the engine shortens it to "
        "{longest} with a warning, and refuses longer requests",
        "KV 池容不下一个长度 max_seq_len {asked} 的请求：引擎会缩短为 {longest} 并给出警告，"
        "更长的请求会被拒绝",
    ),
    "notice.max_seq_len_lowered": (
        "max_seq_len {asked} is longer than the model supports: the engine lowers it to {longest} "
        "with a warning, and refuses longer requests",
        "max_seq_len {asked} 超过模型支持的长度：引擎会降为 {longest} 并给出警告，"
        "更长的请求会被拒绝",
    ),
    "notice.prompt_limited": (
        "prompts beyond max_num_tokens {max_num_tokens} are refused unless enable_chunked_prefill "
        "is on",
        "超过 max_num_tokens {max_num_tokens} 的提示词会被拒绝，除非开启 enable_chunked_prefill",
    ),
    "notice.page_cache_in_use": (
        "this memory is shared with the host, whose page cache counts as in use: the checkpoint "
        "that was just read takes its size from the pool unless the cache is dropped before the "
        "start",
        "该显存与主机共享，主机的页缓存会计为已占用：刚读取的检查点会从 KV 池中占去同样大小，"
        "除非在启动前清空页缓存",
    ),
    "notice.encoder_not_counted": (
        "the activations of the vision or audio encoder are not counted",
        "未计入视觉或音频编码器的激活",
    ),
    "notice.build_not_stated": (
        "how the engine was built is not stated (max_batch_size, max_num_tokens): its execution "
        "context and its buffers may be many times larger than by default; max_seq_len is "
        "shortened to what the pool then holds",
        "未说明引擎的构建参数（max_batch_size、max_num_tokens）：其执行上下文和缓冲区可能远大于"
        "默认值；max_seq_len 会被缩短到 KV 池届时能容纳的长度",
    ),
    "notice.build_may_not_start": (
        "how the engine was built is not stated (max_batch_size, max_input_len, max_output_len): "
        "its execution context may be many times larger than by default, and this version does "
        "not start when the pool then holds less than one request of max_seq_len "
        "(maxTokensInPagedKvCache must be large enough to process at least 1 sequence)",
        "未说明引擎的构建参数（max_batch_size、max_input_len、max_output_len）：其执行上下文可能"
        "远大于默认值；若 KV 池因此容不下一个长度 max_seq_len 的请求，该版本将无法启动"
        "（maxTokensInPagedKvCache must be large enough to process at least 1 sequence）",
    ),
    "notice.second_manager": (
        "the second cache manager moves memory between its pools at run time; pools are shown as "
        "the first manager would cut them",
        "第二代缓存管理器在运行时会在各池之间移动显存；此处按第一代管理器的划分显示",
    ),
    "notice.weights_offloaded": (
        "{weights_bytes} of weights stay outside the GPUs and cross PCIe in every pass: far slower",
        "{weights_bytes} 权重留在 GPU 之外，每次前向都要经过 PCIe：慢得多",
    ),
    "notice.eager_attention": (
        "eager attention keeps the score matrix: memory grows with the square of the length",
        "eager 注意力会保留分数矩阵：显存随长度的平方增长",
    ),
    "notice.static_batch": (
        "one static batch: it ends when its longest sequence does, and nothing is kept free for "
        "requests to come",
        "静态批处理：整批在最长序列结束时才结束，不为后来的请求预留显存",
    ),
    "fit.phase.prefill": ("prefill of the whole batch", "整批预填充"),
    "fit.phase.decode": ("one step of the batch", "整批解码一步"),
    "refusal.pass_peak": (
        "One sequence peaks at {needed_bytes} a GPU and the card has {available_bytes}: out of "
        "memory in its {phase}.",
        "一个序列的峰值为每张 GPU {needed_bytes}，而显卡只有 {available_bytes}："
        "显存不足（{phase}）。",
    ),
    "fit.holds_batch": (
        "a batch of {asked} sequences of {length} tokens runs; the largest that fits: {requests}",
        "可运行 {asked} 个长度 {length} 的序列组成的批；能容纳的最大批：{requests}",
    ),
    "fit.line.kv_batch": ("KV cache of the batch", "该批的 KV 缓存"),
    "fit.no_pool": (
        "No pool: the cache grows with the batch, up to {requests} sequences of this length",
        "没有 KV 池：缓存随批增长，该长度下最多 {requests} 个序列",
    ),
    "change.attn_implementation": (
        "fused attention: nothing is lost",
        "融合注意力：没有代价",
    ),
    "change.num_gpus": (
        "more GPUs: they work one after the other",
        "更多 GPU：各卡依次工作",
    ),
    "notice.requests_never_fit": (
        "passed over as larger than the whole pool: {count} requests of the workload",
        "工作负载中有 {count} 个请求大于整个池，已略过",
    ),
}
