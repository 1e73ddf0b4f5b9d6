"""Record what SGLang's own code makes of cards and flags: default fractions, graphs, pools.

The functions that resolve memory settings are taken out of SGLang's source as they stand and run
with stand-ins for the server arguments they read; the pool configurators are imported whole from
the newest wheel. No GPU and no model file is needed::

    python scripts/oracle_sglang.py fractions OUT.jsonl SOURCE_DIR...
    PYTHONPATH=sglang-0.5.23 python scripts/oracle_sglang.py pools OUT.jsonl

Each SOURCE_DIR is an unpacked wheel called ``sglang-VERSION``. ``pools`` needs an environment with
PyTorch and what ``sglang.srt.model_executor.pool_configurator`` imports.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import json
import re
import sys
import textwrap
import types
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


def record_fractions(out: Path, roots: list[Path]) -> None:
    """Every version, card and setting."""
    with out.open("w") as file:
        for root in sorted(roots, key=lambda path: version_key(path.name)):
            version = root.name.removeprefix("sglang-")
            for card, settings in itertools.product(CARDS, SETTINGS):
                row = {"version": version, "memory_mib": card, "settings": settings}
                file.write(json.dumps(row | {"resolved": run(root, card, settings)}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "fractions":
        record_fractions(Path(sys.argv[2]), [Path(root) for root in sys.argv[3:]])
    else:
        raise SystemExit("give fractions or pools")
