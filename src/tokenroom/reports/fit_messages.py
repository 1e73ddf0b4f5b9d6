"""Sentences and labels of the ``fit`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FIT_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "fit.title": (
        "{model} on {count} x {gpu}, {engine} {version}",
        "{model}，{count} x {gpu}，{engine} {version}",
    ),
    "fit.model": (
        "{architecture}, {parameters} parameters ({active} active), {weights_bytes} in the "
        "checkpoint",
        "{architecture}，{parameters} 参数（激活 {active}），权重文件 {weights_bytes}",
    ),
    "fit.model_dense": (
        "{architecture}, {parameters} parameters, {weights_bytes} in the checkpoint",
        "{architecture}，{parameters} 参数，权重文件 {weights_bytes}",
    ),
    "fit.verdict.fits": ("FITS", "放得下"),
    "fit.verdict.fits_with_less": ("FITS WITH LESS", "可启动，但并发不足"),
    "fit.verdict.does_not_fit": ("DOES NOT FIT", "放不下"),
    "fit.holds": (
        "{tokens} tokens of KV cache; requests of {length} tokens at once: {requests}",
        "KV 缓存可容 {tokens} 个 token；可同时运行 {requests} 个长度为 {length} token 的请求",
    ),
    "fit.holds_none": (
        "the engine starts, but its pool of {tokens} tokens does not hold one request of {length}",
        "引擎能启动，但其 {tokens} 个 token 的池放不下一个长度为 {length} 的请求",
    ),
    "fit.refuses_longer": (
        "the engine starts, but takes requests of at most {longest} tokens and refuses one of "
        "{length}",
        "引擎能启动，但只接受至多 {longest} 个 token 的请求，长度为 {length} 的请求会被拒绝",
    ),
    "fit.holds_less": (
        "of {asked} requests of {length} tokens asked for, {requests} run at once and {waiting} "
        "wait in the queue",
        "要求 {asked} 个并发请求（每个 {length} token），"
        "只能同时运行 {requests} 个，其余 {waiting} 个排队",
    ),
    "fit.holds_asked": (
        "room for the {asked} requests of {length} tokens asked for; the pool of {tokens} tokens "
        "holds {requests}",
        "所要求的 {asked} 个并发请求（每个 {length} token）可同时运行；"
        "KV 池 {tokens} 个 token，可容 {requests} 个",
    ),
    "fit.limited_by_seqs": (
        "{name} {max_num_seqs} is the limit, the pool itself would hold {held}",
        "受 {name} {max_num_seqs} 限制；KV 池本身可容纳 {held} 个",
    ),
    "fit.borderline.may_start": (
        "The verdict lies within the range of the estimates: it may start, with up to about "
        "{tokens} tokens of KV cache",
        "该结论处于估计值的误差范围之内：也可能启动，KV 缓存至多约 {tokens} 个 token",
    ),
    "fit.borderline.may_not_start": (
        "The verdict lies within the range of the estimates: it may not start",
        "该结论处于估计值的误差范围之内：也可能无法启动",
    ),
    "fit.borderline.may_run_less": (
        "The verdict lies within the range of the estimates: it may run only about {requests} of "
        "the {asked} requests at once",
        "该结论处于估计值的误差范围之内：{asked} 个请求中可能只有约 {requests} 个能同时运行",
    ),
    "fit.borderline.may_run_all": (
        "The verdict lies within the range of the estimates: it may run all {asked} requests at "
        "once",
        "该结论处于估计值的误差范围之内：{asked} 个请求也可能全部同时运行",
    ),
    "fit.longest": (
        "The longest {name} that fits: {longest} tokens",
        "放得下的最大 {name}：{longest} 个 token",
    ),
    "fit.longest_at_best": (
        "The longest {name} that fits: {longest} tokens; within the range of the estimates up to "
        "about {most}",
        "放得下的最大 {name}：{longest} 个 token；在估计值的误差范围之内至多约 {most} 个",
    ),
    "fit.longest_none": (
        "No {name} starts with these settings",
        "按当前设置，任何 {name} 都无法启动",
    ),
    "fit.ledger": ("Memory of each GPU", "每张 GPU 的显存"),
    "fit.ledger_stage": (
        "Memory of each GPU of pipeline stage {stage}",
        "流水线第 {stage} 级每张 GPU 的显存",
    ),
    "fit.column.bytes": ("GiB", "GiB"),
    "fit.column.range": ("range", "范围"),
    "fit.exact": ("exact", "精确"),
    "fit.line.total": ("GPU memory (as PyTorch sees it)", "GPU 显存（PyTorch 所见）"),
    "fit.line.budget": ("budget of the engine", "引擎预算"),
    "fit.line.weights": ("weights", "权重"),
    "fit.line.activation": ("activation peak, {phase}", "激活峰值（{phase}）"),
    "fit.line.activation_decode": (
        "at a decode step of max_num_seqs",
        "max_num_seqs 个请求的解码步",
    ),
    "fit.line.cuda_graphs": ("CUDA graphs", "CUDA Graph"),
    "fit.line.non_torch": ("outside PyTorch (kernels, NCCL)", "PyTorch 之外（内核、NCCL）"),
    "fit.line.buffers": ("engine's own buffers", "引擎自身的缓冲区"),
    "fit.line.context": ("in use before (context, others)", "启动前已占用（上下文等）"),
    "fit.line.kv_pool": ("KV pool", "KV 池"),
    "fit.line.free": ("free", "空闲"),
    "fit.line.short": ("missing, all told", "合计缺少"),
    "fit.phase.sampler": ("sampler warm-up", "采样器预热"),
    "fit.phase.layers": ("prefill at the token budget", "按 token 上限预填充"),
    "fit.phase.encoder": ("multimodal encoder", "多模态编码器"),
    "fit.phase.compilation": ("compilation", "编译"),
    "fit.component.embedding": ("embedding", "词嵌入"),
    "fit.component.attention": ("attention", "注意力"),
    "fit.component.ffn": ("feed-forward", "前馈"),
    "fit.component.router": ("router", "路由"),
    "fit.component.experts": ("experts", "专家"),
    "fit.component.shared_experts": ("shared experts", "共享专家"),
    "fit.component.norms": ("norms", "归一化"),
    "fit.component.head": ("head", "输出头"),
    "fit.component.encoder": ("encoder", "编码器"),
    "fit.component.vision": ("vision tower", "视觉塔"),
    "fit.component.audio": ("audio tower", "音频塔"),
    "fit.component.mtp": ("MTP blocks", "MTP 块"),
    "fit.component.draft": ("draft model", "草稿模型"),
    "fit.component.lora": ("LoRA slots", "LoRA 槽位"),
    "fit.component.positions": ("rotary tables", "旋转位置编码表"),
    "fit.component.rounding": ("allocator rounding", "分配器对齐"),
    "fit.component.other": ("other", "其他"),
    "fit.pool": (
        "Pool: {blocks} blocks of {block_size} tokens, maximum concurrency "
        "{concurrency}x at {length} tokens",
        "KV 池：{blocks} 块，每块 {block_size} 个 token；长度 {length} 时最大并发 {concurrency}x",
    ),
    "fit.budget": (
        "Budget: {share} of the memory = {budget_bytes}; the pool is what is left of it",
        "预算：显存的 {share}，即 {budget_bytes}；KV 池是引擎按规则留下的部分",
    ),
    "fit.group": (
        "  {layers} layers of {kind}, {block_size} tokens a block, {page} a page",
        "  {kind}：{layers} 层，每块 {block_size} 个 token，每页 {page}",
    ),
    "fit.weights_in": ("(weights in {layout})", "（权重改用 {layout}）"),
    "fit.awq_checkpoint": ("(a 4-bit AWQ checkpoint)", "（4 位 AWQ 权重）"),
    "kind.full_attention": ("full attention", "全注意力"),
    "kind.sliding_window": ("sliding window", "滑动窗口"),
    "kind.chunked_local_attention": ("chunked local attention", "分块局部注意力"),
    "kind.cross_attention": ("cross attention", "交叉注意力"),
    "kind.mla": ("MLA", "MLA"),
    "kind.mla_attention": ("MLA", "MLA"),
    "kind.sliding_window_mla": ("sliding window MLA", "滑动窗口 MLA"),
    "kind.mamba": ("Mamba states", "Mamba 状态"),
    "kind.recurrent": ("recurrent states", "循环状态"),
    "phase.sampler": ("sampler warm-up", "采样器预热"),
    "phase.layers": ("prefill", "预填充"),
    "phase.prefill": ("prefill", "预填充"),
    "phase.decode": ("decoding", "解码"),
    "phase.encoder": ("multimodal encoder", "多模态编码器"),
    "phase.compilation": ("compilation", "编译"),
    "vendor.amd": ("AMD", "AMD"),
    "vendor.apple": ("Apple", "Apple"),
    "vendor.google": ("Google", "Google"),
    "vendor.huawei": ("Huawei", "华为"),
    "vendor.intel": ("Intel", "Intel"),
    "vendor.nvidia": ("NVIDIA", "NVIDIA"),
    "fit.speed": (
        "Speed of {clients} requests at once ({input} tokens in, {output} out): {user} tokens/s "
        "each ({user_range}), {all} in all, TTFT {ttft} ({ttft_range}); tokens are held "
        "back most by {limiter}",
        "{clients} 个请求同时运行（输入 {input}、输出 {output} 个 token）的速度："
        "各 {user} token/s（{user_range}），共 {all}，TTFT {ttft}（{ttft_range}）；"
        "出 token 主要受限于{limiter}",
    ),
    "fit.speed_unknown": ("Speed is not estimated: {reason}", "未估计速度：{reason}"),
    "fit.changes": ("What would make it fit, cheapest first:", "怎样才能放下（代价从小到大）："),
    "fit.changes_concurrency": (
        "What would run all {asked} at once, cheapest first:",
        "怎样才能同时运行全部 {asked} 个请求（代价从小到大）：",
    ),
    "fit.change": (
        "{tokens} tokens; requests of {length} tokens at once: {requests}",
        "{tokens} 个 token；可同时运行 {requests} 个长度为 {length} token 的请求",
    ),
    "fit.no_changes": (
        "No single change or pair of changes tried makes it fit.",
        "所试的单项或两项更改都不能使其放下。",
    ),
    "fit.settings": ("Settings", "设置"),
    "fit.setting": ("{value}  ({origin})", "{value}（{origin}）"),
    "fit.setting_reason": ("{value}  ({origin}; {reason})", "{value}（{origin}；{reason}）"),
    "fit.origin.user": ("asked", "用户指定"),
    "fit.origin.engine": ("engine default", "引擎默认"),
    "fit.origin.gpu": ("default for this GPU", "该 GPU 的默认值"),
    "fit.origin.model": ("from the model", "取自模型"),
    "fit.origin.tokenroom": ("assumed here", "此处假定"),
    "fit.warning": ("warning: ", "警告："),
    "fit.note": ("note: ", "说明："),
    "fit.gpus": (" ({gpus} GPUs)", "（{gpus} 张 GPU）"),
    "fit.colon": (": ", "："),
    "sweep.left_out": (
        "Left out, beyond what the model takes or the engine refuses: {values}",
        "未列出（超出模型上限或被引擎拒绝）：{values}",
    ),
    "plot.written": ("Wrote {file}", "已写入 {file}"),
    "plot.tokens": ("max_model_len (tokens)", "max_model_len（token）"),
    "plot.requests": ("requests asked for at once", "要求的并发请求数"),
    "notice.launch_left_out": (
        "{name} = {value} is left out: the command line of {engine} {version} cannot say it",
        "{name} = {value} 已略去：{engine} {version} 的命令行没有对应的选项",
    ),
    "notice.launch_flags_left_out": (
        "other flags of the command that was read are not repeated: {flags}",
        "所读命令中的其他选项未重复写出：{flags}",
    ),
    "notice.launch_weights_needed": (
        "the weights were taken as {layout}, and no checkpoint of {model} that stores them so is "
        "known: write the name of yours in its place",
        "权重按 {layout} 计算，但目录中没有以该格式存储的 {model} 权重：请在占位处填入您的权重名称",
    ),
    "notice.launch_weights_near": (
        "known checkpoints that store them a little differently: {names}; give one as MODEL to "
        "plan with it",
        "存储方式略有不同的已知权重：{names}；可将其作为 MODEL 给出以按它计算",
    ),
    "notice.launch_gguf_needed": (
        "{file} stands for a GGUF file of {model}, which has to be there first",
        "{file} 代表 {model} 的 GGUF 文件，需事先准备",
    ),
    "notice.version_newer": (
        "{engine} {version} is newer than what is known ({newest}); the rules of {newest} were "
        "used",
        "{engine} {version} 比已知版本（{newest}）更新；按 {newest} 的规则计算",
    ),
    "notice.measured_memory": (
        "Measured on the machine, by profile {profile} ({created}): CUDA context {context_bytes}, "
        "kernels, cuBLAS's workspace, and peaks of passes of the layers it holds.",
        "由配置文件 {profile}（{created}）在本机实测：CUDA 上下文 {context_bytes}、内核、"
        "cuBLAS 工作区，以及其中所含层的计算峰值。",
    ),
    "notice.measured_context": (
        "Measured on the machine, by profile {profile} ({created}): CUDA context {context_bytes}, "
        "and NCCL where the number of ranks was measured. Its kernels and passes are PyTorch's "
        "own, so this engine's stay estimates.",
        "由配置文件 {profile}（{created}）在本机实测：CUDA 上下文 {context_bytes}，"
        "以及测过的卡数的 NCCL。其中的内核与计算属于 PyTorch 本身，因此该引擎的这些项仍为估算。",
    ),
    "notice.gpus_unused": (
        "GPUs used: {used} of {count}; larger parallel sizes would use the rest",
        "{count} 张 GPU 只用了 {used} 张；增大并行规模可用上其余的",
    ),
    "notice.overridden": (
        "{name} {value} replaces {before} of the command",
        "{name} {value} 取代了命令中的 {before}",
    ),
    "notice.vendor_unmeasured": (
        "nothing was measured on {vendor} GPUs: the estimates are those of NVIDIA's",
        "没有在 {vendor} GPU 上的实测数据：估计值沿用 NVIDIA 的",
    ),
    "fit.explain": ("How each figure comes about", "每个数字的由来"),
    "fit.explain.source": ("source: {source}", "来源：{source}"),
    "refusal.weights_too_big": (
        "The weights and what is there while they load take {needed_bytes} a GPU, and it has "
        "{available_bytes}: {missing_bytes} too much.",
        "每张 GPU 的权重及加载时的其他占用共需 {needed_bytes}，而显存只有 {available_bytes}："
        "缺 {missing_bytes}。",
    ),
    "refusal.free_below_budget": (
        "The engine asks for {needed_bytes} a GPU (gpu_memory_utilization {utilization}) and "
        "{available_bytes} are free at start: it refuses to start.",
        "引擎要求每张 GPU {needed_bytes}（gpu_memory_utilization {utilization}），"
        "启动时空闲 {available_bytes}：拒绝启动。",
    ),
    "refusal.profile_peak": (
        "Profiling peaks at {needed_bytes} a GPU and the card has {available_bytes}: out of memory "
        "in the profile run ({phase}).",
        "启动时的 profile run 峰值为每张 GPU {needed_bytes}，而显卡只有 {available_bytes}："
        "显存不足（{phase}）。",
    ),
    "refusal.no_room_for_kv": (
        "Weights, activation peak and reserve leave no room for the KV cache: the engine wants "
        "{missing_bytes} more a GPU.",
        "权重、激活峰值和预留之后没有 KV 缓存的空间：每张 GPU 还缺 {missing_bytes}。",
    ),
    "refusal.kv_below_one_request": (
        "One request of {max_model_len} tokens needs {needed_bytes} of KV cache a GPU and there "
        "are {available_bytes}.",
        "一个长度 {max_model_len} 的请求每张 GPU 需要 {needed_bytes} 的 KV 缓存，可用 "
        "{available_bytes}。",
    ),
    "refusal.cuda_graphs": (
        "Capturing CUDA graphs takes the memory to {needed_bytes} a GPU and the card has "
        "{available_bytes}.",
        "捕获 CUDA Graph 使每张 GPU 的显存达到 {needed_bytes}，而显卡只有 {available_bytes}。",
    ),
    "refusal.static_share_too_small": (
        "What is loaded leaves nothing for the pools: {needed_bytes} a GPU is needed inside "
        "mem_fraction_static {fraction}, which comes to {available_bytes}; raise "
        "--mem-fraction-static above {least} (not below 1: then nothing helps but smaller weights "
        "or more GPUs).",
        "加载之后没有给缓存池留下空间：mem_fraction_static {fraction} 合 {available_bytes}，"
        "每张 GPU 需要 {needed_bytes}；请将 --mem-fraction-static 提高到 {least} 以上"
        "（若达到 1，则只能减小权重或增加 GPU）。",
    ),
    "change.mem_fraction_static": (
        "a smaller pool: fewer tokens held at once",
        "缓存池变小：可同时容纳的 token 变少",
    ),
    "change.cuda_graph_max_bs": (
        "larger batches decode without graphs: slower there",
        "更大的批次解码时不用 CUDA Graph：在那里变慢",
    ),
    "change.max_model_len": (
        "longer requests are refused",
        "更长的请求会被拒绝",
    ),
    "change.kv_cache_dtype": (
        "KV in 8 bits: a small loss of quality, check it on your task",
        "KV 用 8 位：质量略有损失，请在自己的任务上验证",
    ),
    "change.max_num_seqs": (
        "at most that many requests run at once",
        "同时运行的请求数受此限制",
    ),
    "change.max_num_batched_tokens": (
        "smaller prefill steps: a longer time to first token",
        "预填充步变小：首 token 时间变长",
    ),
    "change.gpu_memory_utilization": (
        "less slack for other processes on the card",
        "留给同卡其他进程的余量变少",
    ),
    "change.enforce_eager": (
        "no CUDA graphs: slower decoding, most at small batches",
        "不用 CUDA Graph：解码变慢，小批量时最明显",
    ),
    "change.language_model_only": (
        "no images, video or audio",
        "不支持图像、视频和音频",
    ),
    "change.limit_mm_per_prompt": (
        "fewer items a prompt",
        "每个提示的多模态项变少",
    ),
    "change.weights": (
        "needs a checkpoint quantised so; a loss of quality that depends on the method",
        "需要对应的量化版权重；质量损失因方法而异",
    ),
    "change.quantization": (
        "weights rounded to 8 bits while loading: a small loss of quality",
        "加载时把权重量化为 8 位：质量略有损失",
    ),
    "change.tensor_parallel_size": (
        "more GPUs: two all-reduces a layer between them",
        "需要更多 GPU：每层两次 all-reduce",
    ),
    "change.pipeline_parallel_size": (
        "more GPUs: a stage waits for the one before it",
        "需要更多 GPU：流水线后级要等前级",
    ),
    "change.data_parallel_size": (
        "more GPUs: another copy of the model",
        "需要更多 GPU：再加一份模型副本",
    ),
    "change.cpu_offload": (
        "weights cross PCIe in every step: far slower",
        "每一步权重都要经过 PCIe：慢得多",
    ),
    "notice.assumption": ("{text}", "{text}"),
    "notice.unknown_flag_said": ("{text}", "{text}"),
    "notice.gpu_memory_assumed": (
        "the memory of {gpu}, {memory_bytes}, is assumed: {source}; if you know what PyTorch or "
        "the engine prints, give it with --gpu-memory",
        "{gpu} 的显存 {memory_bytes} 为推定值：{source}。若知道 PyTorch 或引擎显示的数值，"
        "请用 --gpu-memory 给出",
    ),
    "notice.unknown_flag": (
        "the engine has no flag {flag}; it was left out",
        "引擎没有参数 {flag}，已忽略",
    ),
    "notice.unknown_key": (
        "the engine's YAML has no key {name}; it was left out",
        "引擎的 YAML 没有键 {name}，已忽略",
    ),
    "notice.quantization_not_recognised": (
        "the quantisation block names no method that vLLM looks for (quant_method), so it loads "
        'the weights in {dtype}; add "quant_method" to the block if the checkpoint is quantised',
        "量化配置没有写明 vLLM 所查找的方法（quant_method），因此权重按 {dtype} 加载；"
        '若权重确已量化，请在配置中补上 "quant_method"',
    ),
    "notice.ignored_flags": (
        "these flags have no influence on memory and were left out: {flags}",
        "以下参数不影响显存，未计入：{flags}",
    ),
    "notice.ignored_keys": (
        "these keys of the YAML have no influence on memory and were left out: {names}",
        "YAML 中以下键不影响显存，未计入：{names}",
    ),
    "notice.not_modelled": (
        "{name} changes memory in a way that is not modelled here",
        "{name} 会以此处未建模的方式影响显存",
    ),
    "notice.gpu_capability_unknown": (
        "nothing but the memory of {gpu} is known: backends and kernels were taken as for a plain "
        "GPU, and the estimates are less certain",
        "{gpu} 只知道显存大小：后端与内核按普通 GPU 处理，估计值的不确定性更大",
    ),
    "notice.draft_not_counted": (
        "speculative decoding by {method} needs a draft model and none is named: its memory is not "
        "counted",
        "{method} 投机解码需要草稿模型，但未给出：其显存未计入",
    ),
    "notice.may_not_start": (
        "at the upper ends of the ranges one request of {tokens} tokens lacks {missing_bytes} of "
        "KV cache, and the engine would not start",
        "若各项估计取范围上限，一个 {tokens} token 的请求缺 {missing_bytes} KV 缓存，"
        "引擎将无法启动",
    ),
    "notice.tight_at_runtime": (
        "the engine starts, but a step at its peak would need {missing_bytes} more than the card "
        "has",
        "引擎能启动，但峰值步所需比显卡多 {missing_bytes}",
    ),
    "notice.sglang_log": (
        "Its log will say: max_total_num_tokens={tokens}, K size {k_bytes}, V size {v_bytes}; "
        "avail mem {loaded_bytes} after loading, {pool_bytes} after the pools, {graph_bytes} after "
        "graphs; max_running_requests={running}.",
        "其日志将显示：max_total_num_tokens={tokens}，K size {k_bytes}，V size {v_bytes}；"
        "avail mem 加载后 {loaded_bytes}，建池后 {pool_bytes}，捕获图后 {graph_bytes}；"
        "max_running_requests={running}",
    ),
    "notice.sglang_runtime": (
        "the engine starts, but nothing profiles activations: the largest prefill would need "
        "{missing_bytes} more than is left outside mem_fraction_static and may run out of memory "
        "while serving; lower --mem-fraction-static to about {fraction}, or the prefill chunk",
        "引擎能启动，但它不探测激活：最大的预填充比 mem_fraction_static 之外剩余的多需要 "
        "{missing_bytes}，服务时可能显存不足；请把 --mem-fraction-static 降到约 {fraction}，"
        "或减小预填充块",
    ),
    "notice.sglang_short_pool": (
        "the pool of {tokens} tokens is smaller than context_length {length}: longer requests are "
        "refused, though the engine starts",
        "缓存池只有 {tokens} 个 token，小于 context_length {length}：引擎能启动，"
        "但会拒绝更长的请求",
    ),
    "notice.sglang_window": (
        "Window layers have a pool of {tokens} tokens of their own beside the {full} of full "
        "layers",
        "滑动窗口层另有 {tokens} 个 token 的池，完整层为 {full}",
    ),
    "notice.sglang_states": (
        "States take {state_bytes}: max_mamba_cache_size={slots}",
        "状态占用 {state_bytes}：max_mamba_cache_size={slots}",
    ),
    "notice.sglang_host_pool": (
        "HiCache pins {host_bytes} of host memory a rank",
        "HiCache 每个进程锁定主机内存 {host_bytes}",
    ),
    "notice.sglang_torchao": (
        "torchao ({config}) quantises after loading: the GPU first holds the weights as stored, "
        "which is what is counted",
        "torchao（{config}）在加载之后量化：GPU 先要放下原样的权重，此处按此计算",
    ),
    "notice.per_replica": (
        "the pool is that of one of {replicas} data-parallel copies; requests count all of them",
        "KV 池为 {replicas} 个数据并行副本之一；请求数为全部副本之和",
    ),
    "sweep.concurrency": ("requests", "请求数"),
    "sweep.context": ("context", "上下文"),
    "sweep.running": ("running", "运行"),
    "sweep.waiting": ("waiting", "等待"),
    "sweep.weights": ("weights", "权重"),
    "sweep.kv": ("KV in use", "KV 占用"),
    "sweep.activation": ("step", "单步激活"),
    "sweep.other": ("other", "其他"),
    "sweep.total": ("in use", "总占用"),
    "sweep.request": ("KV a request", "每请求 KV"),
    "sweep.pool_tokens": ("pool tokens", "池 token 数"),
    "sweep.held": ("requests at once", "同时运行"),
    "sweep.starts": ("starts", "能启动"),
    "sweep.yes": ("yes", "是"),
    "sweep.no": ("no", "否"),
    "sweep.unit": (
        "Sizes in GiB on the GPU with the least room.",
        "大小单位为 GiB，取余量最小的 GPU。",
    ),
    "sweep.fixed": ("weights and reserve", "权重与预留"),
    "fit.plot.title": (
        "{model}\n{count} x {gpu}, {engine} {version}",
        "{model}\n{count} x {gpu}，{engine} {version}",
    ),
    "fit.plot.gpu": ("each GPU", "每张 GPU"),
    "fit.plot.stage": ("pipeline stage {stage}", "流水线第 {stage} 级"),
}
