"""Settings that published speeds were measured under, where the source says what the row does not.

Each rule names where it was read. A row of another source has the engine's own settings, as
:mod:`tokenroom.serving_speed` takes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.llama_cpp.versions import rules_for
from tokenroom.engines.vllm.rules import version_number
from tokenroom.errors import RowError
from tokenroom.performance.admission import AT_ONCE, Admission
from tokenroom.performance.llama_cpp import Build
from tokenroom.performance.work import Layout
from tokenroom.validation.commands import engine_version
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.recipes import (
    Recipe,
    sglang_drafted,
    sglang_recipe,
    tensorrt_llm_drafted,
    vllm_recipe,
)
from tokenroom.validation.rows import Row

_HOST: Final = 8
"""GPUs of one host of the sample."""

_SAMPLE: Final = "aiconfigurator"
_TRTLLM_BENCH: Final = re.compile(r"TensorRT-LLM .*perf-overview")
_COLLECTED: Final = re.compile(r"source_file=([^;]*)|db-dump/([\d-]+)")
_MEASURED: Final = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
_EXPERT_TP: Final = re.compile(r"moe_tp=([1-9]\d*)")
_FITTED_FILE: Final = "2026-04-06.csv"
#: Beginnings of the names of files with rows of InferenceX.
_RECIPES: Final = ("20", "qwen3.5", "kimi")
_RECIPE_WAVES: Final = 10
_OWN_WAVES: Final = 10
_LATER_OWN_WAVES: Final = 50
_EVAL_REMOVED: Final = "2026-03-03"
_OVERLAPS_SINCE: Final = (0, 14, 0)
_BESIDE_A_PROMPT: Final = 1500
_SHARE: Final = 0.9
_RECIPE_SHARE: Final = 0.8
_LARGEST_BATCH: Final = 2048
_SHORT: Final = frozenset({"fp8", "fp4"})
_ALIASES: Final[Mapping[str, str]] = {
    "Llama-7B": "meta-llama/Llama-2-7b-hf",
    "Llama-8B": "meta-llama/Llama-3.1-8B",
    "Mixtral-8x22B": "mistralai/Mixtral-8x22B-v0.1",
}
_BLOCK_FP8: Final = ("Qwen3-32B", "Qwen3.5")
#: Prefill of F16 that the source of those rows has at a fraction of the neighbouring ones.
_UNFIT_PREFILL: Final = frozenset({("A100-SXM4-80GB", "F16"), ("L40S", "F16")})
_COLLECTION: Final = "GPU-Benchmarks-on-LLM-Inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How one replica was run.

    Attributes:
        layout: How it is divided.
        kv_dtype: Type of its cache; None for the checkpoint's.
        token_budget: Tokens of a step.
        memory_share: Share of the memory that the cache may use.
        share_is_given: Its source states that share; otherwise it stands for one that SGLang works
            out by itself.
        share_of_rest: The share is of what the weights leave, not of all memory.
        largest_batch: Requests that run at once at most; None for what the cache holds.
        admission: What holds new requests back.
        length_share: Mean length of prompts and answers over the nominal one.
        lengths_vary: Requests end at different times.
        waves: Requests that each client sends; None for many.
        asynchronous: The host prepares a step while the accelerators run the one before.
        drafted_tokens: Tokens that the model's own blocks for multi-token prediction draft in a
            step; 0 without.
    """

    layout: Layout
    kv_dtype: str | None
    token_budget: int = 8192
    memory_share: float = _SHARE
    share_is_given: bool = True
    share_of_rest: bool = False
    largest_batch: int | None = None
    admission: Admission = AT_ONCE
    length_share: float = 1.0
    lengths_vary: bool = True
    waves: int | None = None
    asynchronous: bool = True
    drafted_tokens: int = 0


def is_fitted(row: Row) -> bool:
    """Whether a coefficient of the host's part was set on this row's measurement.

    Those collected in ``2026-04-06.csv`` of aiconfigurator's silicon sample were used, as far as
    the sizes they state are of one host; all others were kept for checking (docs/speed.md).
    """
    if row.load is None or not _sampled(row) or _collected(row) != _FITTED_FILE:
        return False
    tp, dp, ep = _stated_sizes(row, row.load)
    return tp * dp <= _HOST and tp * dp % ep == 0


