"""Every sentence and label that a person reads, in English and in Chinese, by key.

A text names its values in braces. How a value is written follows from its name: ``*_bytes`` as
GiB, whole numbers with thousands separators, a ``kind`` of layers, a ``phase`` or a ``vendor`` by
the text of that name, everything else as it is. Both languages of a key hold the same names; a
test sees to that and to every key the code uses. English texts are written for many of everything;
what there is one of is put in the singular.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from unicodedata import category

from tokenroom.reports.calibration_messages import CALIBRATION_MESSAGES
from tokenroom.reports.claims_messages import CLAIMS_MESSAGES
from tokenroom.reports.comparison_messages import COMPARISON_MESSAGES
from tokenroom.reports.device_messages import DEVICE_MESSAGES
from tokenroom.reports.diagnosis_messages import DIAGNOSIS_MESSAGES
from tokenroom.reports.engine_messages import ENGINE_MESSAGES
from tokenroom.reports.fit_messages import FIT_MESSAGES
from tokenroom.reports.fleet_messages import FLEET_MESSAGES
from tokenroom.reports.lookup_messages import LOOKUP_MESSAGES
from tokenroom.reports.measure_messages import MEASURE_MESSAGES
from tokenroom.reports.plan_messages import PLAN_MESSAGES
from tokenroom.reports.quality_messages import QUALITY_MESSAGES
from tokenroom.reports.serve_messages import SERVE_MESSAGES
from tokenroom.reports.simulation_messages import SIMULATION_MESSAGES
from tokenroom.reports.speed_messages import SPEED_MESSAGES
from tokenroom.reports.validation_messages import VALIDATION_MESSAGES
from tokenroom.reports.watch_messages import WATCH_MESSAGES
from tokenroom.reports.workload_messages import WORKLOAD_MESSAGES
from tokenroom.units import GIB, format_bytes, format_gib

if TYPE_CHECKING:
    from tokenroom.engines.policy import Change, Notice, Refusal
    from tokenroom.models.spec import ModelSpec


def printable(text: str) -> str:
    """``text`` with everything escaped that would steer a terminal instead of being shown.

    Names from files may hold escape sequences, carriage returns and marks that reverse the
    direction of writing. Line ends and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(
        (f"\\x{ord(character):02x}" if character < "\xff" else f"\\u{ord(character):04x}")
        if character not in "\n\t" and category(character) in _STEERING
        else character
        for character in text
    )


_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Language(StrEnum):
    """Languages that reports are written in."""

    ENGLISH = "en"
    CHINESE = "zh"


MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    **FIT_MESSAGES,
    **CLAIMS_MESSAGES,
    **LOOKUP_MESSAGES,
    **PLAN_MESSAGES,
    **SERVE_MESSAGES,
    **SPEED_MESSAGES,
    **FLEET_MESSAGES,
    **SIMULATION_MESSAGES,
    **CALIBRATION_MESSAGES,
    **COMPARISON_MESSAGES,
    **DEVICE_MESSAGES,
    **DIAGNOSIS_MESSAGES,
    **MEASURE_MESSAGES,
    **QUALITY_MESSAGES,
    **VALIDATION_MESSAGES,
    **WATCH_MESSAGES,
    **WORKLOAD_MESSAGES,
    **ENGINE_MESSAGES,
    # key: (English, Chinese)
    "cli.error": ("tokenroom: error: {reason}", "tokenroom：错误：{reason}"),
    "cli.output_failed": (
        "tokenroom: the output cannot be written: {reason}",
        "tokenroom：无法写出结果：{reason}",
    ),
    "cli.interrupted": ("tokenroom: interrupted", "tokenroom：已中断"),
    "unknown": ("unknown", "未知"),
    "engine.contiguous": ("contiguous allocation", "连续分配"),
    "engine.paged": ("paged allocation", "分页分配"),
    "engine.hybrid": ("hybrid allocation", "混合分配"),
    "model.in_layout": ("{model} in {layout}", "{model}（{layout}）"),
    "gpus.none": ("No GPU matches {words!r}.", "没有与 {words!r} 匹配的 GPU。"),
    "gpus.key": ("\nGPU", "\nGPU"),
    "gpus.memory": ("Memory\nGiB", "显存\nGiB"),
    "gpus.bandwidth": ("Bandwidth\nGB/s", "带宽\nGB/s"),
    "gpus.bf16": ("BF16\nTFLOPS", "BF16\nTFLOPS"),
    "gpus.fp8": ("FP8\nTFLOPS", "FP8\nTFLOPS"),
    "gpus.link": ("\nLink", "\n互联"),
    "gpus.footer": (
        "Memory as PyTorch sees it (~: assumed, not read from a card). TFLOPS are dense; BF16 is "
        "FP16 where there is no BF16.",
        "显存为 PyTorch 所见（~：推定值，并非实测）。TFLOPS 为稠密算力；无 BF16 时为 FP16。",
    ),
    "gpus.others": ("Also matching:", "其他匹配："),
    "gpus.assumed": ("{memory}, assumed", "{memory}（推定）"),
    "gpus.name": ("Name", "名称"),
    "gpus.aliases": ("Also called", "别名"),
    "gpus.architecture": ("Architecture", "架构"),
    "gpus.compute_capability": ("Compute capability", "计算能力"),
    "gpus.memory_bytes": ("Memory (PyTorch)", "显存（PyTorch）"),
    "gpus.driver_memory_bytes": ("Memory (driver)", "显存（驱动）"),
    "gpus.nominal_memory_bytes": ("Memory (nominal)", "显存（标称）"),
    "gpus.bandwidth_bytes_per_second": ("Bandwidth", "显存带宽"),
    "gpus.flops_per_second": ("Dense TFLOPS", "稠密 TFLOPS"),
    "gpus.link_bytes_per_second": ("Link, one direction", "互联（单向）"),
    "gpus.pcie_bytes_per_second": ("Host link, one direction", "主机链路（单向）"),
    "gpus.multiprocessors": ("Multiprocessors", "多处理器"),
    "gpus.mig": ("MIG slices", "MIG 切分"),
    "gpus.note": ("Note", "备注"),
    "gpus.sources": ("Sources", "来源"),
    "models.none": ("No model matches {words!r}.", "没有与 {words!r} 匹配的模型。"),
    "models.near": ("Near it are {names}.", "相近的有 {names}。"),
    "models.footer": (
        "Active: parameters a text token passes through, without vision and audio towers, routed "
        "experts by the share that is used. Weights: how the checkpoint stores them; MODEL@awq, "
        "@fp8, @q4_k_m ... is the same model stored otherwise. Any other model: a config.json, a "
        "folder, a GGUF file or a Hub id.",
        "激活参数：一个文本 token 经过的参数，不含视觉与音频塔，路由专家按所用份额计。"
        "权重：检查点的存储方式；MODEL@awq、@fp8、@q4_k_m 等为同一模型的其他存储方式。"
        "其他模型：可给出 config.json、文件夹、GGUF 文件或 Hub id。",
    ),
    "models.weights": ("Weights", "权重"),
    "models.name": ("Model", "模型"),
    "models.aliases": ("Also called", "别名"),
    "models.architecture": ("Architecture", "架构"),
    "models.parameters": ("Parameters", "参数量"),
    "models.active": ("Active", "激活参数"),
    "models.layers": ("Layers", "层数"),
    "models.context": ("Context", "上下文"),
    "models.dtype": ("Stored as", "存储类型"),
    "models.source": ("Source", "来源"),
    "models.checked": ("Checked", "校验"),
    "segment.weights": ("weights", "权重"),
    "segment.kv": ("KV pool", "KV 池"),
    "segment.activation": ("activation peak", "激活峰值"),
    "segment.graphs": ("CUDA graphs", "CUDA Graph"),
    "segment.reserve": ("outside PyTorch, buffers", "PyTorch 之外、缓冲区"),
    "segment.context": ("in use before", "启动前已占用"),
    "segment.free": ("free", "空闲"),
    "segment.missing": ("does not fit", "放不下"),
    "plot.memory": ("Memory per GPU (GiB)", "每张 GPU 的显存（GiB）"),
    "plot.capacity": ("GPU memory {capacity_bytes}", "GPU 显存 {capacity_bytes}"),
    "plot.budget": ("engine budget {budget_bytes}", "引擎预算 {budget_bytes}"),
    "plot.budget_above": (
        "engine budget {budget_bytes}\nabove the {before_bytes} in use before",
        "引擎预算 {budget_bytes}\n从启动前已占用的 {before_bytes} 算起",
    ),
    "plot.no_cjk_font": (
        "No Chinese font is installed, so the plot is labelled in English "
        "(install one such as Noto Sans CJK).",
        "未安装中文字体，图中标签改用英文（可安装 Noto Sans CJK 等字体）。",
    ),
}


