"""Refusals in Chinese, for those that people meet most; others stay in the English they are in.

A refusal is a sentence with values in it, raised where the input is read. Here each known sentence
is a pattern whose groups are those values.
"""

from __future__ import annotations

import re
from typing import Final

from tokenroom.reports.messages import Language
from tokenroom.reports.watch_refusals import SENTENCES as _WATCHED

_SENTENCES: Final = tuple(
    (re.compile(pattern, re.DOTALL), chinese)
    for pattern, chinese in (
        # English, as a pattern: Chinese
        (
            r"model is (?P<model>.+), which is not in the catalogue; near it: (?P<near>.+); choose "
            r"a listed one, or give its config\.json",
            "模型 {model} 不在目录中；相近的有：{near}；请选择目录中的模型，或提供其 config.json",
        ),
        (
            r"model is (?P<model>.+), which is not in the catalogue; choose a listed one, or give "
            r"its config\.json",
            "模型 {model} 不在目录中；请选择目录中的模型，或提供其 config.json",
        ),
        (
            r"no GPU is called (?P<name>.+); near it are (?P<near>.+); for a part .+",
            "没有名为 {name} 的 GPU；相近的有：{near}；未列出的 GPU 请给出其显存，如 96GiB",
        ),
        (
            r"no GPU is called (?P<name>.+); `tokenroom gpus` .+",
            "没有名为 {name} 的 GPU；请从列表中选择，未列出的 GPU 请给出其显存，如 96GiB",
        ),
        (
            r"the (?P<engine>\S+) version is (?P<version>.+); write it as (?P<example>\S+)",
            "{engine} 版本为 {version}；请写成 {example} 的形式",
        ),
        (
            r"(?P<engine>\S+) has no setting (?P<name>.+); did you mean (?P<near>.+)\?",
            "{engine} 没有设置 {name}；是否指 {near}？",
        ),
        (
            r"(?P<name>\S+) is (?P<value>.+); it must be a whole number of at least (?P<least>\d+)",
            "{name} 为 {value}；必须是不小于 {least} 的整数",
        ),
        (
            r"tensor_parallel_size is (?P<size>\d+), which does not divide the model's "
            r"(?P<heads>\d+) attention heads; use (?P<use>\d+) or another divisor",
            "tensor_parallel_size 为 {size}，不能整除模型的 {heads} 个注意力头；"
            "请用 {use} 或其他约数",
        ),
        (
            r"max_model_len is (?P<asked>\d+), but the model takes at most (?P<most>\d+) tokens .+",
            "max_model_len 为 {asked}，而模型最多支持 {most} 个 token；请给出更小的值",
        ),
        (
            r"gpus is (?P<count>\d+); give at most (?P<most>[\d,]+)",
            "GPU 数为 {count}；最多 {most}",
        ),
        (
            r"(?P<name>\S+) is (?P<value>.+); give a positive time with a unit, such as 50ms or 2s",
            "{name} 为 {value}；请写带单位的正时间，如 50ms 或 2s",
        ),
        (
            r"(?P<name>\S+) is (?P<value>.+); give a positive whole number of tokens, such as 8192 "
            r"or 32k",
            "{name} 为 {value}；请写正整数个 token，如 8192 或 32k",
        ),
        (
            r"(?P<name>\S+) is (?P<value>.+); write a number, as (?P<example>\S+)",
            "{name} 为 {value}；请写数字，如 {example}",
        ),
        (
            r"the text is no config\.json, no command .+; paste it whole",
            "该文本不是 config.json、不是已知引擎的启动命令，也不是其启动日志；请完整粘贴",
        ),
        (
            r"the command names no model; give it as (?P<example>.+)",
            "命令没有指定模型；请写成 {example}",
        ),
        (
            r"the workload is (?P<text>.+), which begins with neither a process \((?P<processes>.+)"
            r"\) nor a preset \((?P<presets>.+)\); write it as in (?P<example>\S+)",
            "负载 {text} 既不以到达过程（{processes}）也不以预设（{presets}）开头；"
            "请写成 {example} 的形式",
        ),
        (
            r"(?P<name>\S+) needs (?P<key>\S+); write it as in (?P<example>\S+)",
            "{name} 需要 {key}；请写成 {example} 的形式",
        ),
        (
            r"(?P<name>\S+) has no (?P<key>'.+'); it takes (?P<keys>.+)",
            "{name} 没有 {key}；可用的有 {keys}",
        ),
        (
            r"the workload has more than the (?P<most>[\d,]+) requests that are simulated here; .+",
            "负载超过此处可模拟的 {most} 个请求；请减少请求数，或只取一部分",
        ),
        (
            r"(?P<trace>.+), line (?P<line>[\d,]+): (?P<field>\w+) is (?P<value>.+), which is no "
            r"(?:number|time); .+",
            "{trace} 第 {line} 行：{field} 为 {value}，无法读作数值",
        ),
        (
            r"(?P<trace>.+), line (?P<line>[\d,]+): its (?P<field>input|output) length is "
            r"(?P<value>\S+), which is negative; .+",
            "{trace} 第 {line} 行：{field} 长度为负数 {value}",
        ),
        (
            r"(?P<trace>\S+) has no column of .+, only '(?P<columns>.+)'; .+",
            "{trace} 没有可识别的到达时间与输入、输出长度列，只有 {columns}",
        ),
        (
            r"(?P<trace>\S+) has no request; give a trace with at least one",
            "{trace} 中没有请求；请给出至少含一个请求的轨迹",
        ),
        (
            r"engine (?P<engine>\S+) is not simulated; it may be (?P<engines>.+)",
            "不模拟引擎 {engine}；可以是 {engines}",
        ),
        (
            r"the row or log names no GPU; for a log give it with --gpu",
            "日志未指明 GPU；请用 --gpu 给出",
        ),
        (
            r"the row or log names no model; for a log give it with --model",
            "日志未指明模型；请用 --model 给出",
        ),
        (
            r"(?P<log>.+) holds no line that .+ prints while starting; give the start-up log, .+",
            "{log} 中没有引擎启动时打印的行；请给出从第一行开始的启动日志",
        ),
        (r"the engine has no flag (?P<flag>\S+)", "引擎没有选项 {flag}"),
        (
            r"gpu is (?P<gpu>.+); GPUs of different kinds are not predicted",
            "GPU 为 {gpu}；不预测混用的 GPU",
        ),
        (
            r"the job took longer than the (?P<seconds>\S+) s it may; ask for less",
            "任务超过了允许的 {seconds} 秒；请减小规模",
        ),
        *_WATCHED,
    )
)


def refusal_in(language: Language, sentence: str) -> str:
    """A refusal in the reader's language where it is one of the known ones."""
    if language is Language.CHINESE:
        for pattern, chinese in _SENTENCES:
            found = pattern.fullmatch(sentence)
            if found is not None:
                return chinese.format_map(found.groupdict())
    return sentence
