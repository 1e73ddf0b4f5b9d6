"""Record what SGLang's own code makes of cards and flags: default fractions, graphs, pools.

The functions and classes concerned are taken out of SGLang's source as they stand and run with
stand-ins for the server arguments and the model configuration they read: no GPU, no PyTorch and no
model file is needed::

    python scripts/oracle_sglang.py fractions OUT.json.gz SOURCE_DIR...
    python scripts/oracle_sglang.py pools OUT.json.gz SOURCE_DIR

Each SOURCE_DIR is an unpacked wheel called ``sglang-VERSION``; ``pools`` reads 0.5.23.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import gzip
import itertools
import json
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CARDS = (15360, 16376, 24564, 32607, 40960, 46068, 65536, 81559, 97887, 143771, 183359, 196592)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"tp_size": 2},
    {"tp_size": 4},
    {"tp_size": 8},
    {"tp_size": 16},
    {"tp_size": 8, "pp_size": 2},
    {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
    {"tp_size": 8, "dp_size": 2, "enable_dp_attention": True, "latent": True},
    {"latent": True},
    {"tp_size": 8, "latent": True, "moe_a2a_backend": "deepep"},
    {"chunked_prefill_size": 2048},
    {"chunked_prefill_size": 32768, "tp_size": 4},
    {"chunked_prefill_size": -1},
    {"chunked_prefill_size": -1, "max_prefill_tokens": 4096},
    {"cuda_graph_max_bs": 16},
    {"cuda_graph_bs": [1, 2, 4, 300]},
    {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4},
    {"speculative_algorithm": "STANDALONE", "speculative_num_draft_tokens": 4},
    {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 12},
    {"disable_cuda_graph_padding": True, "cuda_graph_max_bs": 24},
    {"prefill_graphs": False},
    {"decode_graphs": False, "prefill_graphs": False},
    {"max_running_requests": 12},
    {"max_total_tokens": 3000},
    {"disaggregation_mode": "prefill", "decode_graphs": False},
    {"disaggregation_mode": "decode", "prefill_graphs": False, "max_running_requests": 900},
    {"vision": [27, 1152]},
    {"vision": [32, 1280], "tp_size": 2},
    {"vision": [None, None]},
    {"vision": [45, 3200], "tp_size": 8},
)


def version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


class Arguments(types.SimpleNamespace):
    """Server arguments: what a test sets, None for the rest."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


@functools.cache
def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """Every function of a file by name, methods included."""
    tree = ast.parse(path.read_text())
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def compiled(nodes: list[ast.FunctionDef], names: dict[str, Any]) -> dict[str, Any]:
    """The functions as they stand, with ``names`` for what they call; inner imports are dropped."""

    class NoImports(ast.NodeTransformer):
        def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
            return ast.copy_location(ast.Pass(), node)

    for node in nodes:
        node.decorator_list = []
        module = ast.Module(body=[NoImports().visit(copy.deepcopy(node))], type_ignores=[])
        for item in module.body:
            item.returns = None
            for argument in item.args.args:
                argument.annotation = None
        exec(compile(ast.fix_missing_locations(module), node.name, "exec"), names)
    return names


def vision_config(settings: dict[str, Any]) -> Any:
    """A model configuration with a vision tower of that size, or without."""
    shape = settings.get("vision")
    if shape is None:
        return types.SimpleNamespace(is_multimodal=False)
    config = types.SimpleNamespace()
    if shape[0] is not None:
        config.num_hidden_layers, config.hidden_size = shape
    return types.SimpleNamespace(
        is_multimodal=True, hf_config=types.SimpleNamespace(vision_config=config)
    )