def message(key: str, language: Language, **values: object) -> str:
    """The text of ``key`` with its values filled in."""
    english, chinese = MESSAGES[key]
    text = chinese if language is Language.CHINESE else english
    text = text.format_map(
        {name: _written(name, value, language) for name, value in values.items()}
    )
    return _SPACELESS.sub(" ", text) if language is Language.CHINESE else _singular(text)


def engine_text(name: str, language: Language) -> str:
    """An engine's own name, and what stands for none, in the reader's language."""
    key = f"engine.{name}"
    if key in MESSAGES:
        return message(key, language)
    from tokenroom.engines.registry import engine_title  # --help loads no engines

    return engine_title(name)


def model_title(spec: ModelSpec, language: Language) -> str:
    """A model's name with the layout that its weights were supposed to have."""
    if spec.layout is None or spec.name.endswith(f"@{spec.layout}"):
        return spec.name
    return message("model.in_layout", language, model=spec.name, layout=spec.layout)


def notice_text(notice: Notice, language: Language) -> str:
    """A notice as a sentence."""
    return message(f"notice.{notice.key}", language, **notice.values)


def refusal_text(refusal: Refusal, language: Language) -> str:
    """Why the engine would not start, as a sentence."""
    return message(
        f"refusal.{refusal.cause}",
        language,
        needed_bytes=refusal.needed_bytes,
        available_bytes=refusal.available_bytes,
        missing_bytes=refusal.needed_bytes - refusal.available_bytes,
        **refusal.values,
    )


def change_price(change: Change, language: Language) -> str:
    """What a change costs, as a phrase."""
    separator = "；" if language is Language.CHINESE else "; "
    return separator.join(message(f"change.{key}", language) for key in change.prices)


def written_flags(flags: str, language: Language) -> str:
    """The flags of a change with the remarks in parentheses in the reader's language."""
    if language is Language.ENGLISH:
        return flags
    flags = flags.replace(
        message("fit.awq_checkpoint", Language.ENGLISH), message("fit.awq_checkpoint", language)
    )
    flags = re.sub(
        r"\(weights in (\S+)\)",
        lambda match: message("fit.weights_in", language, layout=match[1]),
        flags,
    )
    return re.sub(r" ?（", "（", flags).lstrip()


def language_of(environment: Mapping[str, str]) -> Language:
    """The language a POSIX environment asks for: LC_ALL, else LC_MESSAGES, else LANG."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = environment.get(name)
        if value:
            return Language.CHINESE if value.lower().startswith("zh") else Language.ENGLISH
    return Language.ENGLISH


_SPACELESS: Final = re.compile(r"(?<=受限于)(?=[A-Za-z])")
"""Where a Latin word comes to stand directly behind a Chinese one."""

_SMALLEST_GIB: Final = 0.01 * GIB
"""What is less would show as 0.00 GiB or nearly so."""

_ONE: Final = r"(?<![\w.,-])1 "
_NOUNS: Final = re.compile(
    rf"{_ONE}(token|request|block|sequence|layer|GPU|cell|slot|item|step|preemption|client|user|"
    r"server|replica|session|segment|piece|row|restart|difference|parameter|time|cop(?=ies)|"
    r"stretch(?=es)|pass(?=es))(?:ies|es|s)\b"
)
_VERBS: Final = re.compile(rf"{_ONE}(run|wait)(?= )")


def _singular(text: str) -> str:
    """``1 tokens`` as ``1 token``, and the like."""
    if "1 " not in text:
        return text
    text = _NOUNS.sub(lambda match: f"1 {match[1].replace('cop', 'copy')}", text)
    return _VERBS.sub(r"1 \1s", text)


def _written(name: str, value: object, language: Language) -> object:
    if name in ("kind", "phase", "vendor") and isinstance(value, str):
        known = f"{name}.{value.replace(' ', '_')}"
        return message(known, language) if known in MESSAGES else value.replace("_", " ")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if name.endswith("_bytes"):
        return format_gib(value) if abs(value) >= _SMALLEST_GIB else format_bytes(round(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
