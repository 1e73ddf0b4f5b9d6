"""llama.cpp's log words: buffers by device, in MiB.

Sources: src/llama-model.cpp ``load_tensors``, src/llama-kv-cache.cpp, src/llama-context.cpp,
src/llama-memory-recurrent.cpp, src/llama-model-loader.cpp ``llama_ftype_name``, src/llama.cpp,
ggml/src/ggml-cuda/ggml-cuda.cu (0c1e57098, and the names of 2024 builds: llm_load_tensors,
llama_kv_cache_init, llama_new_context_with_model).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tokenroom.validation.logs.facts import Facts, LogReader, sized
from tokenroom.validation.logs.lines import Message

_BUFFER: Final = re.compile(
    r"([A-Za-z][\w]*)\s+(model|KV|RS|output|compute) buffer size\s*=\s*([\d.]+) MiB"
)
_MODEL: Final = re.compile(r"loaded meta data with .*? tensors from (\S.*?) \(version")
_DEVICE: Final = re.compile(r"Device \d+: (.+?), (?:compute capability|gfx|VMM)")
_USING: Final = re.compile(r"using device \S+ \((.+?)\)(?: \([^()]*\))? - \d+ MiB free")
_SETTING: Final = re.compile(r"\b(n_ctx|n_batch|n_ubatch|n_seq_max|flash_attn)\s+= +(\w+)")
_OFFLOADED: Final = re.compile(r"offloaded (\d+)/\d+ layers to GPU")
_TYPES: Final = re.compile(r"K \((\w+)\):.*?V \((\w+)\):")
_FILE_TYPE: Final = re.compile(
    r"\b(?:file type|model ftype)\s*= (?:\(guessed\) |mostly )?(?:all )?(\w+)"
    r"(?: - (Small|Medium|Large)\b)?"
)
_BUILD: Final = re.compile(r"\bbuild: (\d+) \(")
_NAMES: Final = {"model": "model", "KV": "kv", "RS": "rs", "compute": "compute"}


class LlamaCppLog(LogReader):
    """Reads what llama.cpp prints."""

    engine = "llama.cpp"
    keywords = (
        " buffer size",
        "loaded meta data with",
        "  Device ",
        " devices",
        "using device ",
        "n_ctx  ",
        "n_batch  ",
        "n_ubatch  ",
        "n_seq_max  ",
        "flash_attn  ",
        "layers to GPU",
        "file type  ",
        "model ftype  ",
        " cells, ",
        "KV self size",
        "build: ",
    )
    started = ("server is listening", "main: server is listening", "all slots are idle")
    out_of_memory = (
        "failed to allocate",
        "out of memory",
        "ErrorOutOfDeviceMemory",
        "unable to allocate",
    )
    figures = (
        sized(
            r"size = +<kv_total_mib> MiB \( *<kv_cells> cells, +<kv_layers> layers.*?"
            r"K \(\w+\): +<k_mib> MiB, V \(\w+\): +<v_mib> MiB"
        ),
        sized(
            r"KV self size += +<kv_total_mib> MiB, K \(\w+\): +<k_mib> MiB, "
            r"V \(\w+\): +<v_mib> MiB"
        ),
    )

    def read(self, message: Message) -> None:
        """Buffers, which are named by their device, and the settings of the context."""
        text, facts = message.text, self.facts
        if (model := _MODEL.search(text)) is not None:
            self.begin()
            facts = self.facts
            facts.model = model[1]
        for device, kind, size in _BUFFER.findall(text):
            if kind == "output":
                facts.note("output_buffer_mib", "", size)
            else:
                name = "host" if device.endswith("_Host") else device.removesuffix("_Mapped")
                facts.note(f"{name.lower()}_{_NAMES[kind]}_mib", "", size)
        for name, value in _SETTING.findall(text):
            if value not in ("auto", "0") or name == "flash_attn":
                facts.flags.setdefault(name, int(value) if value.isdigit() else value)
        if (types := _TYPES.search(text)) is not None:
            facts.flags.setdefault("cache_type_k", types[1])
            facts.flags.setdefault("cache_type_v", types[2])
        if (kind := _FILE_TYPE.search(text)) is not None:
            size = f"_{kind[2][0]}" if kind[2] and kind[1] != "Q2_K" else ""
            facts.layout = kind[1] + size
        if (offloaded := _OFFLOADED.search(text)) is not None:
            facts.flags["ngl"] = int(offloaded[1])
        if (build := _BUILD.search(text)) is not None:
            facts.version = f"b{build[1]}"
        for device in (*_DEVICE.findall(text), *_USING.findall(text)):
            if facts.gpu is None:
                facts.gpu = device
        if (count := re.search(r"found (\d+) \w+ devices", text)) is not None:
            facts.gpus = int(count[1])

    def finish(self, facts: Facts) -> Mapping[str, Any]:
        """The figures; one device when the log counts none."""
        if facts.gpu is not None and facts.gpus is None:
            facts.gpus = 1
        return facts.reported()