def run(root: Path, card: int, settings: dict[str, Any]) -> dict[str, Any]:
    """What that version resolves for a card and settings."""
    version = version_key(root.name.removeprefix("sglang-"))
    arguments = Arguments(
        tp_size=1,
        pp_size=1,
        dp_size=1,
        device="cuda",
        model_path="a-model",
        max_prefill_tokens=16384,
        enable_dp_attention=False,
        disaggregation_mode="null",
        chunked_prefill_size=8192 if version < (0, 4) else None,
        cuda_graph_max_bs=160 if version < (0, 4) else None,
        page_size=1,
        enable_piecewise_cuda_graph=settings.get("prefill_graphs", version >= (0, 5, 10)),
        disable_piecewise_cuda_graph=not settings.get("prefill_graphs", True),
        piecewise_cuda_graph_max_tokens=4096 if version < (0, 5, 7) else None,
        moe_a2a_backend="none",
        attn_cp_size=1,
    )
    for name, value in settings.items():
        if name not in ("latent", "vision", "prefill_graphs", "decode_graphs"):
            setattr(arguments, name, value)
    arguments.attn_dp_size = arguments.dp_size if arguments.enable_dp_attention else 1
    model = vision_config(settings)
    latent = settings.get("latent", False)
    backend = types.SimpleNamespace(DISABLED="disabled", BREAKABLE="breakable")
    phases = {
        "decode": "full" if settings.get("decode_graphs", True) else "disabled",
        "prefill": "breakable" if settings.get("prefill_graphs", True) else "disabled",
    }
    arguments.cuda_graph_config = types.SimpleNamespace(
        decode=types.SimpleNamespace(
            max_bs=arguments.cuda_graph_max_bs, bs=arguments.cuda_graph_bs, backend=phases["decode"]
        ),
        prefill=types.SimpleNamespace(max_bs=None, bs=None, backend=phases["prefill"]),
    )
    arguments._cuda_graph_config_locked = set()
    arguments._resolved = lambda: arguments
    arguments.get_model_config = lambda: model
    arguments.use_mla_backend = lambda: latent
    arguments.post_capture_kv_sizing_planned = lambda: False

    def declare(target: Any, _handler: str, **values: Any) -> None:
        for name, value in values.items():
            setattr(target, name, value)

    unset = types.SimpleNamespace(is_set=lambda: True)
    names: dict[str, Any] = {
        "Any": Any,
        "copy": copy,
        "Backend": backend,
        "Phase": types.SimpleNamespace(PREFILL="prefill", DECODE="decode"),
        "logger": types.SimpleNamespace(warning=lambda *_: None, info=lambda *_: None),
        "envs": types.SimpleNamespace(SGLANG_SYMM_MEM_PREALLOC_GB_SIZE=unset),
        "is_npu": lambda: False,
        "is_hip": lambda: False,
        "is_cuda": lambda: True,
        "get_device_memory_capacity": lambda *_: float(card),
        "get_nvgpu_memory_capacity": lambda: float(card),
        "get_platform": lambda: types.SimpleNamespace(is_xpu=False),
        "resolving_view": lambda target: target,
        "resolved_view": lambda target: target,
        "declare_resolution": declare,
        "model_config_of": lambda _: model,
        "use_mla_backend": lambda _: latent,
        "attn_dp_enabled_of": lambda target: target.enable_dp_attention,
        "post_capture_kv_sizing_planned": lambda _: False,
        "expand_multimodal_decode_graph_to_running_limit": lambda *_: None,
        "_DEFAULT_PP_PREFILL_CUDA_GRAPH_MAX_TOKENS": 8192,
        "ModelConfig": types.SimpleNamespace(from_server_args=lambda _: model),
    }
    hook = root / "sglang/srt/arg_groups/memory_hook.py"
    if hook.exists():
        found = functions(hook) | functions(root / "sglang/srt/arg_groups/cuda_graph_hook.py")
        wanted = (
            "handle_gpu_memory_settings",
            "reserve_for_graph_mb",
            "reserve_for_deepep_a2a_mb",
            "adjust_mem_fraction_for_vlm",
            "generate_decode_cuda_graph_batch_sizes",
            "generate_prefill_cuda_graph_batch_sizes",
            "generate_cpu_graph_batch_sizes",
        )
        compiled([found[name] for name in wanted], names)
        handle = names["handle_gpu_memory_settings"]
        if len(found["handle_gpu_memory_settings"].args.args) > 1:
            handle(arguments, float(card))
        else:
            handle(arguments)
    elif version >= (0, 5, 3):
        found = functions(root / "sglang/srt/server_args.py")
        for name in found:
            if re.search(
                r"generate_\w*graph_(batch_sizes|tokens)|adjust_mem_fraction|reserve_for_", name
            ):
                compiled([found[name]], names)
                bound = names[name]
                static = any(
                    ast.unparse(item) == "staticmethod" for item in found[name].decorator_list
                ) or not (found[name].args.args and found[name].args.args[0].arg == "self")
                setattr(arguments, name, bound if static else types.MethodType(bound, arguments))
        compiled([found["_handle_gpu_memory_settings"]], names)
        names["_handle_gpu_memory_settings"](arguments, float(card))
    else:
        block = before_0_5_3(root, found=functions(root / "sglang/srt/server_args.py"))
        names["adjust"] = compiled(
            [
                node
                for name, node in functions(root / "sglang/srt/server_args.py").items()
                if name == "adjust_mem_fraction_for_vlm"
            ],
            names,
        ).get("adjust_mem_fraction_for_vlm")
        if names["adjust"] is not None:
            arguments.adjust_mem_fraction_for_vlm = types.MethodType(names["adjust"], arguments)
        names |= {"self": arguments, "gpu_mem": float(card), "is_hip_": False}
        exec(block, names)
    graph = arguments.cuda_graph_config
    newer = version >= (0, 5, 14)
    decode_bs = graph.decode.bs if newer else arguments.cuda_graph_bs
    prefill_bs = graph.prefill.bs if newer else arguments.piecewise_cuda_graph_tokens
    return {
        "mem_fraction_static": arguments.mem_fraction_static,
        "chunked_prefill_size": arguments.chunked_prefill_size,
        "cuda_graph_max_bs": graph.decode.max_bs if newer else arguments.cuda_graph_max_bs,
        "decode_graphs": len(decode_bs) if decode_bs else None,
        "prefill_graphs": len(prefill_bs) if prefill_bs else None,
    }