def unfit(row: Row, quantity: str) -> str:
    """Why a published figure is no truth; empty when it may be one."""
    load = row.load
    if load is None or _COLLECTION not in (load.source or ""):
        return ""
    if quantity == "pp_tokens_per_s" and (row.gpu, load.precision) in _UNFIT_PREFILL:
        return "its source has the prefill of F16 on this GPU at a fraction of its neighbours'"
    return ""


def model_name(row: Row) -> str | None:
    """The model under its full name, where published rows shorten it."""
    return _ALIASES.get(row.model or "", row.model)


def llama_cpp_build(row: Row) -> Build:
    """What the kernels of a llama-bench row did.

    Rows of the collection of May 2024 and of pulls 4766 and 4812 (January 2024) are of builds
    without flash attention, whose products were not yet of int8; so is issue 12 (build 3622), whose
    products are. Other rows have what their build does unasked.

    Raises:
        TokenroomError: The version a row states is no build's.
    """
    source = "" if row.load is None else row.load.source or ""
    if _COLLECTION in source or source.endswith(("pull/4766", "pull/4812")):
        return Build(flash_attention=False, int8_products=False)
    if source.endswith("issues/12"):
        return Build(flash_attention=False, int8_products=True)
    rules = rules_for(engine_version(row))
    return Build(flash_attention=rules.flash_attn_auto, int8_products=rules.int8_products)


def fp8_layout(name: str) -> str:
    """``"fp8_block"`` for models whose published FP8 checkpoints have scales of 128 x 128."""
    return "fp8_block" if any(part in name for part in _BLOCK_FP8) else "fp8"


def circumstances(row: Row) -> Circumstances | None:
    """How a published row was run; None for a row of which only its own fields are known.

    Raises:
        RowError: Its sizes contradict each other, or span several nodes.
    """
    load = row.load
    if load is None:
        return None
    if _sampled(row):
        return _of_sample(row, load)
    if _TRTLLM_BENCH.search(load.source or "") and load.request_rate == math.inf:
        return _of_trtllm_bench(row, load)
    return None


def _sampled(row: Row) -> bool:
    return row.load is not None and _SAMPLE in (row.load.source or "")


def _collected(row: Row) -> str | None:
    """The file of aiconfigurator's sample in which a measurement came."""
    found = _COLLECTED.search(row.note)
    return None if found is None else found[1] or f"{found[2]} dump"


def _of_sample(row: Row, load: MeasuredLoad) -> Circumstances:
    """The silicon sample of aiconfigurator (``systems/silicon_sample.csv``).

    Files named by a date, and those of Qwen3.5 and Kimi, were collected by InferenceX, whose
    recipes are public (SemiAnalysisAI/InferenceX, ``benchmarks/``): FP8 caches, 80% of what the
    weights leave under TensorRT-LLM, prefill chunks of 32768 under SGLang, and what
    :mod:`tokenroom.validation.recipes` lists by model; lengths run from 80 to
    100% of the nominal, and a client sends ten requests
    (``.github/workflows/benchmark-tmpl.yml``). The others are aiconfigurator's own runs: requests
    of one length. Each client sent 10 (its ``eval/benchmarks/genai_perf_runner.py``, removed by
    c0c44d911 on 3 March 2026), later 50 (``MULTI_ROUND`` of ``generator/sflow.py`` at 2fc13d121).
    InferenceX's recipes ask vLLM for asynchronous scheduling before it was the default (0.14);
    aiconfigurator's templates do not.
    """
    collected = _collected(row)
    if collected is None:
        raise RowError("the row does not say in which file of the sample it was collected")
    recipe = collected.startswith(_RECIPES)
    layout = _sample_layout(row, load)
    tensorrt = row.engine == "tensorrt-llm"
    told = _recipe(row, load, layout) if recipe else Recipe()
    drafted = _drafted_tokens(row, load, layout) if recipe else 0
    budget = _sample_budget(row, load, layout, recipe)
    if told.prompts_a_step is not None:
        budget = told.prompts_a_step * (load.input_tokens or 1)
    return Circumstances(
        layout=layout,
        kv_dtype=load.kv_dtype or told.kv_dtype or _sample_cache(row, load, recipe),
        token_budget=told.token_budget or budget,
        memory_share=told.memory_share or (_RECIPE_SHARE if recipe and tensorrt else _SHARE),
        share_is_given=row.engine != "sglang" or told.memory_share is not None,
        share_of_rest=tensorrt,
        # recipes that draft bound it by the clients (dsr1_fp8_b200_mtp.sh, qwen3.5_fp8_b200_mtp.sh)
        largest_batch=None if drafted else told.largest_batch,
        admission=_admission(row, load, layout) if recipe else AT_ONCE,
        length_share=0.9 if recipe else 1.0,
        lengths_vary=recipe,
        waves=_RECIPE_WAVES if recipe else _own_waves(row),
        asynchronous=recipe or _overlaps(row),
        drafted_tokens=drafted,
    )


