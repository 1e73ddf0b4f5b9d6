"""Sentences and labels of the ``speed`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SPEED_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "speed.request": (
        "Requests of {input} tokens in and {output} out; clients, each with one at a time: "
        "{concurrency}",
        "每个请求输入 {input}、输出 {output} 个 token；"
        "客户端 {concurrency} 个，各自同时只有一个请求",
    ),
    "speed.request_benchmark": (
        "A benchmark of {num_prompts} requests of {input} tokens in and {output} out; clients, "
        "each with one at a time: {concurrency}, whose first requests come at once (in the TTFT)",
        "共 {num_prompts} 个请求的基准测试，每个输入 {input}、输出 {output} 个 token；"
        "客户端 {concurrency} 个，各自同时只有一个请求，首批请求同时到达（计入 TTFT）",
    ),
    "speed.request_rate": (
        "Requests of {input} tokens in and {output} out, {rate} a second, independently of answers "
        "(Poisson); in flight on average: {concurrency}",
        "每个请求输入 {input}、输出 {output} 个 token，每秒 {rate} 个，"
        "到达与应答无关（泊松）；平均同时进行 {concurrency} 个",
    ),
    "speed.rate_note": (
        "That is {share} of the {capacity} requests/s that it serves at most. Figures are those of "
        "as many clients who wait for answers: the queues of arrivals that bunch are not in them, "
        "and lengthen TTFT the more the nearer the rate is to the most.",
        "占其最大处理能力（每秒 {capacity} 个请求）的 {share}。"
        "各项按同样数量、等待应答的客户端估计：未计入到达聚集造成的排队；"
        "速率越接近上限，TTFT 因此越长。",
    ),
    "speed.falls_behind": ("FALLS BEHIND: ", "跟不上："),
    "speed.falls_behind_why": (
        "{rate} requests/s come and at most {capacity} are served, so the queue grows for as long "
        "as they come; the figures are of that most, with {concurrency} at once.",
        "每秒到达 {rate} 个请求，而至多处理 {capacity} 个，队列将持续增长；"
        "下列数值为最大处理能力下（同时 {concurrency} 个）的情况。",
    ),
    "speed.assumed": (
        " (assumed; --concurrency gives yours)",
        "（假定值，可用 --concurrency 给出）",
    ),
    "speed.assumed_room": (
        " (as many as run at once; --concurrency gives yours)",
        "（即最多可同时运行的数量，可用 --concurrency 给出）",
    ),
    "speed.steady": (
        "TTFT is of a steady load; the mean of a benchmark whose first requests come at once is "
        "longer: --num-prompts N asks for that.",
        "TTFT 为稳定负载下的值；若基准测试的首批请求同时到达，其均值更长：可用 --num-prompts N "
        "估计。",
    ),
    "speed.makeup": (
        "{name} {time} is made of {parts}; held back most by {limiter}.",
        "{name} {time} 的构成：{parts}；主要受限于{limiter}。",
    ),
    "speed.makeup.tpot.decode": ("decode steps {time} ({share})", "解码步 {time}（{share}）"),
    "speed.makeup.tpot.host": ("the host {time} ({share})", "主机 {time}（{share}）"),
    "speed.makeup.tpot.prompts": (
        "prompts of other requests {time} ({share})",
        "其他请求的提示 {time}（{share}）",
    ),
    "speed.makeup.ttft.arrival": (
        "the way to the engine {time} ({share})",
        "到达引擎之前 {time}（{share}）",
    ),
    "speed.makeup.ttft.prompt": ("its own prompt {time} ({share})", "自身提示 {time}（{share}）"),
    "speed.makeup.ttft.others": (
        "other requests in its steps or before it {time} ({share})",
        "同步或先行的其他请求 {time}（{share}）",
    ),
    "speed.makeup.ttft.progress": (
        "steps in progress {time} ({share})",
        "正在进行的步 {time}（{share}）",
    ),
    "speed.makeup.ttft.room": (
        "waiting until others end {time} ({share})",
        "等待其他请求结束 {time}（{share}）",
    ),
    "speed.makeup.ttft.burst": (
        "the first requests at once {time} ({share})",
        "首批同时到达的请求 {time}（{share}）",
    ),
    "speed.deployment": (
        "Settings by {engine}'s rules: up to {budget} tokens a step, max_num_seqs {max_num_seqs}; "
        "the KV pool of {tokens} tokens holds {held} such requests",
        "按 {engine} 的规则：每步至多 {budget} 个 token，max_num_seqs {max_num_seqs}；"
        "KV 池 {tokens} 个 token，可容 {held} 个此类请求",
    ),
    "speed.all_run": (
        "Requests that run at once: {running}, and none waits.",
        "同时运行的请求：{running} 个，无需排队。",
    ),
    "speed.some_wait": (
        "Requests that run at once: {running}; {waiting} wait, and their wait is in the TTFT.",
        "同时运行的请求：{running} 个；{waiting} 个排队，排队时间计入 TTFT。",
    ),
    "speed.drafts_measured": (
        "Speculative decoding ({method}): drafted in a row: {tokens}, rows a request to verify: "
        "{rows}; each token is kept with {rate} ({low} to {high} was measured; "
        "--acceptance gives yours), which yields {gained} tokens a step ({fewest} to {most}).",
        "投机解码（{method}）：每步连续起草 {tokens} 个 token，每个请求验证 {rows} 行；"
        "每个 token 的接受率为 {rate}（实测 {low} 至 {high}，可用 --acceptance 给出），"
        "每步得到 {gained} 个 token（{fewest} 至 {most}）。",
    ),
    "speed.drafts_given": (
        "Speculative decoding ({method}): drafted in a row: {tokens}, rows a request to verify: "
        "{rows}; each token is kept with {rate}, which yields {gained} tokens a step.",
        "投机解码（{method}）：每步连续起草 {tokens} 个 token，每个请求验证 {rows} 行；"
        "每个 token 的接受率为 {rate}，每步得到 {gained} 个 token。",
    ),
    "speed.draft_source": (
        "  -  acceptance of drafted tokens: {source}",
        "  -  草稿 token 的接受率：{source}",
    ),
    "speed.column.estimate": ("estimate", "估计"),
    "speed.column.range": ("range", "范围"),
    "speed.figures": ("Speed", "速度"),
    "speed.ttft": ("TTFT, time to the first token", "TTFT（首 token 时间）"),
    "speed.none": ("none", "无"),
    "speed.one_token": (
        "requests get one token, so none has a time per further token",
        "每个请求只有一个输出 token，因此没有 TPOT",
    ),
    "speed.tpot": ("TPOT, time of each further token", "TPOT（其后每个 token 的时间）"),
    "speed.user": ("tokens/s per user", "每用户 token/s"),
    "speed.gpu": ("output tokens/s per GPU", "每张 GPU 的输出 token/s"),
    "speed.all": ("output tokens/s in all", "总输出 token/s"),
    "speed.requests": ("requests/s", "请求/s"),
    "speed.cost": ("USD per million output tokens", "每百万输出 token 的费用（美元）"),
    "speed.step.prefill": ("Prefill", "预填充"),
    "speed.step.decode": ("Decode", "解码"),
    "speed.limited": (
        "{step} steps ({time} each) are limited by {limiter} ({share}).",
        "{step}步（每步 {time}）受限于{limiter}（{share}）。",
    ),
    "speed.largest": ("  Largest parts: {parts}", "  最大的几项：{parts}"),
    "speed.part": ("{name} {share}", "{name} {share}"),
    "speed.parts_join": (", ", "、"),
    "speed.limiter.compute": ("compute", "算力"),
    "speed.limiter.bandwidth": ("memory bandwidth", "显存带宽"),
    "speed.limiter.communication": ("communication", "通信"),
    "speed.limiter.overhead": ("overhead (kernel starts, host)", "开销（内核启动与主机）"),
    "speed.short.compute": ("compute", "算力"),
    "speed.short.bandwidth": ("bandwidth", "带宽"),
    "speed.short.communication": ("comm.", "通信"),
    "speed.short.overhead": ("overhead", "开销"),
    "speed.tables": (
        "Rests on operator tables measured on {gpu} (aiconfigurator): {tables}.",
        "依据在 {gpu} 上实测的算子表（aiconfigurator）：{tables}。",
    ),
    "speed.accuracy": (
        "Against 1,285 measured rows of vLLM, SGLang and TensorRT-LLM, TPOT is off by 10.6% in the "
        "median (90%: 33%), TTFT by 23% (73%); 83% of those TPOTs and 80% of the TTFTs lie in the "
        "predicted range.",
        "与 vLLM、SGLang、TensorRT-LLM 的 1,285 条实测相比，TPOT 误差中位数为 10.6%"
        "（90% 分位 33%），TTFT 为 23%（73%）；其中 83% 的 TPOT、80% 的 TTFT 落在预测范围之内。",
    ),
    "speed.borrowed": (
        "{gpu} has no measured tables; the shares of peak are those of {other}, applied to its "
        "own peaks, and the ranges are wider",
        "{gpu} 没有实测算子表；峰值利用率借自 {other} 并用于其自身峰值，范围相应放宽",
    ),
    "speed.partly_borrowed": (
        "some kinds of operators were not measured on {gpu} and take the tables of {other}",
        "部分算子未在 {gpu} 上实测，借用 {other} 的算子表",
    ),
    "speed.outside_above": (
        "{operator} has {extent} of {value}, {times} times beyond the {limit} that its tables go "
        "to; its range is {wider} times wider for it",
        "{operator} 的{extent}为 {value}，是其算子表上限 {limit} 的 {times} 倍；"
        "其范围因此放宽 {wider} 倍",
    ),
    "speed.outside_below": (
        "{operator} has {extent} of {value}, {times} times below the {limit} that its tables begin "
        "with; its range is {wider} times wider for it",
        "{operator} 的{extent}为 {value}，比其算子表下限 {limit} 小 {times} 倍；"
        "其范围因此放宽 {wider} 倍",
    ),
    "speed.extent.rows": ("rows", "行数"),
    "speed.extent.columns": ("columns", "列数"),
    "speed.extent.depth": ("summed elements", "求和维度"),
    "speed.extent.heads": ("heads", "头数"),
    "speed.extent.expert_rows": ("rows an expert", "每专家行数"),
    "speed.extent.expert_columns": ("columns of all experts", "全部专家的列数"),
    "speed.extent.prompt_tokens": ("prompt tokens", "提示 token 数"),
    "speed.extent.head_width": ("a head width", "头宽"),
    "speed.extent.keys": ("keys", "键数"),
    "speed.extent.all_heads": ("heads of all requests", "全部请求的头数"),
    "speed.extent.query_heads": ("query heads a KV head", "每 KV 头的查询头数"),
    "speed.extent.context_tokens": ("context tokens", "上下文 token 数"),
    "speed.extent.steps": ("steps", "步数"),
    "speed.extent.all_kv_heads": ("KV heads of all requests", "全部请求的 KV 头数"),
    "speed.extent.num_bytes": ("bytes", "字节数"),
    "speed.extent.message_bytes": ("message bytes", "消息字节数"),
    "speed.extent.ranks": ("ranks", "rank 数"),
    "speed.timed_steps": (
        "Rests on steps that llama-bench timed on {gpu} and its kin, from {count} sources.",
        "依据 llama-bench 在 {gpu} 及同类显卡上实测的步时，共 {count} 个来源。",
    ),
    "speed.llama_cpp": (
        "Against 350 rows of llama-bench, decoding is off by 7% in the median (90%: 31%) and "
        "prefill by 11% (24%), one request at a time.",
        "与 350 条 llama-bench 实测相比，解码误差中位数为 7%（90% 分位 31%），"
        "预填充为 11%（24%），均为单请求。",
    ),
    "speed.host_weights": (
        "{size} of weights a GPU stay in the host's memory; every step moves what it needs of them "
        "over PCIe, which one figure of NVIDIA's nvbandwidth and two reports set the time of",
        "每张 GPU 有 {size} 权重留在主机内存；每一步都要经 PCIe 搬运所需部分，"
        "其耗时依据 NVIDIA nvbandwidth 的一个数值和两份报告",
    ),
    "speed.pcie_all_reduce": (
        "all-reduce over PCIe depends on the host more than on the card: a quarter of the link's "
        "peak is assumed, a switch that lets GPUs reach each other gives up to 80%, a way "
        "through the processors as little as a tenth",
        "经 PCIe 的 all-reduce 更取决于主机而非显卡：这里假设达到链路峰值的四分之一；"
        "GPU 可经交换芯片直连时可达 80%，须绕经处理器时可低至十分之一",
    ),
    "speed.what_fits": (
        "tokenroom fit says what would make it fit.",
        "可用 tokenroom fit 查看怎样才能放下。",
    ),
    "speed.explain": (
        "{step} step of {time}: {prompts} prompt tokens, {decoding} decoding requests",
        "{step}步，{time}：{prompts} 个提示 token，{decoding} 个解码请求",
    ),
    "speed.column.operator": ("operator", "算子"),
    "speed.column.time": ("ms", "ms"),
    "speed.column.share": ("share", "占比"),
    "speed.column.flops": ("GFLOP", "GFLOP"),
    "speed.column.bytes": ("MiB", "MiB"),
    "speed.column.limiter": ("limiter", "限制"),
    "speed.column.source": ("source", "来源"),
    "speed.column.sum": ("sum", "合计"),
    "speed.sources": ("Sources (measured tables)", "来源（实测算子表）"),
    "speed.host_source": ("  -  the host: scheduling, launching", "  -  主机：调度与启动"),
    "speed.explain_note": (
        "Work of one rank; MiB are memory moved, of collectives the message.",
        "为单个 rank 的工作量；MiB 为显存读写量，集合通信则为消息大小。",
    ),
    "speed.sweep.concurrency": ("clients", "并发"),
    "speed.sweep.running": ("running", "运行中"),
    "speed.sweep.ttft": ("TTFT ms", "TTFT ms"),
    "speed.sweep.tpot": ("TPOT ms", "TPOT ms"),
    "speed.sweep.user": ("tok/s/user", "tok/s/用户"),
    "speed.sweep.gpu": ("tok/s/GPU", "tok/s/GPU"),
    "speed.sweep.cost": ("USD/M tok", "美元/百万 token"),
    "speed.sweep.request": (
        "Requests of {input} tokens in and {output} out",
        "每个请求输入 {input}、输出 {output} 个 token",
    ),
    "speed.sweep.regime": ("regime", "区段"),
    "speed.sweep.misses": ("misses", "未满足"),
    "speed.regime": ("Regime: {regime} ({spans}).", "负载区段：{regime}（{spans}）。"),
    "speed.regime.to": ("{regime} {first} … {last}", "{regime} {first} … {last}"),
    "speed.regime.from": ("{regime} from {first} clients", "{regime} 自 {first} 个客户端起"),
    "speed.regime.latency": ("latency", "低延迟"),
    "speed.regime.balanced": ("balanced", "均衡"),
    "speed.regime.throughput": ("throughput", "吞吐"),
    "speed.regime.overload": ("overload", "过载"),
    "speed.regime.note": (
        "Regimes: what 1% more clients gain in throughput is at least twice what it costs in "
        "response time (latency), within a factor of two (balanced), less than half (throughput); "
        "from where requests wait, nothing (overload).",
        "区段：客户端每增加 1%，吞吐的增益至少为响应时间代价的两倍（低延迟）、在两倍以内（均衡）、"
        "不足一半（吞吐）；请求开始排队后则毫无增益（过载）。",
    ),
    "speed.slo.at_most.tpot": ("mean TPOT at most {time}", "平均 TPOT 不超过 {time}"),
    "speed.slo.at_most.ttft": ("mean TTFT at most {time}", "平均 TTFT 不超过 {time}"),
    "speed.slo.kept": ("KEPT: ", "可满足："),
    "speed.slo.out_of_reach": ("OUT OF REACH: ", "无法满足："),
    "speed.slo.largest": (
        "by up to {clients} clients (by the ranges {range}): {wanted}",
        "至多 {clients} 个客户端（按范围为 {range}）：{wanted}",
    ),
    "speed.slo.binds": (
        "One client more misses the {objectives}; what holds it back most: {bound}.",
        "再多一个客户端便超出 {objectives}；主要受限于{bound}。",
    ),
    "speed.slo.and": (" and ", "与"),
    "speed.slo.prompts_share": (
        " Prompts of others take {share} of a token's time.",
        "每个 token 的时间中，其他请求的提示占 {share}。",
    ),
    "speed.slo.room": (
        "No objective binds: {bound} ends first, and more clients would only wait.",
        "目标均未成为瓶颈：{bound}先用尽，更多客户端只会排队。",
    ),
    "speed.limiter.kv_pool": ("room in the KV pool", "KV 池空间"),
    "speed.limiter.max_num_seqs": ("max_num_seqs", "max_num_seqs"),
    "speed.slo.max_num_seqs": (
        "max_num_seqs of {max_num_seqs}",
        "max_num_seqs（{max_num_seqs}）",
    ),
    "speed.slo.batch": (
        "The TPOT alone allows {requests} requests at once ({range}); there is room for {room}.",
        "仅按 TPOT 可同时运行 {requests} 个请求（{range}）；空间可容 {room} 个。",
    ),
    "speed.slo.advice": (
        "With max_num_seqs {requests}, more clients wait for their first token instead of slowing "
        "each other down.",
        "将 max_num_seqs 设为 {requests}，更多客户端将等待首 token，而不会相互拖慢。",
    ),
    "speed.slo.unmet.tpot": (
        "one request alone takes {alone} a token ({low} … {high}); the objective is {wanted}.",
        "单个请求每个 token 就需 {alone}（{low} … {high}），目标为 {wanted}。",
    ),
    "speed.slo.unmet.ttft": (
        "the first token of one request alone takes {alone} ({low} … {high}); the objective is "
        "{wanted}.",
        "单个请求的首 token 就需 {alone}（{low} … {high}），目标为 {wanted}。",
    ),
    "speed.slo.floor.bandwidth": (
        "The physical floor is {floor}: {num_bytes} on each GPU at its full memory bandwidth.",
        "物理下限为 {floor}：每张 GPU 以满显存带宽读写 {num_bytes}。",
    ),
    "speed.slo.floor.compute": (
        "The physical floor is {floor}: {tflop} TFLOP on each GPU at its peak.",
        "物理下限为 {floor}：每张 GPU 以峰值算力完成 {tflop} TFLOP。",
    ),
    "speed.slo.floor.communication": (
        "The physical floor is {floor}, most of it messages over the full bandwidth of the links.",
        "物理下限为 {floor}，其中大部分为以满链路带宽传输的消息。",
    ),
    "speed.slo.beyond_physics": (
        "No engine goes below that with this model on these GPUs.",
        "该模型在这些 GPU 上，任何引擎都无法更快。",
    ),
    "speed.slo.beyond_physics_step": (
        "No engine goes below that with this model on these GPUs at one token a step.",
        "该模型在这些 GPU 上，若每步只出一个 token，任何引擎都无法更快。",
    ),
    "speed.slo.beyond_physics_drafts": (
        "No engine goes below that with this model on these GPUs and these drafts, even when every "
        "drafted token is kept.",
        "该模型在这些 GPU 上以这样的草稿长度，即使每个草稿 token 都被接受，任何引擎也无法更快。",
    ),
    "speed.slo.drafting": (
        "Speculative decoding yields several tokens a step: {tokens} or more would be needed, as "
        "of {drafted} drafted tokens of which {rate} or more are kept (and more for what drafting "
        "itself takes).",
        "投机解码每步可得多个 token：至少需要 {tokens} 个，例如起草 {drafted} 个 token 且"
        "接受率不低于 {rate}（起草本身的开销另计）。",
    ),
    "speed.slo.drafting_short": (
        "Speculative decoding yields several tokens a step, but {tokens} or more would be needed, "
        "beyond what drafts of {drafted} tokens yield.",
        "投机解码每步可得多个 token，但至少需要 {tokens} 个，"
        "超出起草 {drafted} 个 token 所能得到的。",
    ),
    "speed.slo.within_range": (
        "It lies within the range of the estimate, so a measurement may show that it is kept.",
        "目标仍在估计范围之内，实测也可能满足。",
    ),
    "speed.slo.help.bandwidth": (
        "Fewer bytes (quantised weights or cache) or more GPUs by tensor parallelism lower it.",
        "减少字节（量化权重或缓存），或以张量并行增加 GPU，可降低该值。",
    ),
    "speed.slo.help.compute": (
        "A shorter prompt, 8-bit arithmetic or more GPUs by tensor parallelism lower it.",
        "缩短提示、采用 8 位运算，或以张量并行增加 GPU，可降低该值。",
    ),
    "speed.slo.help.communication": (
        "Fewer ranks or a faster link between them lower it.",
        "减少 rank 数或采用更快的互连，可降低该值。",
    ),
    "speed.slo.bursts": (
        "TTFT of the last of several prompts that reach an idle server at once",
        "多个提示同时到达空闲服务器时，最后一个的 TTFT",
    ),
    "speed.slo.column.prompts": ("prompts", "提示数"),
    "speed.slo.column.ttft": ("TTFT", "TTFT"),
    "speed.slo.column.range": ("range", "范围"),
    "speed.slo.column.kept": ("kept", "满足"),
    "speed.slo.both": ("both", "两者"),
    "speed.slo.misses_note": ("Misses: of {wanted}.", "未满足：就{wanted}而言。"),
    "speed.plot.x": ("tokens/s per user", "每用户 token/s"),
    "speed.plot.y": ("output tokens/s per GPU", "每张 GPU 的输出 token/s"),
    "speed.plot.detail": (
        "Requests of {input} tokens in and {output} out; figures at the points are clients",
        "每个请求输入 {input}、输出 {output} 个 token；点旁的数字为并发客户端数",
    ),
}