def before_0_5_3(root: Path, found: dict[str, ast.FunctionDef]) -> Any:
    """The statements of ``__post_init__`` that set the three defaults."""
    statements = []
    for node in found["__post_init__"].body:
        text = ast.unparse(node)
        if isinstance(node, ast.If) and re.match(
            r"if (self\.(mem_fraction_static|chunked_prefill_size|cuda_graph_max_bs) is None"
            r"|gpu_mem < 25000)",
            text,
        ):
            statements.append(
                "\n".join(line for line in text.splitlines() if "import " not in line)
            )
    return compile(textwrap.dedent("\n".join(statements)), str(root), "exec")


FIELDS = (
    "mem_fraction_static",
    "chunked_prefill_size",
    "cuda_graph_max_bs",
    "decode_graphs",
    "prefill_graphs",
)


def record_fractions(out: Path, roots: list[Path]) -> None:
    """Every version, card and setting; a version alike the one before it is only named."""
    tables: list[dict[str, Any]] = []
    for root in sorted(roots, key=lambda path: version_key(path.name)):
        rows = [
            [resolved[field] for field in FIELDS]
            for card, settings in itertools.product(CARDS, SETTINGS)
            for resolved in (run(root, card, settings),)
        ]
        version = root.name.removeprefix("sglang-")
        if tables and tables[-1]["rows"] == rows:
            tables[-1]["versions"].append(version)
        else:
            tables.append({"versions": [version], "rows": rows})
    record = {"fields": FIELDS, "cards": CARDS, "settings": SETTINGS, "tables": tables}
    out.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))


ATTENTION = (
    # KV heads, key width, value width, full layers, window layers, draft layers
    (8, 128, 128, 32, 0, 0),
    (4, 128, 128, 28, 0, 1),
    (2, 256, 256, 10, 0, 0),
    (8, 64, 64, 18, 18, 0),
    (4, 192, 128, 9, 39, 0),
    (8, 128, 128, 0, 24, 0),
)
LATENT = (
    # latent, rotary, layers, index width, draft layers, raw rows
    (512, 64, 61, 0, 0, False),
    (512, 64, 61, 0, 1, False),
    (512, 64, 61, 128, 0, False),
    (512, 64, 61, 128, 0, True),
    (448, 64, 30, 0, 0, False),
)
BUDGETS = (3_000_000_000, 53_987_654_321, 145_000_000_123)
ELEMENTS = {"bfloat16": 2, "fp8_e4m3": 1, "mxfp8": 1, "fp4": 1}
STATES = (
    # bytes a request, rest in GiB, settings
    (71_303_168, 20.5, {}),
    (71_303_168, 61.25, {"mamba_full_memory_ratio": 0.5}),
    (71_303_168, 20.5, {"max_mamba_cache_size": 40}),
    (19_922_944, 20.5, {"disable_radix_cache": True, "max_running_requests": 64}),
    (19_922_944, 20.5, {"speculative_num_draft_tokens": 4, "max_running_requests": 48}),
    (
        19_922_944,
        20.5,
        {
            "speculative_num_draft_tokens": 4,
            "max_running_requests": 48,
            "max_mamba_cache_size": 90,
        },
    ),
    (19_922_944, 33.0, {"extra_buffer": True}),
    (19_922_944, 33.0, {"extra_buffer": True, "disable_overlap_schedule": True}),
)
REQUESTS = (
    # tokens, context, asked, copies of attention
    (411_931, 131_072, None, 1),
    (2_795_207, 131_072, None, 1),
    (1_000, 4_096, None, 1),
    (9_000_000, 4_096, None, 1),
    (411_931, 131_072, 256, 1),
    (411_931, 131_072, 256, 8),
    (300, 131_072, 256, 1),
)