def _own_waves(row: Row) -> int:
    measured = _measured(row)
    later = measured is not None and measured >= _EVAL_REMOVED
    return _LATER_OWN_WAVES if later else _OWN_WAVES


def _overlaps(row: Row) -> bool:
    """Whether vLLM schedules ahead unasked; the other engines do in all releases of the sample."""
    if row.engine != "vllm":
        return True
    version = engine_version(row)
    return version is None or version_number(version) >= _OVERLAPS_SINCE


def _measured(row: Row) -> str | None:
    """The day on which a row of the sample was measured, where it says so."""
    found = _MEASURED.search(row.note)
    return None if found is None else found[1]


def _drafted_tokens(row: Row, load: MeasuredLoad, layout: Layout) -> int:
    if row.engine == "tensorrt-llm":
        return tensorrt_llm_drafted(
            row.engine_version or "", _measured(row), layout.data_parallel_size
        )
    if row.engine == "sglang" and (row.gpu or "").startswith("B200") and load.precision == "fp8":
        return sglang_drafted(
            row.model or "",
            _measured(row),
            layout.tensor_parallel_size,
            load.concurrency or 1,
            load.input_tokens or 1,
        )
    return 0


def _recipe(row: Row, load: MeasuredLoad, layout: Layout) -> Recipe:
    model, gpu = row.model or "", row.gpu or ""
    if row.engine == "sglang":
        return sglang_recipe(model, gpu, load.precision, layout.tensor_parallel_size)
    if row.engine == "vllm":
        return vllm_recipe(model, gpu, row.engine_version or "")
    return Recipe()


def _stated_sizes(row: Row, load: MeasuredLoad) -> tuple[int, int, int]:
    """Tensor-, data- and expert-parallel size as the sample's columns say.

    A blank beside experts over more ranks than tp is data parallelism.
    """
    tp, dp, ep = load.tp or 1, load.dp or 1, load.ep or 1
    expert_tp = _expert_tp(row)
    if expert_tp and load.dp is None and expert_tp * ep > tp:
        dp = expert_tp * ep // tp
    elif expert_tp and "epnone" in row.note and tp * dp % expert_tp == 0:
        ep = tp * dp // expert_tp
    return tp, dp, ep


def _sample_layout(row: Row, load: MeasuredLoad) -> Layout:
    """The division over one host, on which the sample's aggregated rows were measured.

    Of recipes that divide experts, some rows hold the product of two sizes of one host: moe_tp 8
    beside ep 8 and a tp (or dp, where attention has it) of 64; ep 16 beside tp 4 and dp 4. That
    these are 8 and 4 GPUs is concluded: so taken, the median error of 251 TPOTs is 11%, as for the
    other rows, and 24% when they are taken as 64 and 16.
    """
    tp, dp, ep = _stated_sizes(row, load)
    expert_tp = _expert_tp(row)
    if tp * dp > _HOST and expert_tp == ep:
        tp, dp = (ep, 1) if dp == 1 else (1, ep)
    elif tp * dp > _HOST and expert_tp == 1 and tp == dp and ep == tp * dp:
        tp, ep = 1, dp
    if tp * dp > _HOST:
        raise RowError(f"{tp * dp} GPUs, and its source's rows are of hosts of {_HOST}")
    if tp * dp % ep:
        raise RowError(f"its parallel sizes contradict each other: tp {tp}, dp {dp}, ep {ep}")
    return Layout(tensor_parallel_size=tp, data_parallel_size=dp, expert_parallel_size=ep)


