"""Words of ``tokenroom watch`` and ``tokenroom replay``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WATCH_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "watch.title": (
        "tokenroom watch  {time}  every {interval}, latencies over {window}",
        "tokenroom watch  {time}  每 {interval}，延迟统计窗口 {window}",
    ),
    "watch.replay_title": (
        "tokenroom replay  {time}  {position} of {length}  x{speed}",
        "tokenroom replay  {time}  {position} / {length}  {speed} 倍速",
    ),
    "watch.aside": ("{text} ({aside})", "{text}（{aside}）"),
    "watch.named": ("{name}: {text}", "{name}：{text}"),
    "watch.alert_line": ("! {severity} ({since}) {told}", "！{severity}（{since}）{told}"),
    "watch.quit": ("Ctrl-C ends", "按 Ctrl-C 结束"),
    "watch.recording": ("recording to {file}", "记录到 {file}"),
    "watch.exporting": (
        "figures for Prometheus at http://{host}:{port}/metrics",
        "Prometheus 指标：http://{host}:{port}/metrics",
    ),
    "watch.recorded": (
        "{count} observations are in {file}",
        "{file} 中有 {count} 次观测",
    ),
    "watch.skipped": (
        "{count} lines of {file} are cut off or no observation; they are left out",
        "{file} 中有 {count} 行被截断或不是观测，已略过",
    ),
    "watch.status.waiting": ("not asked yet", "尚未查询"),
    "watch.status.up": ("up {since}", "已运行 {since}"),
    "watch.status.down": ("DOWN {since}", "已断开 {since}"),
    "watch.restarts": ("restarts: {count}", "重启 {count} 次"),
    "watch.rank": ("engine {rank}", "引擎 {rank}"),
    "watch.requests": ("Requests", "请求"),
    "watch.running_waiting": (
        "{running} running, {waiting} waiting",
        "运行 {running}，排队 {waiting}",
    ),
    "watch.kv": ("KV pool", "KV 池"),
    "watch.kv_tokens": ("{used} of {pool} tokens", "{used} / {pool} token"),
    "watch.tokens": ("Tokens", "Token"),
    "watch.token_rates": (
        "prompt {prompt}/s, output {output}/s",
        "输入 {prompt}/s，输出 {output}/s",
    ),
    "watch.more": ("Cache", "缓存"),
    "watch.hits": ("prefix hits {share}", "前缀命中 {share}"),
    "watch.preempted": ("preempted {count}", "被抢占 {count}"),
    "watch.done": (
        "since the watch began: {requests} requests, {prompt} prompt and {output} output tokens",
        "观测以来：{requests} 个请求，输入 {prompt}、输出 {output} 个 token",
    ),
    "watch.latency": ("Latency", "延迟"),
    "watch.mean": ("mean", "平均"),
    "watch.count": ("count", "次数"),
    "watch.latency.ttft": ("TTFT", "TTFT"),
    "watch.latency.itl": ("ITL", "ITL"),
    "watch.latency.tpot": ("TPOT", "TPOT"),
    "watch.latency.queue": ("queue", "排队"),
    "watch.latency.e2e": ("request", "整个请求"),
    "watch.plan": ("Plan", "预测"),
    "watch.plan_for": (
        "{model} on {gpus} x {gpu}, {engine} {version}",
        "{model}，{gpus} x {gpu}，{engine} {version}",
    ),
    "watch.plan_assumed": ("assumed: {names}", "假定：{names}"),
    "watch.plan_refused": (
        "by the plan the engine would not start",
        "按预测，引擎无法启动",
    ),
    "watch.no_plan": ("no plan: {reason}", "没有预测：{reason}"),
    "watch.predicted": ("predicted", "预测"),
    "watch.observed": ("observed", "观测"),
    "watch.part.weights": ("Weights", "权重"),
    "watch.part.activation": ("Activation peak", "激活峰值"),
    "watch.part.graphs": ("CUDA graphs", "CUDA Graph"),
    "watch.part.other": ("Context and the rest", "上下文及其他"),
    "watch.part.pool": ("KV pool", "KV 池"),
    "watch.part.peak": ("All on a GPU", "单卡合计"),
    "watch.part.tokens": ("KV tokens", "KV token 数"),
    "watch.part.length": ("max_model_len", "max_model_len"),
    "watch.part.requests": ("max_num_seqs", "max_num_seqs"),
    "watch.gpu": ("GPU {index}", "GPU {index}"),
    "watch.gpu_line": (
        "{used} of {total}, free {free}",
        "已用 {used} / {total}，空闲 {free}",
    ),
    "watch.busy": ("busy {share}", "忙 {share}"),
    "watch.mig": ("MIG", "MIG"),
    "watch.process": ("{pid} {name} {used}", "{pid} {name} {used}"),
    "watch.gpus.no_binding": (
        "GPUs are not watched: nvidia-ml-py is not installed (pip install 'tokenroom[watch]')",
        "不观测 GPU：未安装 nvidia-ml-py（pip install 'tokenroom[watch]'）",
    ),
    "watch.gpus.no_library": (
        "GPUs are not watched: this machine has no NVIDIA driver (NVML library not found)",
        "不观测 GPU：本机没有 NVIDIA 驱动（找不到 NVML 库）",
    ),
    "watch.gpus.no_driver": (
        "GPUs are not watched: the NVIDIA driver is not loaded",
        "不观测 GPU：NVIDIA 驱动未加载",
    ),
    "watch.gpus.no_permission": (
        "GPUs are not watched: the driver refuses this user",
        "不观测 GPU：驱动拒绝当前用户",
    ),
    "watch.gpus.version_mismatch": (
        "GPUs are not watched: driver and NVML library are of different versions; reboot or "
        "reload the driver",
        "不观测 GPU：驱动与 NVML 库版本不一致；请重启或重新加载驱动",
    ),
    "watch.gpus.lost": (
        "a GPU is lost: it has fallen off the bus or cannot be reached",
        "GPU 丢失：已掉线或无法访问",
    ),
    "watch.gpus.not_supported": (
        "GPUs are not watched: the driver does not support it here",
        "不观测 GPU：此处驱动不支持",
    ),
    "watch.gpus.none": ("this machine has no GPU", "本机没有 GPU"),
    "watch.gpus.unknown": (
        "GPUs are not watched: NVML answers with an error",
        "不观测 GPU：NVML 返回错误",
    ),
    "watch.no_alerts": ("no alerts", "没有告警"),
    "watch.severity.critical": ("critical", "严重"),
    "watch.severity.warning": ("warning", "警告"),
    "watch.severity.notice": ("notice", "提示"),
    "watch.ended": ("over: {alert}", "已解除：{alert}"),
    "watch.alert.endpoint_down": ("no answer: {error}", "无应答：{error}"),
    "watch.alert.restarted": (
        "the server began anew ({restarts} restarts since the watch began)",
        "服务已重新启动（观测以来重启 {restarts} 次）",
    ),
    "watch.alert.kv_high": (
        "the KV pool is {share} full, above the waterline of {waterline}",
        "KV 池已用 {share}，超过水位线 {waterline}",
    ),
    "watch.alert.preempting": (
        "{count} requests lost their KV blocks and are computed anew",
        "{count} 个请求被抢占，KV 块丢失，需重新计算",
    ),
    "watch.alert.kv_above_weights": (
        "the KV cache in use ({kv_bytes}) is larger than the weights ({weights_bytes}): a smaller "
        "cache now pays more than smaller weights",
        "使用中的 KV 缓存（{kv_bytes}）大于权重（{weights_bytes}）：压缩缓存比压缩权重更划算",
    ),
    "watch.alert.queue_growing": (
        "the queue grows: {growth} requests in {seconds}, {waiting} wait; requests come faster "
        "than they are served",
        "队列在增长：{seconds} 内增加 {growth} 个请求，{waiting} 个在等待；请求到达快于处理",
    ),
    "watch.alert.torch_gap": (
        "PyTorch holds {gap_bytes} of the {reserved_bytes} it reserved on GPU {gpu} in no tensor "
        "(cache or fragments)",
        "GPU {gpu} 上 PyTorch 保留的 {reserved_bytes} 中有 {gap_bytes} 不属于任何张量"
        "（缓存或碎片）",
    ),
    "watch.alert.host_leak": (
        "the server's host memory keeps growing: {growth_bytes} in {seconds}, now {held_bytes}",
        "服务的主机内存持续增长：{seconds} 内增加 {growth_bytes}，现为 {held_bytes}",
    ),
    "watch.alert.gpu_leak": (
        "process {pid} ({name}) keeps growing: {growth_bytes} in {seconds}, now {held_bytes}",
        "进程 {pid}（{name}）显存持续增长：{seconds} 内增加 {growth_bytes}，现为 {held_bytes}",
    ),
    "watch.alert.gpu_growing": (
        "its memory keeps growing: {growth_bytes} in {seconds}, now {held_bytes}",
        "显存占用持续增长：{seconds} 内增加 {growth_bytes}，现为 {held_bytes}",
    ),
    "watch.alert.pool_smaller": (
        "the KV pool is {off} smaller than planned: {observed} tokens, not {predicted}",
        "KV 池比预测小 {off}：{observed} 个 token，而非 {predicted}",
    ),
    "watch.alert.pool_larger": (
        "the KV pool is {off} larger than planned: {observed} tokens, not {predicted}",
        "KV 池比预测大 {off}：{observed} 个 token，而非 {predicted}",
    ),
    "watch.alert.gpu_full": (
        "only {free_bytes} is free: the next allocation may fail",
        "仅剩 {free_bytes} 空闲：下一次分配可能失败",
    ),
    "watch.alert.above_plan": (
        "more is in use than planned: {used_bytes}, not {planned_bytes}",
        "占用高于预测：{used_bytes}，而非 {planned_bytes}",
    ),
    "watch.alert.process_vanished": (
        "process {pid} ({name}) is gone from the GPU; tokenroom explain tells why, by its log",
        "进程 {pid}（{name}）已从 GPU 消失；可用 tokenroom explain 查看其日志原因",
    ),
    "watch.help_starts_not": ("would not start", "将无法启动"),
    "watch.help_pool": ("pool {before} to {after} tokens", "KV 池 {before} 变为 {after} token"),
    "watch.line": (
        "running {running}, waiting {waiting}, KV {kv}, prompt {prompt}/s, output {output}/s, "
        "TTFT {ttft}, ITL {itl}, preempted {preempted}",
        "运行 {running}，排队 {waiting}，KV {kv}，输入 {prompt}/s，输出 {output}/s，"
        "TTFT {ttft}，ITL {itl}，被抢占 {preempted}",
    ),
}