class Bag(types.SimpleNamespace):
    """A namespace of settings: what a case sets, None for the rest."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def configurators(root: Path) -> dict[str, Any]:
    """The pool configurators' source, run with stand-ins for the settings they read."""
    names: dict[str, Any] = {
        "Optional": Any,
        "Any": Any,
        "dataclass": dataclasses.dataclass,
        "logger": Bag(info=lambda *_: None, warning=lambda *_: None),
        "_is_hip": False,
        "_is_npu": False,
        "torch": Bag(_utils=Bag(_element_size=lambda kind: ELEMENTS[kind])),
        "ceil_div": lambda one, two: -(-one // two),
        "ceil_align": lambda one, two: -(-one // two) * two,
        "is_float4_e2m1fn_x2": lambda kind: kind == "fp4",
        "is_minimax_sparse": lambda _: False,
        "is_deepseek_dsa": lambda config: bool(config.index_head_dim),
        "get_dsa_index_head_dim": lambda config: config.index_head_dim,
        "get_dsa_index_kpool": lambda _: 1,
        "dsa_layer_skips_topk": lambda *_: False,
        "compute_page_shard_scratch_bytes": lambda *_, **__: 0,
        "mambaish_config": lambda _: None,
        "get_glm_dsa_layer_split_effective_num_layers": lambda _, count: count,
        "get_glm_dsa_cp_layer_shard_info": lambda _: (0, 1),
        "_should_elide_dsa_index_k": lambda **_: False,
        "parse_qsa_profile": lambda _: None,
        "AttentionArch": Bag(MLA="mla"),
        "DSATokenToKVPool": Bag(
            quant_block_size=128,
            rope_storage_dtype=Bag(itemsize=2),
            index_k_with_scale_buffer_dtype="fp8_e4m3",
        ),
        "get_memory": Bag,
        "get_disagg": lambda: Bag(disaggregation_mode="null"),
        "envs": Bag(
            SGLANG_NPU_ENABLE_SPARSE_KV_OFFLOAD=Bag(get=lambda: False),
            SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=Bag(get=lambda: False),
        ),
        "QSATokenToKVPool": None,
        "resolve_qsa_indexer_dtype": None,
    }
    folder = root / "sglang/srt"
    tree = ast.parse((folder / "model_executor/pool_configurator.py").read_text())
    wanted = {
        "MemoryPoolConfig",
        "MemoryPoolConfigurator",
        "DefaultPoolConfigurator",
        "HybridSWAPoolConfigurator",
        "SWARequestCapPoolConfigurator",
        "compute_swa_request_cap",
        "_dflash_draft_cell_size",
        "_get_dsa_cache_layer_ids",
    }
    body = [node for node in tree.body if getattr(node, "name", "") in wanted]
    other = ast.parse((folder / "mem_cache/kv_cache_configurator.py").read_text())
    body += [
        node for node in other.body if getattr(node, "name", "") == "calculate_mla_kv_cache_dim"
    ]
    for node in other.body:
        if isinstance(node, ast.ClassDef) and node.name == "KVCacheConfigurator":
            kept = {"_calculate_mamba_ratio", "resolve_max_num_reqs", "_handle_max_mamba_cache"}
            node.body = [item for item in node.body if getattr(item, "name", "") in kept]
            node.decorator_list = []
            body.append(node)
    names |= {"MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO": 3}
    names |= {
        "MAMBA_CACHE_BASE_RATIO_DROP_ON_SKIP": 1,
        "MAMBA_CACHE_V2_ADDITIONAL_RATIO_NO_BUFFER": 1,
        "_pd_prefill_skips_mamba_spec_state": lambda: False,
    }

    class Bare(ast.NodeTransformer):
        """Inner imports and annotations dropped."""

        def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
            return ast.copy_location(ast.Pass(), node)

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            self.generic_visit(node)
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
            return node

    module = ast.Module(body=[Bare().visit(node) for node in body], type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), "configurators", "exec"), names)
    return names