def _expert_tp(row: Row) -> int | None:
    found = _EXPERT_TP.search(row.note)
    return None if found is None else int(found[1])


def _sample_cache(row: Row, load: MeasuredLoad, recipe: bool) -> str | None:
    """FP8 where the recipes or NVIDIA's checkpoints ask for it."""
    quantised = load.precision in _SHORT
    if row.engine == "tensorrt-llm" and recipe and quantised:
        return "fp8"
    if row.engine == "sglang" and not (row.gpu or "").startswith("B200"):
        return None  # benchmarks/dsr1_fp8_h200.sh
    own = (row.model or "").startswith(("meta-llama", "deepseek"))
    return "fp8" if quantised and own else None


def _sample_budget(row: Row, load: MeasuredLoad, layout: Layout, recipe: bool) -> int:
    """Tokens of a step.

    aiconfigurator gives vLLM and TensorRT-LLM a prompt, 1500 and the requests of a rank
    (0.12 ``generator/rule_plugin/benchmark``). What it gives SGLang, a prompt and 1500 with prompts
    mixed into decode steps, is not what these rows show, which are of releases before it.
    """
    if row.engine == "sglang":
        return 32768 if recipe else 8192
    if recipe:
        return 8192
    requests = (load.concurrency or 1) // layout.data_parallel_size
    return requests + (load.input_tokens or 1) + _BESIDE_A_PROMPT


def _admission(row: Row, load: MeasuredLoad, layout: Layout) -> Admission:
    """What holds requests back by the recipes' settings of March 2026, when the rows were taken.

    SGLang on B200 looks for requests each 10 steps, 30 from 16 clients on
    (``benchmarks/single_node/dsr1_fp8_b200.sh``, ``dsr1_fp4_b200.sh``, ``qwen3.5_fp8_b200.sh``).
    TensorRT-LLM waits 20 or 40 iterations for prompts to gather
    (``benchmarks/70b_fp8_h200_trt_slurm.sh``, ``dsr1_fp8_b200_trt.sh``:
    ``batch_wait_timeout_iters``), and under attention data parallelism 60 until every rank has one
    (``attention_dp_config.timeout_iters`` of the same files).
    """
    tp, clients = layout.tensor_parallel_size, load.concurrency or 1
    model, on_b200 = row.model or "", (row.gpu or "").startswith("B200")
    short = load.input_tokens == load.output_tokens == 1024
    if row.engine == "sglang" and on_b200:
        often = clients < 16 or (tp < 8 and "deepseek" in model)
        return Admission(interval_steps=10 if often else 30)
    if row.engine != "tensorrt-llm":
        return AT_ONCE
    if "Llama-3.1-70B" in model:
        return Admission(gather_steps=20 if short and tp < 8 else 0)
    gathers = "deepseek" in model and on_b200 and load.precision == "fp8" and short
    return Admission(
        gather_steps=40 if gathers and 64 <= clients < 256 else 0,
        balance_steps=60 if layout.data_parallel_size > 1 else 0,
    )


def _of_trtllm_bench(row: Row, load: MeasuredLoad) -> Circumstances:
    """TensorRT-LLM's own tables: all requests queued, of one length (``trtllm-bench throughput``).

    Its defaults are 90% of what the weights leave and batches of at most 2048; quantised
    checkpoints are served with an FP8 cache. "DEP" divides experts over the ranks of attention's
    data parallelism.
    """
    copies = load.dp or 1
    return Circumstances(
        layout=Layout(
            tensor_parallel_size=1 if copies > 1 else load.tp or 1,
            pipeline_parallel_size=load.pp or 1,
            data_parallel_size=copies,
            expert_parallel_size=load.ep or 1,
        ),
        kv_dtype=load.kv_dtype or ("fp8" if load.precision in _SHORT else None),
        share_of_rest=True,
        largest_batch=_LARGEST_BATCH,
    )
