"""Record which parameters vLLM's own model code creates for small configurations.

Run with a Python that has vLLM 0.32 for CPU: ``python record_vllm_weights.py MODELS CASES``.
MODELS is a JSON object of configurations by name, each with ``"config"`` and a list ``"ranks"`` of
[tensor parallel, pipeline parallel, stage]; CASES is written. Models are built on the meta device,
no weights are read. Choosers of GPU kernels are replaced, since a CPU has none: shapes stay alike.
"""

import json
import os
import re
import sys
import tempfile
import traceback
import unittest.mock
from pathlib import Path

os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    OMP_NUM_THREADS="1",
)

import torch
import vllm.distributed.parallel_state as state
import vllm.model_executor.models.registry as registry
from vllm.config import set_current_vllm_config
from vllm.distributed import (
    ensure_model_parallel_initialized,
    init_distributed_environment,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype

KERNEL_CHOOSERS = re.compile(r"init_\w*linear_kernel|choose_mp_linear_kernel|select_linear_kernel")
EXPERT_CHOOSERS = re.compile(r"select_\w*moe_backend")


def replace_kernel_choosers() -> None:
    """Let quantised layers be built without a kernel for them."""
    type(current_platform).verify_quantization = classmethod(lambda cls, name: None)
    for name, module in list(sys.modules.items()):
        if not name.startswith("vllm.") or module is None:
            continue
        for attribute in list(vars(module)):
            if KERNEL_CHOOSERS.fullmatch(attribute):
                setattr(
                    module,
                    attribute,
                    lambda *a, **k: unittest.mock.MagicMock(__name__="NoKernel"),
                )
            elif EXPERT_CHOOSERS.fullmatch(attribute):
                setattr(
                    module,
                    attribute,
                    lambda *a, **k: (unittest.mock.MagicMock(), unittest.mock.MagicMock()),
                )


def build(folder: str, tp: int, pp: int, stage: int) -> dict[str, int]:
    """Bytes by type of the parameters of one rank."""
    arguments = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        enforce_eager=True,
        max_num_batched_tokens=2048,
        max_num_seqs=16,
        max_model_len=2048,
    )
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{tempfile.mktemp()}", 0, "gloo")
        state.destroy_model_parallel()
        ensure_model_parallel_initialized(1, 1)
        config.parallel_config.tensor_parallel_size = tp
        config.parallel_config.pipeline_parallel_size = pp
        group = state.get_tp_group()
        group.world_size, group.rank_in_group = tp, 0
        stages = state.get_pp_group()
        stages.world_size, stages.rank_in_group = pp, stage
        stages.ranks, stages.rank = list(range(pp)), stage
        with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
            model = initialize_model(vllm_config=config)
    found: dict[str, int] = {}
    for _, parameter in model.named_parameters():
        kind = str(parameter.dtype).removeprefix("torch.")
        found[kind] = found.get(kind, 0) + parameter.numel() * parameter.element_size()
    return dict(sorted(found.items()))


def main() -> None:
    """Build every model of the first file and write the second."""
    models = json.loads(Path(sys.argv[1]).read_text())
    only = sys.argv[3:]
    registry._LazyRegisteredModel.inspect_model_cls = lambda self: (
        registry._ModelInfo.from_model_cls(self.load_model_cls())
    )
    torch.cuda.Event = unittest.mock.MagicMock
    torch.cuda.Stream = unittest.mock.MagicMock
    cases = []
    for name, model in models.items():
        if only and not any(part in name for part in only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(model["config"]))
            for tp, pp, stage in model["ranks"]:
                for attempt in (1, 2):
                    try:
                        found = build(folder, tp, pp, stage)
                    except Exception as error:
                        if attempt == 1:
                            replace_kernel_choosers()
                            continue
                        where = traceback.extract_tb(error.__traceback__)[-1]
                        text = " ".join(str(error).split())[:200]
                        print(
                            f"{name} {tp} {pp} {stage}: {type(error).__name__} {text} "
                            f"@{Path(where.filename).name}:{where.lineno}",
                            file=sys.stderr,
                        )
                    else:
                        cases.append({"model": name, "ranks": [tp, pp, stage], "bytes": found})
                        print(f"{name} {tp} {pp} {stage} done", file=sys.stderr, flush=True)
                    break
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    Path(sys.argv[2]).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