def cache(case: dict[str, Any], kind: str) -> Bag:
    """A cache configurator's inputs for a case."""
    full, window = case["full"], case["window"]
    dtype = "fp8_e4m3" if kind == "mxfp8" else kind
    return Bag(
        kv_cache_dtype=dtype,
        kv_cache_dtype_str=kind,
        use_mla_backend=case["latent"] is not None,
        model_config=Bag(
            hf_config=Bag(index_head_dim=case["index"]),
            head_dim=case["head_dim"],
            v_head_dim=case["value_dim"],
            swa_head_dim=case["head_dim"],
            swa_v_head_dim=case["value_dim"],
            get_num_kv_heads=lambda tp, *_: max(1, case["heads"] // tp),
            get_swa_num_kv_heads=lambda tp, *_: max(1, case["heads"] // tp),
            kv_lora_rank=case["latent"],
            qk_rope_head_dim=case["rotary"],
            context_len=4096,
        ),
        layer_info=Bag(
            num_effective_layers=full + window,
            start_layer=0,
            end_layer=full + window,
            full_attention_layer_ids=list(range(full)),
            swa_attention_layer_ids=list(range(window)),
        ),
        server_args=Bag(),
        pp_size=1,
        page_size=case["page_size"],
        sliding_window_size=128,
        spec_aux_config=Bag(eagle_draft_num_layers=case["draft"]),
        spec_algorithm=Bag(
            is_eagle=lambda: case["draft"] > 0,
            is_standalone=lambda: False,
            is_dflash_family=lambda: False,
        ),
        fused_entry_bytes=lambda _: None,
    )


def token_cases() -> Iterator[dict[str, Any]]:
    """Every shape with every type, budget, page size and number of ranks."""
    blank = {"latent": None, "rotary": 0, "index": 0, "raw": False}
    for heads, wide, values, full, window, draft in ATTENTION:
        for kind, ranks, budget, page in itertools.product(
            ("bfloat16", "fp8_e4m3", "mxfp8"), (1, 8), BUDGETS, (1, 64)
        ):
            yield blank | {
                "heads": heads,
                "head_dim": wide,
                "value_dim": values,
                "full": full,
                "window": window,
                "draft": draft,
                "dtype": kind,
                "ranks": ranks,
                "available_bytes": budget,
                "page_size": page,
            }
    for latent, rotary, layers, index, draft, raw in LATENT:
        for kind, budget, page in itertools.product(
            ("bfloat16", "fp8_e4m3", "fp4"), BUDGETS, (1, 64)
        ):
            if index and kind == "fp4":
                continue
            yield blank | {
                "heads": 1,
                "head_dim": 0,
                "value_dim": 0,
                "full": layers,
                "window": 0,
                "draft": draft,
                "dtype": kind,
                "ranks": 8,
                "available_bytes": budget,
                "page_size": page,
                "latent": latent,
                "rotary": rotary,
                "index": index,
                "raw": raw,
            }


CAPS = (
    (16, 1, 2048, True),
    (256, 1, 8192, False),
    (1024, 8, 16384, True),
)
"""Requests asked for, copies of attention, tokens of a chunk, the overlap scheduler."""


def record_pools(out: Path, root: Path) -> None:
    """Tokens of each pool, slots of states and requests that run at once."""
    names = configurators(root)
    found: dict[str, list[Any]] = {"tokens": [], "capped": [], "states": [], "requests": []}
    torch = names["torch"]
    torch.float8_e4m3fn = "fp8_e4m3"
    torch.iinfo, torch.int64 = lambda _: Bag(max=2**63 - 1), None
    for case in token_cases():
        backend = "trtllm" if case["raw"] else "flashmla_kv"
        names["get_exec"] = lambda backend=backend: Bag(
            kernel=Bag(dsa_prefill_backend=backend, dsa_decode_backend=backend)
        )
        names["get_parallel"] = lambda case=case: Bag(attn_tp_size=case["ranks"], attn_dcp_size=1)
        names["get_schedule"] = lambda: Bag(swa_full_tokens_ratio=0.8)
        kind = "HybridSWAPoolConfigurator" if case["window"] else "DefaultPoolConfigurator"
        configurator = names[kind](cache(case, case["dtype"]))
        try:
            config = configurator.calculate_pool_sizes(case["available_bytes"], case["page_size"])
        except (RuntimeError, ValueError):
            continue
        found["tokens"].append(
            case
            | {"max_total": config.max_total_num_tokens, "swa": config.swa_max_total_num_tokens}
        )
    names["envs"].SGLANG_SWA_EVICTION_INTERVAL = Bag(get=lambda: 128)
    names["get_spec"] = lambda: Bag(speculative_num_draft_tokens=None, speculative_algorithm=None)
    names["get_disagg"] = lambda: Bag(disaggregation_mode="null")
    names["ceil_align"] = lambda value, unit: -(-value // unit) * unit
    for case, (asked, copies, chunk, overlap) in itertools.product(
        [case for case in token_cases() if case["window"] and case["full"]], CAPS
    ):
        if case["draft"] or case["dtype"] != "bfloat16":
            continue
        names["get_parallel"] = lambda case=case: Bag(attn_tp_size=case["ranks"], attn_dcp_size=1)
        names["get_schedule"] = lambda asked=asked, chunk=chunk, overlap=overlap: Bag(
            swa_full_tokens_ratio=0.8,
            max_running_requests=asked,
            chunked_prefill_size=chunk,
            disable_overlap_schedule=not overlap,
        )
        inputs = cache(case, case["dtype"])
        inputs.attn_dp_size, inputs.sliding_window_size = copies, 127
        try:
            config = names["SWARequestCapPoolConfigurator"](inputs).calculate_pool_sizes(
                case["available_bytes"], case["page_size"]
            )
        except (RuntimeError, ValueError):
            continue
        found["capped"].append(
            case
            | {"asked": asked, "copies": copies, "chunk": chunk, "overlap": overlap}
            | {"max_total": config.max_total_num_tokens, "swa": config.swa_max_total_num_tokens}
        )
    for per_request, rest, settings in STATES:
        found["states"].append(
            {"bytes_per_request": per_request, "rest_gib": rest, "settings": settings}
            | states(names, per_request, rest, settings)
        )
    for tokens, context, asked, copies in REQUESTS:
        names["get_schedule"] = lambda asked=asked: Bag(max_running_requests=asked)
        running = names["KVCacheConfigurator"].resolve_max_num_reqs(
            Bag(model_config=Bag(context_len=context), attn_dp_size=copies), tokens
        )
        found["requests"].append([tokens, context, asked, copies, running])
    out.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))


def states(
    names: dict[str, Any], per_request: int, rest: float, settings: dict[str, Any]
) -> dict[str, Any]:
    """``_handle_max_mamba_cache`` for a case: slots, what is left, requests they allow."""
    schedule = Bag(mamba_full_memory_ratio=0.9, disable_overlap_schedule=False)
    for name, value in settings.items():
        setattr(schedule, name, value)
    drafts = settings.get("speculative_num_draft_tokens")

    def override(_reason: str, **values: Any) -> None:
        for name, value in values.items():
            setattr(schedule, name, value)

    names["get_schedule"] = lambda: schedule
    names["get_context"] = lambda: Bag(override=override)
    names["get_memory"] = lambda: Bag(
        disable_radix_cache=settings.get("disable_radix_cache", False)
    )
    names["get_spec"] = lambda: Bag(speculative_num_draft_tokens=drafts)
    extra = settings.get("extra_buffer", False)
    names["get_exec"] = lambda: Bag(
        mamba=Bag(enable_mamba_extra_buffer=extra, enable_mamba_extra_buffer_lazy=False)
    )
    names["get_mamba_tracking_slots"] = lambda *, extra_buffer, overlap, lazy: 2 if overlap else 1
    configurator = names["KVCacheConfigurator"]
    self = Bag(
        mambaish_config=Bag(
            mamba2_cache_params=Bag(layers=[0, 1], mamba_cache_per_req=per_request)
        ),
        pp_size=1,
        attn_dp_size=1,
        extra_mamba_cache_bytes_per_req=0,
        fused_entry_bytes=lambda _: None,
        spec_algorithm=Bag(is_none=lambda: drafts is None),
    )
    self._calculate_mamba_ratio = lambda: configurator._calculate_mamba_ratio(self)
    left = configurator._handle_max_mamba_cache(self, rest)
    return {
        "slots": schedule.max_mamba_cache_size,
        "left_gib": left,
        "slots_per_request": self._calculate_mamba_ratio(),
    }


if __name__ == "__main__":
    if sys.argv[1] == "fractions":
        record_fractions(Path(sys.argv[2]), [Path(root) for root in sys.argv[3:]])
    elif sys.argv[1] == "pools":
        record_pools(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        raise SystemExit("give fractions or pools")
