"""Sentences and labels of the ``plan`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PLAN_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "plan.title": ("{models} for {load}", "{models}：{load}"),
    "plan.load.users": (
        "{users} users who think {think} on average (exponential) between an answer and the next "
        "request",
        "{users} 个用户，收到回答后平均思考 {think}（指数分布）再发下一个请求",
    ),
    "plan.load.clients": (
        "{users} clients who each keep one request in flight",
        "{users} 个客户端，各自始终有一个请求在途",
    ),
    "plan.load.rate": ("{rate} requests a second", "每秒 {rate} 个请求"),
    "plan.load.bursts": (
        "{rate} requests a second on average, with bursts of {factor} times as many",
        "平均每秒 {rate} 个请求，突发时为 {factor} 倍",
    ),
    "plan.lengths": (
        "{input} tokens in and {output} out on average, {longest} together at most; {promises}",
        "平均输入 {input}、输出 {output} 个 token，合计最长 {longest}；{promises}",
    ),
    "plan.simulated": (
        "These figures are of {requests} simulated requests; the model of step times is off by 11% "
        "in the median of measured TPOTs and by 23% of TTFTs.",
        "以上为 {requests} 个模拟请求的结果；与实测相比的误差中位数：TPOT 为 11%，TTFT 为 23%。",
    ),
    "plan.promise": ("{name} {statistic} at most {time}", "{name} {statistic} 不超过 {time}"),
    "plan.statistic.mean": ("on average", "均值"),
    "plan.statistic.p50": ("of half of the requests", "的中位数"),
    "plan.statistic.p90": ("of 90% of the requests", "的 P90"),
    "plan.statistic.p95": ("of 95% of the requests", "的 P95"),
    "plan.statistic.p99": ("of 99% of the requests", "的 P99"),
    "plan.join": ("; ", "；"),
    "plan.found": (
        "{judged} deployments judged, {layouts} layouts with settings of their engines; each of "
        "these was simulated under its share of the load",
        "共评估 {judged} 种部署（{layouts} 种划分方式及其引擎参数）；"
        "下列各项都在各自分担的负载下做过模拟",
    ),
    "plan.found.bounds": (
        "{all} deployments, {layouts} layouts with settings of their engines: {judged} "
        "judged, {skipped} ruled out together with one of those; each of these was simulated "
        "under its share of the load",
        "共 {all} 种部署（{layouts} 种划分方式及其引擎参数）：评估 {judged} 种，另有 {skipped} "
        "种随其中之一一并排除；下列各项都在各自分担的负载下做过模拟",
    ),
    "plan.quality.source": ("{text} ({source})", "{text}（{source}）"),
    "plan.quality.weights.fp8": (
        "Weights in {name}: answers as good as in 16 bits",
        "权重为 {name}：回答质量与 16 位相当",
    ),
    "plan.quality.weights.int8": (
        "Weights in {name}: 1 to 3% lower accuracy when well tuned",
        "权重为 {name}：调校得当时准确率下降 1% 至 3%",
    ),
    "plan.quality.weights.int4": (
        "Weights in {name}: accuracy rivals 8 bits, measure it on tasks of your own",
        "权重为 {name}：准确率接近 8 位，请用自己的任务验证",
    ),
    "plan.quality.weights.nvfp4": (
        "Weights in {name}: accuracy falls by a point or two",
        "权重为 {name}：准确率下降一至两个百分点",
    ),
    "plan.quality.weights.lower": (
        "Weights in {name}: what that does to answers is not known here, measure it",
        "权重为 {name}：对回答质量的影响未知，请自行验证",
    ),
    "plan.quality.kv.fp8": (
        "KV cache in {name}: accuracy typically falls only minimally",
        "KV 缓存为 {name}：准确率通常只有极小下降",
    ),
    "plan.quality.kv.lower": (
        "KV cache in {name}: what that does to answers is not known here, measure it",
        "KV 缓存为 {name}：对回答质量的影响未知，请自行验证",
    ),
    "plan.tuning.budget": ("budget {value}", "每步 {value} token"),
    "plan.tuning.seqs": ("seqs {value}", "并发上限 {value}"),
    "plan.tuning.share": ("util {value}", "显存比例 {value}"),
    "plan.tuning.length": ("length {value}", "长度 {value}"),
    "plan.tuning.caching_on": ("prefix caching", "前缀缓存"),
    "plan.tuning.caching_off": ("no prefix caching", "无前缀缓存"),
    "plan.tuning.offload": ("KV offload {size}", "KV 卸载 {size}"),
    "plan.tuning.draft": ("draft {draft}", "投机 {draft}"),
    "plan.interrupted": (
        "Interrupted: this is what had been found by then.",
        "已中断：以下是到此为止找到的结果。",
    ),
    "plan.column.deployment": ("Deployment", "部署"),
    "plan.column.gpus": ("GPUs", "GPU 数"),
    "plan.column.usd": ("$/hour", "$/小时"),
    "plan.column.ttft": ("TTFT {statistic}", "TTFT {statistic}"),
    "plan.column.tpot": ("TPOT {statistic}", "TPOT {statistic}"),
    "plan.column.tokens": ("output tokens/s", "输出 token/s"),
    "plan.column.room": ("Room for", "可承载"),
    "plan.column.limiter": ("Limited by", "受限于"),
    "plan.replicas": ("{replicas} x [{each}]", "{replicas} x [{each}]"),
    "plan.first": ("Cheapest: {deployment}", "费用最低：{deployment}"),
    "plan.first.smallest": ("Least GPU memory: {deployment}", "显存总量最少：{deployment}"),
    "plan.share.users": (
        "Each replica serves {load} users: {running} requests are in flight on average, {most} "
        "run at most; its KV pool of {tokens} tokens is {used} full at most.",
        "每个副本服务 {load} 个用户：平均在途 {running} 个请求，同时运行最多 {most} 个；"
        "{tokens} 个 token 的 KV 池最多用到 {used}。",
    ),
    "plan.share.rate": (
        "Each replica serves {load} requests a second: {running} are in flight on average, {most} "
        "run at most; its KV pool of {tokens} tokens is {used} full at most.",
        "每个副本每秒处理 {load} 个请求：平均在途 {running} 个，同时运行最多 {most} 个；"
        "{tokens} 个 token 的 KV 池最多用到 {used}。",
    ),
    "plan.share.split": (
        "Prompts: {prompts}, answers: {answers}, on one host. Each replica serves {load}: "
        "{running} requests in flight on average, {most} on a server at most; the KV pool of a "
        "server of answers holds {tokens} tokens, and no pool is more than {used} full.",
        "同一主机上：预填充 {prompts}，解码 {answers}。每个副本服务 {load}："
        "平均有 {running} 个请求在途，单个服务器最多运行 {most} 个；解码服务器的 KV 池可放 "
        "{tokens} 个 token，各池最多用到 {used}。",
    ),
    "plan.servers": ("{count} x {each}", "{count} x {each}"),
    "plan.reason.split": (
        "prompts and answers on servers of their own would take {gpus} GPUs, and {by} takes "
        "{by_gpus}: disaggregating does not pay here",
        "预填充与解码分离部署需要 {gpus} 张 GPU，而 {by} 只需 {by_gpus} 张：此处分离并不划算",
    ),
    "plan.limited": (
        "A token takes {tpot} in the mean, {share} of it {limiter}.",
        "平均每个 token 用时 {tpot}，其中 {share} 为{limiter}。",
    ),
    "plan.mark": ("~{deployment}", "~{deployment}"),
    "plan.marked": (
        "~ No operator of this GPU was measured, and its speed may be off by half; name others "
        "with --gpus-from.",
        "~ 该 GPU 没有实测算子，速度误差可能达一半；可用 --gpus-from 指定其他 GPU。",
    ),
    "plan.unpriced": (
        "Without prices, by the memory of all GPUs; --price {gpu}=USD (of one GPU for an hour) "
        "puts the cheapest first.",
        "未给价格，按 GPU 显存总量排列；用 --price {gpu}=美元（单张每小时）可按费用排列。",
    ),
    "plan.extrapolated": (
        "No operator of {gpu} was measured: its speed is carried over from other GPUs, and may be "
        "off by half.",
        "{gpu} 没有实测算子：其速度由其他 GPU 推算，误差可能达一半。",
    ),
    "plan.quality": ("Quality: {text}", "质量：{text}"),
    "plan.start": ("Start each with:", "每个副本的启动命令："),
    "plan.written": ("Written to {folder}: {files}", "已写入 {folder}：{files}"),
    "plan.none": (
        "Nothing that was tried meets this. The nearest:",
        "所尝试的部署都达不到要求。最接近的：",
    ),
    "plan.rejected": ("Not proposed", "未采用"),
    "plan.rejected.line": ("{deployment}: {reason}", "{deployment}：{reason}"),
    "plan.rejected.more": ("{count} more alike", "另有 {count} 个同类"),
    "plan.all_hint": ("--all lists each of them.", "--all 可逐一列出。"),
    "plan.reason.refused": ("{text}", "{text}"),
    "plan.reason.memory": ("does not fit: {text}", "放不下：{text}"),
    "plan.reason.weights": (
        "the weights of {weights_bytes} need {gpus} of these GPUs, and at most {most} were to be "
        "tried for a replica",
        "权重 {weights_bytes} 需要 {gpus} 张这种 GPU，而每个副本最多只尝试 {most} 张",
    ),
    "plan.reason.ttft": (
        "one request alone has its first token after {alone}, and {wanted} is promised; {share} "
        "of its prompt's step is {limiter}, and physics allows {floor}",
        "单个请求的首个 token 需要 {alone}，而要求 {wanted}；其预填充用时的 {share} 为{limiter}，"
        "物理下限为 {floor}",
    ),
    "plan.reason.tpot": (
        "one request alone takes {alone} a token, and {wanted} is promised; {share} of a step is "
        "{limiter}, and physics allows {floor}",
        "单个请求每个 token 需要 {alone}，而要求 {wanted}；每步的 {share} 为{limiter}，"
        "物理下限为 {floor}",
    ),
    "plan.reason.gpus": (
        "needs {gpus} GPUs and there are {most}, which serve {served}",
        "需要 {gpus} 张 GPU，而只有 {most} 张，可承载 {served}",
    ),
    "plan.reason.gpus.none": (
        "needs {gpus} GPUs, and the {most} that there are hold no replica",
        "需要 {gpus} 张 GPU，而现有的 {most} 张连一个副本也放不下",
    ),
    "plan.reason.unpriced": (
        "its GPU has no price, so what it costs of the budget is not known",
        "其 GPU 没有价格，无法判断是否在预算之内",
    ),
    "plan.served.users": ("{count} users", "{count} 个用户"),
    "plan.served.rate": ("{rate} requests a second", "每秒 {rate} 个请求"),
    "plan.reason.budget": (
        "needs {gpus} GPUs for ${usd} an hour, and ${most} may be spent",
        "需要 {gpus} 张 GPU，每小时 ${usd}，而预算为 ${most}",
    ),
    "plan.reason.replicas": (
        "needs {replicas} replicas, more than one service has",
        "需要 {replicas} 个副本，超出一个服务的规模",
    ),
    "plan.cost.gpus": ("{gpus} GPUs", "{gpus} 张 GPU"),
    "plan.cost.usd": ("${usd} an hour", "${usd}/小时"),
    "plan.reason.dominated": (
        "takes {cost}, and {by} for {by_cost} is as fast and has as much room",
        "需要 {cost}，而 {by} 只需 {by_cost}，速度与余量不差于它",
    ),
    "plan.reason.dominated.communication": (
        "takes {cost}, and {by} for {by_cost} is as fast and has as much room: exchanging between "
        "GPUs over {link} is {share} of a step",
        "需要 {cost}，而 {by} 只需 {by_cost}，速度与余量不差于它："
        "GPU 间经 {link} 的通信占每步的 {share}",
    ),
    "plan.reason.simulation": (
        "the closed form says that it holds, but simulated with {gpus} GPUs {name} is "
        "{seconds} {statistic}, and {wanted} is promised",
        "按闭式解可行，但用 {gpus} 张 GPU 模拟时 {name} {statistic}为 {seconds}，而要求 {wanted}",
    ),
    "plan.untried": (
        "{count} more hold by the closed form and were not simulated (--top asks for more).",
        "另有 {count} 个按闭式解可行，未做模拟（--top 可多要几个）。",
    ),
    "plan.unproven": (
        "Best by the closed form, on average and not simulated yet:",
        "以下为按闭式解（平均值）最好的部署，尚未模拟：",
    ),
    "plan.unproven.line": (
        "{deployment}: {cost}, TTFT {ttft}, TPOT {tpot}, room for {room}",
        "{deployment}：{cost}，TTFT {ttft}，TPOT {tpot}，可承载 {room}",
    ),
    "plan.judging": ("judging {done} of {of}: {subject}", "评估 {done}/{of}：{subject}"),
    "plan.verifying": (
        "simulating, {done} of {of} found: {subject}",
        "模拟中，已找到 {done}/{of}：{subject}",
    ),
    "plan.plot.cost": ("GPUs", "GPU 数"),
    "plan.plot.usd": ("USD an hour", "美元/小时"),
    "plan.plot.tpot": ("TPOT, ms", "TPOT（毫秒）"),
    "plan.plot.each": ("Each replica of {deployment}", "{deployment} 的每个副本"),
    "plan.plot.others": ("by the closed form", "按闭式解"),
    "plan.plot.users": ("clients of one replica", "单个副本的客户端数"),
    "plan.plot.memory": ("GiB of one GPU", "单张 GPU 的 GiB"),
    "plan.plot.queue": ("waiting outside of the GPU", "在 GPU 之外排队"),
    "plan.plot.bxs": ("requests at once", "同时运行的请求数"),
    "plan.plot.length": ("tokens of a request", "每个请求的 token 数"),
    "plan.plot.here": ("this demand", "本需求"),
}
