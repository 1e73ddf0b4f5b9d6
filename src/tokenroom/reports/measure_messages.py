"""Sentences and labels of the ``measure`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MEASURE_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "measure.title": (
        "{model} ({class_name}) on {device}, {versions}",
        "{model}（{class_name}），{device}，{versions}",
    ),
    "measure.random": (
        "Weights were drawn at random: memory is that of the real ones, text is not.",
        "权重为随机值：占用与真实权重相同，输出文本没有意义。",
    ),
    "measure.shape": (
        "{batch} sequences, {prompt} tokens at once, {passes} passes, attention {attention}, "
        "cache {cache}",
        "{batch} 个序列，一次 {prompt} 个 token，{passes} 次前向计算，注意力 {attention}，"
        "缓存 {cache}",
    ),
    "measure.meter.tensors": (
        "Peaks were counted tensor by tensor, exact in bytes; what one operator allocates and "
        "frees within itself is not seen.",
        "峰值按张量逐个统计，精确到字节；单个算子内部分配又释放的部分看不到。",
    ),
    "measure.meter.allocator": (
        "Peaks are those of PyTorch's CUDA caching allocator: blocks, workspaces included.",
        "峰值取自 PyTorch 的 CUDA 缓存分配器：按块计，含工作区。",
    ),
    "measure.column.what": ("What", "项目"),
    "measure.column.measured": ("measured", "实测"),
    "measure.column.predicted": ("predicted", "预测"),
    "measure.column.range": ("range", "范围"),
    "measure.column.difference": ("difference", "差值"),
    "measure.row.weights": ("weights", "权重"),
    "measure.row.buffers": ("buffers", "模型缓冲（buffers）"),
    "measure.row.kv_cache": ("KV cache", "KV 缓存"),
    "measure.row.prefill": ("prefill peak", "预填充瞬时峰值"),
    "measure.row.decode": ("decode peak", "解码瞬时峰值"),
    "measure.row.prompt_in_windows": (
        "prompt beyond windows",
        "窗口之外的提示（保留到下一次计算）",
    ),
    "measure.row.held": ("held by the caller", "调用者持有的输入与结果"),
    "measure.row.sampling": ("sampling, between passes", "两次计算之间（采样）"),
    "measure.row.outside": ("outside PyTorch", "PyTorch 之外（上下文、内核）"),
    "measure.row.allocator_gap": ("reserved and in no tensor", "已保留但不在任何张量中"),
    "measure.exact": ("exact", "精确"),
    "measure.equal": ("equal", "相等"),
    "measure.peak": (
        "At the highest moment ({phase}) {total} were held with the weights.",
        "最高时刻（{phase}）连同权重共占用 {total}。",
    ),
    "measure.phase.prefill": ("prefill", "预填充"),
    "measure.phase.decode": ("decode", "解码"),
    "measure.allocator": (
        "{device}: PyTorch holds {allocated} in tensors and {reserved} reserved; the gap of {gap} "
        "is its caching allocator's. The driver has {used} of {total} in use.",
        "{device}：PyTorch 张量占用 {allocated}，保留 {reserved}；两者之差 {gap} 属于缓存分配器。"
        "驱动显示已用 {used} / {total}。",
    ),
    "measure.no_allocator": (
        "Allocated against reserved: not known here; {device} has no caching allocator with "
        "counters.",
        "已分配与已保留之差：此处未知；{device} 没有带计数器的缓存分配器。",
    ),
    "measure.kv_exceeds": (
        "The KV cache takes more than the weights: {kv} against {weights}.",
        "KV 缓存超过权重：{kv} 对 {weights}。",
    ),
    "measure.kv_share": (
        "The KV cache is {share} of weights and cache together, {token} a token of each sequence.",
        "KV 缓存占权重与缓存之和的 {share}，每个序列每个 token {token}。",
    ),
    "measure.layers": ("Layers of the cache", "缓存各层"),
    "measure.layer": (
        "{count} x {name} ({part}, {dtypes}, on {devices}): {allocated} each, of which tensors "
        "address {viewed} and tokens fill {filled}",
        "{count} x {name}（{part}，{dtypes}，位于 {devices}）：每层 {allocated}，其中张量引用 "
        "{viewed}，token 填充 {filled}",
    ),
    "measure.layer.state": (
        "{count} x {name} ({part}, {dtypes}, on {devices}): {allocated} of keys and values and "
        "{state} of states each",
        "{count} x {name}（{part}，{dtypes}，位于 {devices}）：每层键值 {allocated}，状态 {state}",
    ),
    "measure.part.self": ("own tokens", "自身 token"),
    "measure.part.cross": ("encoder's tokens", "编码器 token"),
    "measure.reasons": ("Why they differ", "差异原因"),
    "measure.hardware.title": ("Memory of {gpu}: {versions}", "{gpu} 的显存：{versions}"),
    "measure.hardware.context": (
        "{size}: CUDA context, before any kernel ran",
        "{size}：CUDA 上下文（未运行任何内核）",
    ),
    "measure.hardware.kernels": (
        "{size}: kernels and libraries that the passes loaded",
        "{size}：计算时加载的内核与库",
    ),
    "measure.hardware.workspace": (
        "{size}: cuBLAS's workspace, in PyTorch's allocator",
        "{size}：cuBLAS 工作区（在 PyTorch 分配器中）",
    ),
    "measure.hardware.communicator": (
        "{size}: NCCL's communicator of {ranks} ranks, on each",
        "{size}：{ranks} 个进程的 NCCL 通信器（每卡）",
    ),
    "measure.hardware.process": (
        "Used memory was told by NVML for this process alone.",
        "已用显存由 NVML 按本进程给出。",
    ),
    "measure.hardware.device": (
        "Only the used memory of the whole device is told here, so the first two figures hold what "
        "other processes use too; measure with nothing else on it.",
        "此处只能得知整个设备的已用显存，因此前两个数字包含其他进程；请在没有其他程序时测量。",
    ),
    "measure.hardware.passes": (
        "Prefill passes of layers of {model} ({dtype}, {attention})",
        "{model} 各层的预填充计算（{dtype}，{attention}）",
    ),
    "measure.hardware.column.tokens": ("tokens", "token 数"),
    "measure.hardware.column.measured": ("measured", "实测"),
    "measure.hardware.column.gap": ("allocator's gap", "分配器差额"),
    "measure.hardware.column.predicted": ("predicted", "预测"),
    "measure.hardware.column.ratio": ("taken / predicted", "占用 / 预测"),
    "measure.hardware.left_out": (
        "Passes of {tokens} tokens did not fit and were left out.",
        "{tokens} 个 token 的计算放不下，已略去。",
    ),
    "measure.hardware.written": (
        "Kept in {file}; tokenroom fit ... --profile {name} uses it.",
        "已保存到 {file}；用 tokenroom fit ... --profile {name} 使用。",
    ),
    "measure.not_predicted": ("Nothing is predicted: {reason}", "没有预测：{reason}"),
    "measure.reason.unexplained": (
        "{difference_bytes} that nothing seen explains",
        "{difference_bytes}，无法由所见解释",
    ),
    "measure.reason.weights_other_types": (
        "{size_bytes} of parameters are kept in another type ({types})",
        "{size_bytes} 的参数以其他类型保存（{types}）",
    ),
    "measure.reason.weights_one_type": (
        "all parameters were made in {type}; a checkpoint keeps some in a wider one, {size_bytes} "
        "more",
        "所有参数均以 {type} 创建；检查点会以更宽的类型保存其中一部分，多 {size_bytes}",
    ),
    "measure.reason.weights_tied": (
        "{size_bytes} are tied to another parameter and stored once",
        "{size_bytes} 与其他参数共享，只存一份",
    ),
    "measure.reason.cache_class": (
        "the formulas do not know the cache class {name}",
        "公式不包含缓存类 {name}",
    ),
    "measure.reason.cache_views": (
        "{size_bytes} lie in storages that tensors address only a part of",
        "{size_bytes} 位于张量只引用了一部分的存储中",
    ),
    "measure.reason.cache_not_full": (
        "{size_bytes} are laid out and hold no token yet",
        "{size_bytes} 已分配但尚未填入 token",
    ),
    "measure.reason.cache_type": (
        "the cache is kept in {types}, not in the type of the weights",
        "缓存以 {types} 保存，与权重类型不同",
    ),
    "measure.reason.cache_without_windows": (
        "{name} was made without the configuration, so sliding layers keep every token",
        "{name} 创建时未给出配置，滑动窗口层因此保留全部 token",
    ),
    "measure.reason.attention": (
        "passes with attention {name} are not modelled",
        "未对注意力 {name} 的前向计算建模",
    ),
    "measure.reason.pass_blocks": (
        "the allocator counts blocks of 512 bytes and more, and kernels' workspaces",
        "分配器按 512 字节以上的块计数，并包含内核工作区",
    ),
    "measure.reason.pass_estimated": (
        "layers of this kind are estimated, not counted; the measured figure is {within} the range",
        "此类层为估算而非逐项统计；实测值在范围{within}",
    ),
    "measure.inside": ("inside", "之内"),
    "measure.beyond": ("outside", "之外"),
    "measure.reason.pass_within": (
        "tensors of this architecture that are not counted one by one; inside the range",
        "该架构中未逐个统计的张量；在范围之内",
    ),
    "measure.reason.outside_others": (
        "the driver's figure counts other processes too",
        "驱动的数字也包含其他进程",
    ),
}
