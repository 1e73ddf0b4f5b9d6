"""Sentences and labels of the ``calibrate`` report, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CALIBRATION_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "calibrate.title": (
        "{model} on {gpus} x {gpu}, {engine} {version}",
        "{model}，{gpus} x {gpu}，{engine} {version}",
    ),
    "calibrate.verdict": (
        "CALIBRATED: {figures} measured figures; the model is off by {before} of them in the "
        "median, calibrated by {after}",
        "已校准：{figures} 个实测值；校准前误差中位数 {before}，校准后 {after}",
    ),
    "calibrate.verdict_nothing": (
        "NOTHING LEARNED: {figures} measured figures tell no factor of this machine; the model is "
        "off by {before} of them in the median, and stays off by {after}",
        "未能校准：{figures} 个实测值无法确定本机的任何系数；模型误差中位数 {before}，"
        "之后仍为 {after}",
    ),
    "calibrate.held_out": (
        "Each point by a calibration without it: {held_out}",
        "逐点留出（不含该点的校准）：{held_out}",
    ),
    "calibrate.written": (
        "Profile {name} of {created}, in {file}; use it with: tokenroom speed ... --profile {name}",
        "配置 {name}（{created}），保存于 {file}；用法：tokenroom speed ... --profile {name}",
    ),
    "calibrate.written_file": (
        "Profile {name} of {created}, in {file}; use it with: tokenroom speed ... --profile-file "
        "{file}",
        "配置 {name}（{created}），保存于 {file}；用法：tokenroom speed ... --profile-file {file}",
    ),
    "calibrate.replaced": (
        "It replaces the one of {created}, on {model}.",
        "它替换了 {created} 在 {model} 上的配置。",
    ),
    "calibrate.profile": ("Profile {name} of {created}", "配置 {name}（{created}）"),
    "calibrate.removed": ("Removed {file}", "已删除 {file}"),
    "calibrate.none": (
        "There is no profile yet; tokenroom calibrate --from FILE --name NAME makes one.",
        "尚无配置；用 tokenroom calibrate --from FILE --name NAME 生成。",
    ),
    "calibrate.factors": ("Factors on the model's times", "模型时间的系数"),
    "calibrate.column.factor": ("factor", "系数"),
    "calibrate.column.range": ("range", "范围"),
    "calibrate.column.point": ("measured point", "实测点"),
    "calibrate.column.figure": ("figure", "指标"),
    "calibrate.column.load": ("clients, in/out", "并发，输入/输出"),
    "calibrate.column.measured": ("measured", "实测"),
    "calibrate.column.before": ("before", "校准前"),
    "calibrate.column.after": ("after", "校准后"),
    "calibrate.column.held_out": ("held out", "留出"),
    "calibrate.column.name": ("profile", "配置"),
    "calibrate.column.created": ("made", "生成时间"),
    "calibrate.column.deployment": ("of", "部署"),
    "calibrate.factor.compute": ("compute (prefill)", "算力（预填充）"),
    "calibrate.factor.bandwidth": ("memory traffic (decode)", "显存读写（解码）"),
    "calibrate.factor.communication": ("communication", "通信"),
    "calibrate.factor.host": ("host, each step", "主机（每步）"),
    "calibrate.factor.arrival": ("before the first step", "首步之前"),
    "calibrate.unidentified": ("not told by these points", "这些点无法确定"),
    "calibrate.figure.ttft": ("TTFT", "TTFT"),
    "calibrate.figure.tpot": ("TPOT", "TPOT"),
    "calibrate.figure.throughput": ("tokens/s", "token/s"),
    "calibrate.figure.prompt": ("prompt alone", "仅提示"),
    "calibrate.figure.generation": ("token alone", "仅单 token"),
    "calibrate.figure.both": ("prompt and tokens", "提示与生成"),
    "calibrate.remains": (
        "Range that remains (10 to 90%): TTFT {ttft_low} to {ttft_high} of the estimate, TPOT "
        "{tpot_low} to {tpot_high}.",
        "剩余范围（10% 至 90%）：TTFT 为估计值的 {ttft_low} 至 {ttft_high}，"
        "TPOT 为 {tpot_low} 至 {tpot_high}。",
    ),
    "calibrate.unknown": (
        "These points do not tell: {names}. Such factors rest on what is usual; {advice}",
        "这些点无法确定：{names}。此类系数取常见值；{advice}",
    ),
    "calibrate.advice": (
        "points at few and at many clients, with short and with long prompts, tell most.",
        "并发少与多、提示短与长的点最有帮助。",
    ),
    "calibrate.sources": ("Read", "来源"),
    "calibrate.remark.failed": (
        "{place}: {failed} of {sent} requests failed; the figures are of those that succeeded",
        "{place}：{sent} 个请求中有 {failed} 个失败；指标仅含成功的请求",
    ),
    "calibrate.remark.empty": (
        "{place}: {empty} of {sent} requests succeeded without a token; they take no part",
        "{place}：{sent} 个请求中有 {empty} 个成功但没有输出，未计入",
    ),
    "calibrate.remark.cancelled": (
        "{place}: the run was cancelled before its end",
        "{place}：测试在结束前被取消",
    ),
    "calibrate.remark.speculation": (
        "{place}: a step yielded {accepted} tokens of a request, so it ran with speculative "
        "decoding, which the deployment does not have; left out",
        "{place}：每步产出 {accepted} 个 token，说明启用了投机解码，而该部署没有；未计入",
    ),
    "calibrate.remark.cached": (
        "{place}: {share} of the prompts' tokens came from the prefix cache; its TTFT is left out",
        "{place}：提示中 {share} 的 token 来自前缀缓存；其 TTFT 未计入",
    ),
    "calibrate.remark.no_layers": (
        "{place}: no layer was on the GPU (n_gpu_layers 0); it measured the CPU",
        "{place}：没有层在 GPU 上（n_gpu_layers 为 0），测的是 CPU",
    ),
    "calibrate.remark.no_concurrency": (
        "{place}: it does not say how many requests were in flight; left out",
        "{place}：未说明同时进行的请求数；未计入",
    ),
    "calibrate.remark.burst": (
        "{place}: {sent} requests came at once and {room} run at once, so its TTFT is mostly "
        "queue; left out (give the benchmark a concurrency)",
        "{place}：{sent} 个请求同时到达，而同时运行 {room} 个，TTFT 主要是排队；"
        "未计入（请为测试设定并发）",
    ),
    "calibrate.remark.first_burst": (
        "{place}: the first requests of its {clients} clients came at once, so its mean TTFT of "
        "{sent} requests is longer than at a steady load; tokenroom speed answers for the latter, "
        "and for the same run with --concurrency {clients} --num-prompts {sent}",
        "{place}：{clients} 个客户端的首批请求同时到达，"
        "因此 {sent} 个请求的平均 TTFT 长于稳定负载；"
        "tokenroom speed 默认估计稳定负载，加 --concurrency {clients} --num-prompts {sent} "
        "则估计同样的测试",
    ),
    "calibrate.remark.other_model": (
        "{place}: it was measured on {named}, which is not known; it counts as {model}",
        "{place}：测的是 {named}，不认识该模型；按 {model} 计入",
    ),
    "calibrate.remark.outlier": (
        "{place}: {figure} is {ratio} times what the other points lead to, and counts little; was "
        "it a warm-up run, or was the machine busy?",
        "{place}：{figure} 是其他点推断值的 {ratio} 倍，权重已降低；是预热还是机器忙？",
    ),
    "calibrate.remark.contradiction": (
        "{place} and {other} have the same load and {figure} that differ {ratio} times; both count",
        "{place} 与 {other} 负载相同，但 {figure} 相差 {ratio} 倍；两者都计入",
    ),
    "calibrate.used": (
        "Calibrated by profile {name} ({created}) on {figures} figures of {files}: {factors}.",
        "按配置 {name}（{created}）校准，依据 {files} 的 {figures} 个实测值：{factors}。",
    ),
    "calibrate.used_factor": ("{name} x{value}", "{name} x{value}"),
    "calibrate.used_nothing": ("no factor differs", "系数均为 1"),
    "calibrate.differs": (
        "profile {name} was calibrated with {traits}; in published measurements factors carried "
        "over in part only, so {share} of each is taken (as logarithm) and the range is wider",
        "配置 {name} 是以 {traits} 校准的；公开实测表明系数只能部分沿用，"
        "因此各取 {share}（对数），范围相应放宽",
    ),
    "calibrate.trait": ("{trait} {value}", "{trait} {value}"),
    "calibrate.explain": (
        "Calibration: factors on the times above, by profile {name}",
        "校准：以上时间已乘以配置 {name} 的系数",
    ),
}
