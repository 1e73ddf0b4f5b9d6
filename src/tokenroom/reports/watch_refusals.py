"""Why a watched server is down or has no plan, in Chinese: refusals of ``watching`` as patterns."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = (
    # English, as a pattern: Chinese
    # watching/fetching.py; what the system says stands behind the address
    (r"(?P<url>https?://\S+): Connection refused", "{url}：连接被拒绝，该地址没有服务在监听"),
    (r"(?P<url>https?://\S+): Connection reset by peer", "{url}：连接被对方重置"),
    (
        r"(?P<url>https?://\S+): (?:Remote end closed connection without response"
        r"|IncompleteRead\(.*\))",
        "{url}：连接在应答完成之前被对方关闭",
    ),
    (r"(?P<url>https?://\S+): No route to host", "{url}：没有到该主机的路由"),
    (r"(?P<url>https?://\S+): Network is unreachable", "{url}：网络不可达"),
    (
        r"(?P<url>https?://\S+): (?:Name or service not known|Temporary failure in name resolution"
        r"|No address associated with hostname|nodename nor servname provided, or not known)",
        "{url}：无法解析主机名",
    ),
    (
        r"(?P<url>https?://\S+): a page of more than (?P<most>\d+) MiB",
        "{url}：页面超过 {most} MiB",
    ),
    (
        r"(?P<url>https?://\S+): no answer within (?P<seconds>\S+) s",
        "{url}：{seconds} 秒内无应答",
    ),
    (r"(?P<url>https?://\S+): no answer for (?P<seconds>\S+) s", "{url}：已 {seconds} 秒无应答"),
    (r"(?P<url>https?://\S+) and TLS: (?P<why>.+)", "{url} 的 TLS 出错：{why}"),
    # watching/probing.py, watching/exposition.py
    (
        r"it wants a key for /metrics \(status (?P<status>\d+)\); give it with --api-key",
        "/metrics 需要密钥（状态码 {status}）；请用 --api-key 给出",
    ),
    (
        r"its /metrics has figures of no engine that is known: (?P<known>.+), or (?P<last>\S+)",
        "/metrics 中没有已知引擎（{known}）的指标，也没有 {last}",
    ),
    (
        r"its (?P<path>\S+) answers with status (?P<status>\d+)",
        "{path} 返回状态码 {status}",
    ),
    (
        r"it serves no /metrics and is no engine that is known .+",
        "没有 /metrics，也不是已知的引擎（SGLang 需要 --enable-metrics，"
        "llama-server 需要 --metrics）",
    ),
    (
        r"llama-server serves neither /metrics nor /slots; start it with --metrics",
        "llama-server 既不提供 /metrics 也不提供 /slots；请加 --metrics 启动",
    ),
    (r"the page of metrics is empty", "指标页面为空"),
    (r"the page of metrics cannot be read: (?P<why>.+)", "无法读取指标页面：{why}"),
    # watching/planned.py, cli/watched_servers.py, models/resolve.py
    (
        r"--as describes (?P<described>\S+), and (?P<answers>\S+) answers; describe what was "
        r"started",
        "--as 描述的是 {described}，而应答的是 {answers}；请给出实际启动的命令",
    ),
    (
        r"what (?P<engine>\S+) servers hold is not predicted from a page",
        "无法仅凭页面预测 {engine} 服务的显存",
    ),
    (
        r"the server does not tell its model; describe it with --as",
        "服务没有给出模型；请用 --as 说明",
    ),
    (
        r"nobody says what GPU the server runs on; name it with --gpu",
        "不知道服务运行在哪种 GPU 上；请用 --gpu 指明",
    ),
    (
        r"(?P<model>\S+) is not in the catalogue \(near it: (?P<near>[^)]+)\); pip install "
        r"'tokenroom\[hub\]' to read it from the Hub, or give the path of its config\.json.*",
        "{model} 不在目录中；相近的有：{near}；安装 pip install 'tokenroom[hub]' 后可从 Hub 读取，"
        "或给出其 config.json 的路径",
    ),
    (
        r"(?P<model>\S+) is not in the catalogue; pip install 'tokenroom\[hub\]' to read it from "
        r"the Hub, or give the path of its config\.json.*",
        "{model} 不在目录中；安装 pip install 'tokenroom[hub]' 后可从 Hub 读取，"
        "或给出其 config.json 的路径",
    ),
)
