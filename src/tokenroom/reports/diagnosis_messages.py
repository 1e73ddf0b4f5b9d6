"""Sentences and labels of the ``explain`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DIAGNOSIS_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "explain.cause.weights_too_big": ("the weights are too large", "权重过大"),
    "explain.cause.activation_peak": (
        "the activations of a forward pass are too large",
        "前向计算的激活过大",
    ),
    "explain.cause.kv_pool_too_small": ("the KV pool is too small", "KV 池过小"),
    "explain.cause.kv_preallocation": (
        "the KV cache that is reserved in advance is too large",
        "预先分配的 KV 缓存过大",
    ),
    "explain.cause.cuda_graphs": (
        "CUDA graphs found no room beside the KV pool",
        "KV 池之外放不下 CUDA Graph",
    ),
    "explain.cause.encoder_budget": (
        "the vision or audio encoder needs too much",
        "视觉或音频编码器占用过大",
    ),
    "explain.cause.compute_buffer": ("the compute buffer is too large", "计算缓冲区过大"),
    "explain.cause.fragmentation": (
        "memory is left, and no piece of it is large enough",
        "显存尚有剩余，但没有足够大的连续块",
    ),
    "explain.cause.other_process": ("another process holds the memory", "显存被其他进程占用"),
    "explain.cause.host_ram": (
        "the host's memory ran out, not the GPU's",
        "耗尽的是主机内存，而不是显存",
    ),
    "explain.cause.shm": ("/dev/shm is too small or full", "/dev/shm 过小或已满"),
    "explain.cause.nccl_buffers": (
        "NCCL found no memory for its buffers",
        "NCCL 无法分配通信缓冲区",
    ),
    "explain.cause.leak": ("memory grows over time: a leak", "内存随时间增长：泄漏"),
    "explain.cause.wrong_dtype_load": (
        "weights are loaded in a wider type than they are stored in",
        "权重以比存储更宽的类型加载",
    ),
    "explain.cause.misconfiguration": ("a setting does not suit the machine", "设置与机器不符"),
    "explain.cause.not_memory": ("not memory", "与内存无关"),
    "explain.cause.unknown": ("not told by this log", "该日志无法说明原因"),
    "explain.phase.load": ("while loading the weights", "加载权重时"),
    "explain.phase.profile": ("in the profiling pass", "试运行（profile）时"),
    "explain.phase.kv_init": ("while the KV pool was made", "建立 KV 池时"),
    "explain.phase.graph_capture": ("while graphs were captured", "捕获 CUDA Graph 时"),
    "explain.phase.prefill": ("in a step of prompts", "预填充时"),
    "explain.phase.decode": ("while decoding", "解码时"),
    "explain.phase.runtime": ("while serving", "服务运行中"),
    "explain.confidence.high": ("sure", "确定"),
    "explain.confidence.medium": ("likely", "很可能"),
    "explain.confidence.low": (
        "possible, the log is too short to be sure",
        "可能，日志过短无法确定",
    ),
    "explain.verdict": ("{cause}, {phase} ({confidence})", "{cause}，{phase}（{confidence}）"),
    "explain.healthy": ("Nothing wrong here: the engine serves.", "没有问题：引擎正常服务。"),
    "explain.not_memory": (
        "Nothing here speaks of memory. The last error: {error}",
        "日志中没有与内存有关的内容。最后的错误：{error}",
    ),
    "explain.unknown": (
        "This log tells no cause. Read were {lines} lines that might: {kinds}.",
        "该日志无法说明原因。读到 {lines} 行相关内容：{kinds}。",
    ),
    "explain.unknown.nothing": (
        "This log tells no cause: no line of it speaks of memory, a start or an error. Give the "
        "log from the engine's first line on.",
        "该日志无法说明原因：没有任何一行涉及内存、启动或错误。请给出引擎从第一行开始的日志。",
    ),
    "explain.served_later": (
        "A later start in this log, which served from line {line} on, was not hit by it.",
        "该日志中之后的一次启动自第 {line} 行起正常服务，未受影响。",
    ),
    "explain.evidence": ("Evidence", "依据"),
    "explain.line": ("line {line}: {text}", "第 {line} 行：{text}"),
    "explain.alternatives": ("Otherwise: {causes}", "其他可能：{causes}"),
    "explain.recovered": ("Read from the log: {facts}", "从日志读出：{facts}"),
    "explain.no_ledger": (
        "No ledger could be rebuilt, so effects are not predicted: {reason}",
        "无法重建显存账目，因此不预测效果：{reason}",
    ),
    "explain.remedies": (
        "What helps, cheapest first, what may be too little last",
        "解决办法（代价从低到高，可能不够的在后）",
    ),
    "explain.doubtful": ("may be too little", "可能不够"),
    "explain.effect.starts_not": ("would not start", "将无法启动"),
    "explain.effect.pool": (
        "pool {before} -> {after} tokens",
        "KV 池 {before} -> {after} 个 token",
    ),
    "explain.effect.activation": (
        "activation peak {before} -> {after}",
        "激活峰值 {before} -> {after}",
    ),
    "explain.effect.weights": ("weights {before} -> {after}", "权重 {before} -> {after}"),
    "explain.effect.ttft": ("TTFT {change}", "TTFT {change}"),
    "explain.effect.tpot": ("TPOT {change}", "TPOT {change}"),
    "explain.cost.0": ("free", "无代价"),
    "explain.cost.1": ("costs speed", "牺牲速度"),
    "explain.cost.2": ("costs room", "牺牲容量"),
    "explain.cost.3": ("may cost quality", "可能影响质量"),
    "explain.cost.4": ("costs hardware", "需要硬件"),
    # why
    "explain.reason.pool_below_length": (
        "One request of max_model_len {length} needs more than the pool holds, so the engine does "
        "not start.",
        "一个长度为 max_model_len {length} 的请求超出 KV 池，引擎因此不启动。",
    ),
    "explain.reason.no_blocks": (
        "Weights, activations and reserve leave nothing of the engine's share for the KV cache.",
        "权重、激活与预留用尽了引擎的份额，KV 缓存没有空间。",
    ),
    "explain.reason.never_admitted": (
        "The pool holds {tokens} tokens and a request may have {length}: one that would need more "
        "waits for ever while nothing runs.",
        "KV 池只有 {tokens} 个 token，而请求最长 {length}：超出者会在空闲的引擎前永远等待。",
    ),
    "explain.reason.preemptions": (
        "Running requests lose their blocks to others and are computed again: {count} times.",
        "运行中的请求失去 KV 块并被重新计算：{count} 次。",
    ),
    "explain.reason.pool_full": (
        "The pool was full while requests waited.",
        "KV 池已满而仍有请求等待。",
    ),
    "explain.reason.static_share": (
        "Weights and pool are to fit in SGLang's static share of the GPU{of}, and weights leave "
        "nothing of it.",
        "权重与 KV 池须放入 SGLang 的静态份额{of}，而权重已用尽。",
    ),
    "explain.reason.static_share_low": (
        "mem_fraction_static is {share}, far below what SGLang takes by itself (about 0.85): "
        "something set it.",
        "mem_fraction_static 为 {share}，远低于 SGLang 的默认值（约 0.85）：应是被某处设置。",
    ),
    "explain.reason.no_tokens_left": (
        "A step found no free tokens in the pool.",
        "某一步在 KV 池中找不到空闲 token。",
    ),
    "explain.reason.hidden_oom": (
        "PyTorch fails so when it wants to tell of running out of memory and NVML does not answer, "
        "as in a MIG slice: what was too large is hidden.",
        "PyTorch 在报告显存不足而 NVML 无法应答时（如 MIG 切片）会这样失败：真正过大的部分被掩盖。",
    ),
    "explain.reason.graphs": (
        "The pool had taken what was left, and graphs are captured after it.",
        "KV 池已占满剩余显存，而 CUDA Graph 在其后捕获。",
    ),
    "explain.reason.weights": (
        "The GPU filled up while the model was built or its files were read.",
        "在构建模型或读取文件时显存已满。",
    ),
    "explain.reason.wider_type": (
        "Weights that are made in a wider type than they are stored in, and converted later, need "
        "the wider room first.",
        "权重若先以更宽的类型创建再转换，则首先需要更大的空间。",
    ),
    "explain.reason.wider_type_early": (
        "The GPU was full when {share} of the files were read: the model had been made whole, in a "
        "wider type than its files have.",
        "文件只读了 {share} 时显存已满：模型已以比文件更宽的类型整个创建。",
    ),
    "explain.reason.quantized_while_loading": (
        "The weights are stored in 16 bits and made smaller on the GPU while they are read: the "
        "wider ones need room first.",
        "权重以 16 位存储，加载时才在 GPU 上量化：首先需要更宽类型的空间。",
    ),
    "explain.reason.warmup": (
        "The warm-up pass of {tokens} prompt tokens found no room.",
        "{tokens} 个提示 token 的预热没有空间。",
    ),
    "explain.reason.sampler": (
        "Sampling for {requests} requests at once found no room when the sampler was warmed up.",
        "预热采样器时，{requests} 个请求同时采样没有空间。",
    ),
    "explain.reason.component": (
        "The executor could not be made; what found no room is named: {component}.",
        "无法创建执行器；放不下的组件是：{component}。",
    ),
    "explain.reason.executor": (
        "TensorRT-LLM ran out of memory, and its log does not say what asked for it.",
        "TensorRT-LLM 显存不足，而日志未说明是什么在申请。",
    ),
    "explain.reason.activations": (
        "A forward pass asked for more than weights and pool leave.",
        "前向计算所需超出权重与 KV 池之外的空间。",
    ),
    "explain.reason.encoder": (
        "The encoder ran just before: images, video or audio at their largest.",
        "之前刚运行编码器：图像、视频或音频取最大尺寸。",
    ),
    "explain.reason.encoder_of_every_request": (
        "The profiling pass of an encoder-decoder model runs the encoder for as many requests as "
        "may run at once.",
        "编码器-解码器模型的试运行会为最大并发数的每个请求运行编码器。",
    ),
    "explain.reason.fragments": (
        "What is free and what PyTorch keeps unused would hold it together, and neither does "
        "alone.",
        "空闲部分与 PyTorch 缓存合起来足够，但单独都不够。",
    ),
    "explain.reason.memory_moved": (
        "Free memory rose from {before} to {after} while the engine measured its own use: "
        "something else on the GPU let go of it.",
        "引擎测量自身占用时，空闲显存从 {before} 升到 {after}：GPU 上有其他程序释放了显存。",
    ),
    "explain.reason.free_below_budget": (
        "{free} of {total} GiB were free at the start and {wanted} were to be taken: something "
        "else holds {taken} GiB.",
        "启动时 {total} GiB 中空闲 {free} GiB，而需占用 {wanted} GiB：其他程序占用了 {taken} GiB。",
    ),
    "explain.reason.share_of_total": (
        "The share {share} is of all the GPU's memory ({total} GiB), of which the driver and CUDA "
        "hold {taken} GiB before the engine begins.",
        "份额 {share} 是相对全部显存（{total} GiB）而言，其中驱动与 CUDA 已占用 {taken} GiB。",
    ),
    "explain.reason.others_hold": (
        "{others} of {total} GiB are held by others than this process.",
        "{total} GiB 中有 {others} GiB 被其他进程占用。",
    ),
    "explain.reason.kv_buffer": (
        "The cache for the whole context is allocated at the start, and did not fit.",
        "整个上下文的缓存在启动时一次分配，未能放下。",
    ),
    "explain.reason.compute_buffer": (
        "The model and its cache had been placed; the buffer of the graph's results did not fit.",
        "模型与缓存已就位，而计算图的缓冲区放不下。",
    ),
    "explain.reason.compute_buffer_copies": (
        "The buffer of the graph's results did not fit; pipeline parallelism keeps {copies} copies "
        "of its inputs.",
        "计算图的缓冲区放不下；流水并行会保留 {copies} 份输入副本。",
    ),
    "explain.reason.model_buffer": (
        "The buffer of the model's tensors did not fit.",
        "模型张量的缓冲区放不下。",
    ),
    "explain.reason.layers_on_cpu": (
        "{layers} of {all} layers are on the GPU, the others run on the CPU: slow, not failed.",
        "{all} 层中有 {layers} 层在 GPU 上，其余在 CPU 上运行：变慢而非失败。",
    ),
    "explain.reason.context_on_cpu": (
        "The model runs on the CPU in part: the cache for the whole context is reserved with the "
        "weights, and a long one pushes layers off the GPU.",
        "模型部分在 CPU 上运行：整个上下文的缓存与权重一同预留，过长会把层挤出 GPU。",
    ),
    "explain.reason.split_with_cpu": (
        "The model runs on the CPU in part, as one larger than the GPU does.",
        "模型部分在 CPU 上运行，如同大于显存的模型。",
    ),
    "explain.reason.host_ram": (
        "The kernel, a scheduler or an allocation on the host says so.",
        "内核、调度器或主机上的分配明确说明了这一点。",
    ),
    "explain.reason.container_limit": (
        "The container reached its limit of memory, which is the host's and not the GPU's.",
        "容器达到了内存上限，这是主机内存而不是显存。",
    ),
    "explain.reason.container_limit_early": (
        "The container reached its limit of memory, which is the host's and not the GPU's, "
        "{seconds} s after it began: most likely while the model was read.",
        "容器启动 {seconds} 秒后就达到了内存上限（主机内存而不是显存）：很可能是在读取模型时。",
    ),
    "explain.reason.limit_after_running": (
        "It ran before it reached the limit: what grows until then is a leak, or a cache without "
        "an end.",
        "达到上限之前它已运行：一直增长的是泄漏，或没有上限的缓存。",
    ),
    "explain.reason.killed": (
        "Something ended the process with signal 9, as the kernel does when memory ends; nothing "
        "here says that it was that.",
        "进程被信号 9 终止，内存耗尽时内核会这样做；但这里没有证据表明确实如此。",
    ),
    "explain.reason.growth": (
        "The resident size rises from one reading to the next.",
        "常驻内存一次比一次大。",
    ),
    "explain.reason.shm_small": (
        "NCCL could not make a segment in /dev/shm, which containers have 64 MB of unless told.",
        "NCCL 无法在 /dev/shm 建立段；容器默认只有 64 MB。",
    ),
    "explain.reason.shm_left": (
        "{count} segments of runs before are still in /dev/shm and fill it.",
        "/dev/shm 中仍留有以前运行的 {count} 个段，占满了空间。",
    ),
    "explain.reason.bus_error": (
        "A write to shared memory found no page behind it.",
        "写共享内存时没有可用的页。",
    ),
    "explain.reason.nccl_system": (
        "A system call of NCCL failed, often that for shared memory; NCCL_DEBUG=INFO names it.",
        "NCCL 的系统调用失败，常见于共享内存；NCCL_DEBUG=INFO 可显示详情。",
    ),
    "explain.reason.nccl_buffers": (
        "CUDA had no memory left for NCCL; what holds the rest this log does not tell.",
        "CUDA 没有显存留给 NCCL；其余被谁占用，该日志没有说明。",
    ),
    "explain.reason.mig_defaults": (
        "In a MIG slice the GPU's memory cannot be asked for, so that the defaults of the smallest "
        "GPUs apply: 2,048 tokens a step.",
        "在 MIG 切片中无法查询显存，因此采用最小 GPU 的默认值：每步 2,048 个 token。",
    ),
    "explain.reason.division": (
        "The number of GPUs does not divide the model's heads or rows.",
        "GPU 数不能整除模型的头数或行数。",
    ),
    "explain.reason.wsl": (
        "WSL has no pinned memory, so copies to the GPU are slow; nothing failed.",
        "WSL 没有锁页内存，拷贝到 GPU 较慢；并没有失败。",
    ),
    "explain.reason.no_tokens_for_one": (
        "One request of the longest length needs more blocks than the pool has.",
        "一个最长请求所需的块超过 KV 池的总数。",
    ),
    "explain.reason.weights_over_budget": (
        "The weights take {weights} GiB, all of the engine's share of {budget} GiB.",
        "权重占 {weights} GiB，已用尽引擎份额 {budget} GiB。",
    ),
    "explain.reason.graphs_reserved": (
        "{graphs} GiB were set aside for CUDA graphs that are not captured yet, and nothing was "
        "left for the cache.",
        "为尚未捕获的 CUDA Graph 预留了 {graphs} GiB，KV 缓存没有空间。",
    ),
    "explain.reason.activations_over_rest": (
        "The largest forward pass took {activation} GiB, more than weights leave.",
        "最大的前向计算占 {activation} GiB，超出权重之外的空间。",
    ),
    "explain.reason.pool_leak": (
        "The engine counted its pool while idle and found tokens that nobody holds: it lost them.",
        "引擎空闲时清点 KV 池，发现有 token 不属于任何请求：已泄漏。",
    ),
    "explain.reason.pool_took_the_rest": (
        "The KV pool had taken its share of what was free (0.9 unless told), and something later "
        "found no room.",
        "KV 池已按比例（默认 0.9）占用空闲显存，之后的申请没有空间。",
    ),
    "explain.reason.unbalanced": (
        "One GPU has far less free than the others before anything was loaded: something else is "
        "on it.",
        "加载之前某个 GPU 的空闲显存远少于其他 GPU：上面有其他进程。",
    ),
    "explain.reason.processes_listed": (
        "nvidia-smi lists processes that hold {used} of {total} MiB, and the error has no figures "
        "of its own.",
        "nvidia-smi 列出的进程占用 {total} MiB 中的 {used} MiB，而错误本身没有数字。",
    ),
    "explain.reason.prompt_cache": (
        "The container reached its limit of memory while the server kept finished prompts in the "
        "host's memory.",
        "容器达到内存上限，而服务器把已完成的提示保存在主机内存中。",
    ),
    "explain.reason.native": (
        "The process holds {native} GiB that PyTorch does not know of (it has {held}): weights and "
        "KV pool of the C++ runtime, which takes its share of what is free.",
        "该进程有 {native} GiB 不在 PyTorch 账上（PyTorch 占 {held}）：C++ 运行时的权重与 KV 池。",
    ),
    "explain.reason.summary_kept": (
        "PyTorch kept {kept} GiB unused beside the {used} GiB in use when an allocation failed.",
        "分配失败时，PyTorch 在使用中的 {used} GiB 之外缓存了 {kept} GiB 未使用。",
    ),
    "explain.reason.summary_nothing_freed": (
        "An allocation failed before anything had been freed, as while a model is loaded.",
        "分配失败时尚未释放过任何内存，如同正在加载模型。",
    ),
    "explain.reason.one_buffer": (
        "One buffer of {asked} was refused although {free} are free: the driver limits one "
        "allocation, or what the GPU may take of shared memory.",
        "虽有 {free} 空闲，{asked} 的单个缓冲区仍被拒绝：驱动限制了单次分配或 GPU 可用的共享内存。",
    ),
    "explain.reason.probe": (
        "A probe failed, after which Kubernetes ends the container by the same signal: that is no "
        "want of memory.",
        "探针失败后 Kubernetes 会用同样的信号结束容器：这不是内存不足。",
    ),
    "explain.reason.killed_full": (
        "Something ended the process with signal 9, and the host had hardly any memory available.",
        "进程被信号 9 终止，而主机几乎没有可用内存。",
    ),
    "explain.reason.shm_full": ("/dev/shm is full.", "/dev/shm 已满。"),
    "explain.reason.unplaced": (
        "A GPU ran out, and nothing before or beside that line tells whether a model was being "
        "read or a request was served.",
        "显存耗尽，但该行前后都没有说明当时是在加载模型还是在处理请求。",
    ),
    "explain.reason.dequantized": (
        "The packed weights were made {type} while they were read, which takes two to four times "
        "the room.",
        "压缩的权重在加载时被还原为 {type}，需要两到四倍的空间。",
    ),
    "explain.reason.modules_elsewhere": (
        "Not all of the model found room on the GPU: the rest is on the CPU or the disk.",
        "模型未能全部放入 GPU：其余部分在 CPU 或磁盘上。",
    ),
    "explain.reason.encoder_above_budget": (
        "One image or video of the largest size has {item} tokens, more than a step may have "
        "({budget}).",
        "一个最大尺寸的图像或视频有 {item} 个 token，超过每步上限（{budget}）。",
    ),
    "explain.reason.device_growth": (
        "What the GPU holds rises from one reading to the next.",
        "GPU 的占用一次比一次大。",
    ),
    "explain.reason.fit_refused": (
        "llama.cpp found that the model does not fit into what is free, and was told how to place "
        "it.",
        "llama.cpp 发现模型放不进空闲显存，而放置方式已被指定。",
    ),
    "explain.reason.snapshot_pieces": (
        "{asked} were asked for and PyTorch kept {kept} unused, in {pieces} pieces of which the "
        "largest has {largest}.",
        "申请 {asked}，而 PyTorch 缓存中有 {kept} 未使用，分为 {pieces} 块，最大一块 {largest}。",
    ),
    "explain.reason.snapshot_asked": (
        "The allocation of {asked} that failed was {where}.",
        "失败的 {asked} 分配来自 {where}。",
    ),
    "explain.reason.snapshot_holds": (
        "Most is held by {where}: {size}; who asked last was not recorded.",
        "占用最多的是 {where}：{size}；最后由谁申请没有记录。",
    ),
    "explain.reason.snapshot_grows": (
        "{where} allocated {blocks} blocks, {size}, and none of them was freed.",
        "{where} 分配了 {blocks} 块（{size}），没有一块被释放。",
    ),
    "explain.snapshot": (
        "GPU {device}: {reserved} reserved in {segments} segments; {allocated} allocated, {unused} "
        "kept unused, of which {fragmented} outside of its largest block",
        "GPU {device}：{segments} 个段共保留 {reserved}；已分配 {allocated}，缓存未用 {unused}，"
        "其中 {fragmented} 不在最大块内",
    ),
    "explain.snapshot.calm": (
        "This memory snapshot records no allocation that failed.",
        "该显存快照没有记录失败的分配。",
    ),
    "explain.snapshot.takers": ("What it is for: {takers}", "用途：{takers}"),
    "explain.snapshot.sites": ("Who holds most", "占用最多的代码位置"),
    "explain.taker.weights": ("weights", "权重"),
    "explain.taker.kv_cache": ("KV cache", "KV 缓存"),
    "explain.taker.graphs": ("graphs", "CUDA Graph"),
    "explain.taker.encoder": ("encoder", "编码器"),
    "explain.taker.activations": ("activations", "激活"),
    "explain.taker.other": ("other", "其他"),
    # what helps
    "explain.remedy.expandable": (
        "Let PyTorch grow its segments, so that pieces join",
        "让 PyTorch 使用可扩展段，使碎片合并",
    ),
    "explain.remedy.container_memory": (
        "Give the host or container more memory, or a swap file while loading",
        "给主机或容器更多内存，或在加载时使用交换文件",
    ),
    "explain.remedy.fewer_copies": (
        "Load with fewer processes at a time, so that fewer copies of the weights are in memory",
        "减少同时加载的进程，使内存中的权重副本更少",
    ),
    "explain.remedy.shm_size": (
        "Share the host's /dev/shm, or give the container its own (--shm-size 16g; in Kubernetes "
        "an emptyDir of medium Memory)",
        "共享主机的 /dev/shm，或给容器更大的"
        "（--shm-size 16g；Kubernetes 用 medium: Memory 的 emptyDir）",
    ),
    "explain.remedy.shm_clean": (
        "Remove what earlier runs left there before the engine starts",
        "在引擎启动前清理以前运行留下的段",
    ),
    "explain.remedy.leak_version": (
        "Try another release of the engine, and report the growth with its workload",
        "换一个引擎版本，并附负载上报该增长",
    ),
    "explain.remedy.leak_limit": (
        "Restart before the limit is reached; watch the resident size",
        "在达到上限之前重启；观察常驻内存",
    ),
    "explain.remedy.stored_type": (
        "Load in the type that the files have (torch_dtype in Python)",
        "以文件的存储类型加载（Python 中为 torch_dtype）",
    ),
    "explain.remedy.quantized_checkpoint": (
        "Load a checkpoint that is stored quantised, instead of quantising while loading",
        "加载已量化存储的检查点，而不是加载时量化",
    ),
    "explain.remedy.stop_others": (
        "Find who else is on the GPU and stop it, or wait until it has left",
        "找出并停止 GPU 上的其他进程，或等它退出",
    ),
    "explain.remedy.share": ("Let the engine take more of the GPU", "让引擎占用更多显存"),
    "explain.remedy.lower_share": (
        "Let the engine take less of the GPU, which leaves more beside the pool",
        "让引擎少占显存，为 KV 池之外留出空间",
    ),
    "explain.remedy.length": ("Allow shorter requests", "缩短允许的请求长度"),
    "explain.remedy.kv_type": ("Keep the KV cache in 8 bits", "KV 缓存使用 8 位"),
    "explain.remedy.gpus": ("Divide the model over more GPUs", "把模型切分到更多 GPU"),
    "explain.remedy.budget": (
        "Let a step have at most {value} tokens",
        "每步最多 {value} 个 token",
    ),
    "explain.remedy.requests": ("Run fewer requests at once", "减少同时运行的请求"),
    "explain.remedy.no_graph_estimate": (
        "Set nothing aside for graphs in advance; they then take what the engine's share leaves",
        "不提前为 CUDA Graph 预留；它们将使用引擎份额之外的显存",
    ),
    "explain.remedy.prompt_cache": (
        "Keep fewer finished prompts in the host's memory: {value} MiB",
        "在主机内存中保存更少的已完成提示：{value} MiB",
    ),
    "explain.remedy.plain_segments": (
        "Do without expandable segments, so that PyTorch tells what it ran out for",
        "不使用可扩展段，使 PyTorch 能报告是什么申请失败",
    ),
    "explain.remedy.no_graphs": ("Do without CUDA graphs", "不使用 CUDA Graph"),
    "explain.remedy.weights": (
        "Load a smaller checkpoint of the model: 8 or 4 bits (MODEL@fp8, MODEL@awq in tokenroom "
        "fit)",
        "加载更小的检查点：8 位或 4 位（tokenroom fit 中 MODEL@fp8、MODEL@awq）",
    ),
    "explain.remedy.weights_as": (
        "Load a smaller checkpoint of the model, as {value}",
        "加载更小的检查点，如 {value}",
    ),
    "explain.remedy.layers": ("Leave some layers on the CPU", "把部分层留在 CPU"),
    "explain.remedy.encoder": (
        "Allow fewer or smaller images a request",
        "减少每个请求的图像数量或尺寸",
    ),
}
