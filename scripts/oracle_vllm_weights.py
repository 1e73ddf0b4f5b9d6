"""Compare the weights of a rank with what vLLM's own model code builds, row by row.

Usage: ``TOKENROOM_SHARED=... python scripts/oracle_vllm_weights.py [--all] [name ...]``. Prints one
line a (model, tensor-parallel, pipeline-parallel, rank) that differs, and how many rows agree.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tokenroom.engines.vllm.weights import Ranks, rank_weights
from tokenroom.errors import TokenroomError
from tokenroom.models.hf_config import read_config_file
from tokenroom.models.quantization import dequantized
from tokenroom.models.spec import ModelSpec

BUILT_PLAIN = frozenset(
    {
        "Qwen/Qwen3-32B-FP8-Static-PerTensor",
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8",
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4",
    }
)
"""Models whose quantisation block names no method, so that vLLM built them plain."""


def oracle_rows(shared: Path) -> Iterator[dict[str, object]]:
    """The first oracle row of each (model, tp, pp, rank)."""
    seen: set[tuple[object, ...]] = set()
    with gzip.open(shared / "oracle" / "vllm_oracle.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            settings = row["settings"]
            key = (
                row["model"],
                settings["tensor_parallel_size"],
                settings["pipeline_parallel_size"],
                row["rank"]["pp_rank"],
            )
            if key not in seen:
                seen.add(key)
                yield row


def main() -> int:
    """Compare and report; 0 when every row that could be read agrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="substrings of model names")
    parser.add_argument("--all", action="store_true", help="print every difference")
    arguments = parser.parse_args()
    shared = Path(os.environ["TOKENROOM_SHARED"])
    outcomes: Counter[str] = Counter()
    specs: dict[str, ModelSpec] = {}
    shown: set[str] = set()
    for row in oracle_rows(shared):
        model = str(row["model"])
        if arguments.names and not any(name in model for name in arguments.names):
            continue
        settings = row["settings"]
        folder = shared / "zoo" / str(row["config_dir"])
        if not folder.is_dir():
            folder = shared / "zoo" / "configs" / model.replace("/", "__", 1)
        try:
            if model not in specs:
                spec = read_config_file(folder)
                specs[model] = dequantized(spec) if model in BUILT_PLAIN else spec
            found = rank_weights(
                specs[model],
                ranks=Ranks(
                    tp=settings["tensor_parallel_size"],
                    pp=settings["pipeline_parallel_size"],
                    pp_rank=row["rank"]["pp_rank"],
                ),
                towers="language_model_only" not in str(row["note"]),
                loaded=False,
                version=(0, 32, 0),
            )
        except TokenroomError as error:
            outcomes["refused"] += 1
            if model not in shown:
                shown.add(model)
                print(f"REFUSED {model}: {str(error)[:160]}")
            continue
        difference = found.total_bytes - row["param_bytes"]
        exact = difference == 0 and found.by_dtype == row["param_bytes_by_dtype"]
        outcomes["exact" if exact else "same total" if difference == 0 else "different"] += 1
        if not exact and (arguments.all or model not in shown):
            shown.add(model)
            by_type = {
                dtype: found.by_dtype.get(dtype, 0) - row["param_bytes_by_dtype"].get(dtype, 0)
                for dtype in {*found.by_dtype, *row["param_bytes_by_dtype"]}
            }
            print(
                f"{model} [{row['arch']}] tp{settings['tensor_parallel_size']} "
                f"pp{settings['pipeline_parallel_size']}r{row['rank']['pp_rank']}: "
                f"{difference:+,} ({difference / row['param_bytes']:+.3%}) "
                f"{ {dtype: count for dtype, count in by_type.items() if count} }"
            )
    print(dict(outcomes))
    return 0 if set(outcomes) <= {"exact"} else 1


if __name__ == "__main__":
    sys.exit(main())
