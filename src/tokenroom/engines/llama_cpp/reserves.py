"""What llama.cpp sets memory aside for, for the table of engines."""

from __future__ import annotations

from typing import Final

from tokenroom.engines.policy import Reservation

RESERVES: Final = (
    Reservation(
        what="model buffers",
        when="at load, for good",
        of_what="exact size of the tensors placed on the device; the token embedding stays on the "
        "host",
        default="-ngl auto: as many layers as --fit finds room for, the output layer counted",
        source="src/llama-model.cpp load_tensors",
    ),
    Reservation(
        what="KV buffers",
        when="at start, for good, for the whole context",
        of_what="cells x layers x (K row + V row); windowed layers hold the window and one "
        "micro-batch; a state a sequence for recurrent layers",
        default="-c 0: the trained length, lowered by --fit; 4 slots over one pool",
        source="src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp",
    ),
    Reservation(
        what="compute buffers",
        when="at start, for good, reserved with the largest graph",
        of_what="peak of the graph's live tensors: logits of the outputs, FFN and masks of a "
        "micro-batch; scores of all heads without flash attention",
        default="-ub 512; -fa auto",
        source="src/llama-context.cpp sched_reserve, ggml/src/ggml-alloc.c",
    ),
    Reservation(
        what="margin",
        when="while fitting, before anything is loaded",
        of_what="free memory of each device that is left alone",
        default="--fit-target 1024 (MiB)",
        source="common/fit.cpp",
    ),
    Reservation(
        what="prompt cache and checkpoints",
        when="while serving, in host memory, up to the limit",
        of_what="saved states of idle slots; snapshots of windowed and recurrent states",
        default="--cache-ram 8192 (MiB), --ctx-checkpoints 32",
        source="common/common.h, tools/server",
    ),
)
