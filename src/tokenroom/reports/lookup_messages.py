"""Sentences and labels of ``table`` and ``recipe``, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOOKUP_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "table.title.params": (
        "Parameters, and weights in GB (10^9 bytes) by layout",
        "参数量，以及各种存储方式下的权重（GB，10^9 字节）",
    ),
    "table.title.kv": (
        "KV cache in GiB of requests at once, by their number and length; {kv_dtype}",
        "并发请求的 KV 缓存（GiB），按请求数与长度；{kv_dtype}",
    ),
    "table.title.concurrency": (
        "Requests of {tokens} tokens at once under {engine}: on the fewest GPUs that start, and on "
        "twice as many; GiB a GPU",
        "{engine} 下同时可容纳的 {tokens} token 请求数：能启动的最少 GPU 与其两倍；"
        "单位为每张 GPU 的 GiB",
    ),
    "table.title.gpus-for-users": (
        "GPUs by users under {engine}: {input} tokens in, {output} out{think}; "
        "{promises} on average, by the closed form",
        "{engine} 下各用户数所需 GPU：输入 {input}、输出 {output} 个 token{think}；"
        "平均 {promises}，按闭式解",
    ),
    "table.title.reference": (
        "The fewest GPUs that start, and the fewest that run {requests} requests of {tokens} "
        "tokens at once, under {engine}",
        "{engine} 下能启动的最少 GPU，以及能同时运行 {requests} 个 {tokens} token 请求的最少 GPU",
    ),
    "table.think": (", thinking {time} between requests", "，请求之间思考 {time}"),
    "table.remark": (
        "{model}: does not start on {count} x {gpu} or fewer",
        "{model}：{count} 张及以下 {gpu} 均无法启动",
    ),
    "table.column.model": ("Model", "模型"),
    "table.column.gpu": ("GPU", "GPU"),
    "table.column.gpus": ("GPUs", "GPU 数"),
    "table.column.batch": ("Requests", "请求数"),
    "table.column.parameters": ("Parameters", "参数量"),
    "table.column.active": ("Active", "激活参数"),
    "table.column.weights": ("Weights", "权重"),
    "table.column.pool": ("KV pool", "KV 池"),
    "table.column.request": ("A request", "单个请求"),
    "table.column.held": ("Held", "可容纳"),
    "table.column.running": ("Run at once", "同时运行"),
    "table.column.least": ("Fewest GPUs", "最少 GPU"),
    "table.column.least_running": ("run at once", "同时运行"),
    "table.column.enough": ("Enough GPUs", "足够的 GPU"),
    "table.column.enough_running": ("run at once", "同时运行"),
    "table.column.command": ("Command", "启动命令"),
    "table.heat.users": ("users", "用户数"),
    "table.heat.lengths": ("tokens of a request", "每个请求的 token 数"),
    "table.written": ("Wrote {file}", "已写入 {file}"),
    "pools.about": (
        "{servers} servers; workload: {workload}",
        "{servers} 台服务器；负载：{workload}",
    ),
    "pools.interrupted": (
        "Interrupted: this is what had been tried by then.",
        "已中断：以下是到此为止试过的结果。",
    ),
    "pools.mixed": ("all {servers} mixed", "{servers} 台混合"),
    "pools.split": (
        "{short} for prompts up to {threshold} tokens, {long} for longer ones",
        "{short} 台处理输入不超过 {threshold} 个 token 的请求，{long} 台处理更长的",
    ),
    "pools.one": ("one pool", "一个池"),
    "pools.column.threshold": ("Short prompts up to", "短输入上限"),
    "pools.column.short": ("servers", "服务器"),
    "pools.column.long": ("longer ones", "更长的"),
    "pools.column.kept": ("Promises kept", "达标"),
    "pools.column.ttft": ("TTFT p95", "TTFT p95"),
    "pools.column.tpot": ("TPOT p95", "TPOT p95"),
    "pools.searched": (
        "On the draw that was searched, where the best looks better than it is.",
        "以上为搜索所用的那一次抽样；从中选出的最优者会显得比实际更好。",
    ),
    "pools.nothing": (
        "All prompts are of one length, so there is nothing to split.",
        "所有请求的输入长度相同，无从拆分。",
    ),
    "pools.pays": ("Splitting pays.", "拆分划算。"),
    "pools.harms": ("Splitting does not pay: it keeps fewer.", "拆分不划算：达标更少。"),
    "pools.unsure": (
        "Splitting does not pay: what it gains cannot be told from chance.",
        "拆分不划算：其收益与随机波动无法区分。",
    ),
    "pools.figures": (
        "One mixed pool keeps {promises} for {mixed} of all requests; {split} for {best}: {gain} "
        "percentage points ({confidence} interval over {draws} draws).",
        "混合池对 {mixed} 的请求满足 {promises}；{split}则为 {best}：{gain} 个百分点"
        "（{draws} 次抽样的 {confidence} 区间）。",
    ),
    "recipe.title": ("Settings for {lengths}", "按以下请求得出的配置：{lengths}"),
    "recipe.of.trace": (
        "{count} requests of {name}: {input} tokens in and {output} out on average",
        "{name} 的 {count} 个请求，平均输入 {input}、输出 {output} 个 token",
    ),
    "recipe.of.length": (
        "requests of which 95% keep within {tokens} tokens",
        "长度 95% 不超过 {tokens} 个 token 的请求",
    ),
    "recipe.p95": (
        "95% of the requests keep within {tokens} tokens, prompt and answer together.",
        "95% 的请求不超过 {tokens} 个 token（输入加输出）。",
    ),
    "recipe.length": (
        "A fifth more, rounded up to a multiple of 128: max_model_len {tokens}.",
        "加 20% 余量并向上取整到 128 的倍数：max_model_len {tokens}。",
    ),
    "recipe.length_cut": (
        "A fifth more would exceed what the model was made for: max_model_len {tokens}.",
        "加 20% 余量会超出模型支持的长度：max_model_len {tokens}。",
    ),
    "recipe.request": (
        "A request of that length holds {request_bytes} of KV cache on each GPU.",
        "这样长的一个请求在每张 GPU 上占用 {request_bytes} 的 KV 缓存。",
    ),
    "recipe.ceiling": (
        "The pool of {tokens} tokens ({pool_bytes} a GPU) holds {requests} of them: the ceiling.",
        "KV 池共 {tokens} 个 token（每张 GPU {pool_bytes}），可容纳 {requests} 个：这是并发上限。",
    ),
    "recipe.waterline": (
        "80% of them: {requests} at once.",
        "取其 80% 作为水位线：同时运行 {requests} 个。",
    ),
    "recipe.batch": (
        "A token takes {tpot} at most on average with up to {requests} at once.",
        "平均每个 token 不超过 {tpot} 时，最多可同时运行 {requests} 个。",
    ),
    "recipe.batch_all": (
        "A token takes less than {tpot} on average even with {requests} at once, so that the "
        "promise does not limit them.",
        "即使同时运行 {requests} 个，平均每个 token 也不超过 {tpot}，因此该要求不构成限制。",
    ),
    "recipe.batch_none": (
        "Not even one request alone has its tokens within {tpot} on average; the promise is out of "
        "reach on these GPUs.",
        "即使单个请求，平均每个 token 也超过 {tpot}；这些 GPU 达不到该要求。",
    ),
    "recipe.seqs": (
        "The least of these: max_num_seqs {requests}.",
        "取以上最小值：max_num_seqs {requests}。",
    ),
    "recipe.budget": (
        "A step of {tokens} tokens beside {requests} decoding requests takes {time}: the pause "
        "that a prompt makes for the others.",
        "{requests} 个请求在解码时，处理满 {tokens} 个 token 的一步用时 {time}："
        "新请求预填充时，其他请求会停顿这么久。",
    ),
    "recipe.budget_long": (
        "That is longer than {count} promised tokens, and smaller steps are not possible here.",
        "这超过了 {count} 个 token 的承诺时间，而这里无法再减小每步的 token 数。",
    ),
    "recipe.speed": (
        "{clients} clients with requests of {input} tokens in and {output} out then see a TTFT of "
        "{ttft} and a TPOT of {tpot} on average, {requests} requests/s and {tokens} tokens/s in "
        "all.",
        "此时 {clients} 个客户端（输入 {input}、输出 {output} 个 token）平均 TTFT {ttft}、"
        "TPOT {tpot}，合计每秒 {requests} 个请求、{tokens} 个 token。",
    ),
    "recipe.rate": (
        "Requests come at {rate}/s and one such deployment serves {served}/s: more copies are "
        "needed; tokenroom plan says how many.",
        "请求每秒到达 {rate} 个，而一个这样的部署每秒只能处理 {served} 个，需要更多副本；"
        "数量可用 tokenroom plan 求得。",
    ),
    "recipe.start": ("Start it with:", "启动命令："),
}
