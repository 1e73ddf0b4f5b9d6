"""What logs tell: each cause from lines as engines print them, and what is no cause."""

import bz2
import gzip
import io
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenroom.diagnosis.explain import Diagnosis, explain
from tokenroom.diagnosis.finding import CauseName, Phase
from tokenroom.diagnosis.remedies import remedies
from tokenroom.reports.diagnosis_text import evidence_lines, reason_text
from tokenroom.reports.messages import Language
from tokenroom.validation.reading import unpacked

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which {free} is free. Of the allocated memory {allocated} is "
    "allocated by PyTorch, and {kept} is reserved by PyTorch but unallocated."
)
FULL = OOM.format(free="500.00 MiB", allocated="77.50 GiB", kept="100.00 MiB")
LOADING = "INFO 01-01 Starting to load model meta-llama/Llama-3.1-70B..."
LOADED = "INFO 01-01 Model loading took 15.0 GiB memory and 3.1 seconds"
POOL = "INFO 01-01 [kv_cache_utils.py:1319] GPU KV cache size: 150,745 tokens"
SERVES = "INFO:     Application startup complete."


def diagnosed(*lines: str) -> Diagnosis:
    return explain(io.BytesIO("\n".join(lines).encode()))


CASES: list[tuple[str, str, tuple[str, ...]]] = [
    # cause, phase, lines
    ("weights_too_big", "load", (LOADING, FULL)),
    (
        "wrong_dtype_load",
        "load",
        (LOADING, "Loading safetensors checkpoint shards:   5% Completed | 1/20 [00:02]", FULL),
    ),
    ("activation_peak", "profile", (LOADING, LOADED, "  in profile_run", FULL)),
    ("activation_peak", "prefill", (LOADED, POOL, SERVES, FULL)),
    ("encoder_budget", "profile", (LOADED, "  embed_multimodal(images)  multimodal budget", FULL)),
    ("cuda_graphs", "graph_capture", (LOADED, POOL, "Capturing CUDA graph shapes:   0%", FULL)),
    (
        "fragmentation",
        "runtime",
        (SERVES, OOM.format(free="1.20 GiB", allocated="75.00 GiB", kept="1.90 GiB")),
    ),
    (
        "other_process",
        "runtime",
        (SERVES, OOM.format(free="0.20 GiB", allocated="40.00 GiB", kept="0.10 GiB")),
    ),
    (
        "other_process",
        "load",
        (
            "ValueError: Free memory on device cuda:0 (60.00/79.15 GiB) on startup is less than "
            "desired GPU memory utilization (0.9, 71.24 GiB).",
        ),
    ),
    (
        "misconfiguration",
        "load",
        (
            "ValueError: Free memory on device (78.60/79.15 GiB) on startup is less than desired "
            "GPU memory utilization (1.0, 79.15 GiB).",
        ),
    ),
    (
        "kv_pool_too_small",
        "kv_init",
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), "
            "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(9.12 GiB). Based on the available memory, the estimated maximum model length is "
            "74704.",
        ),
    ),
    ("kv_pool_too_small", "kv_init", ("ValueError: No available memory for the cache blocks.",)),
    (
        "kv_pool_too_small",
        "decode",
        ("KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.7",),
    ),
    ("kv_pool_too_small", "prefill", ("RuntimeError: Prefill out of memory. Try to lower batch",)),
    ("cuda_graphs", "graph_capture", ("Exception: Capture cuda graph failed: CUDA out of memory",)),
    (
        "shm",
        "load",
        ("ncclSystemError: Error while creating shared memory segment /dev/shm/nccl-a",),
    ),
    ("nccl_buffers", "load", ("NCCL WARN Cuda failure 2 'out of memory'",)),
    (
        "host_ram",
        "load",
        (
            LOADING,
            "Out of memory: Killed process 12 (python) anon-rss:5kB",
        ),
    ),
    (
        "compute_buffer",
        "kv_init",
        (
            "llama_kv_cache: CUDA0 KV buffer size = 4096.00 MiB",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on device 0: "
            "cudaMalloc failed: out of memory",
            "graph_reserve: failed to allocate compute buffers",
        ),
    ),
    (
        "weights_too_big",
        "load",
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 39000.00 MiB on device 0: "
            "cudaMalloc failed: out of memory",
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        ),
    ),
    ("leak", "runtime", tuple(f"Worker_TP0 RSS {20 + 3 * hour}.0 GiB" for hour in range(7))),
    ("misconfiguration", "load", ("AssertionError: 151936 is not divisible by 5",)),
]


@pytest.mark.parametrize(("cause", "phase", "lines"), CASES)
def test_causes_are_told_from_their_lines(cause: str, phase: str, lines: tuple[str, ...]) -> None:
    found = diagnosed(*lines)
    assert (str(found.cause), str(found.phase)) == (cause, phase)
    assert found.first is not None
    assert all(1 <= one.line <= len(lines) for one in found.first.evidence)


@pytest.mark.parametrize("lines", [("hello", "world"), ("INFO: GET /health 200",), ("",)])
def test_a_log_that_tells_nothing_is_no_cause(lines: tuple[str, ...]) -> None:
    found = diagnosed(*lines)
    assert found.cause is CauseName.UNKNOWN
    assert (found.first, found.confidence) == (None, "low")


def test_an_engine_that_serves_has_nothing_wrong() -> None:
    assert diagnosed(LOADING, LOADED, POOL, SERVES).healthy


ILLEGAL = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("serves", "line", "error"),
    [
        (SERVES, f"ERROR [core.py:400] RuntimeError: {ILLEGAL}", f"RuntimeError: {ILLEGAL}"),
        ("main: server is listening on http://127.0.0.1:8080", ILLEGAL, ILLEGAL),
        (
            "[2025-06-01 10:00:00] The server is fired up and ready to roll!",
            "[TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            "AssertionError: no such row",
            "AssertionError: no such row",
        ),
    ],
)
def test_an_engine_that_served_and_ended_is_not_well(serves: str, line: str, error: str) -> None:
    found = diagnosed(serves, line)
    assert (found.healthy, found.cause) == (False, CauseName.NOT_MEMORY)
    assert (found.other_error, found.phase) == (error, Phase.RUNTIME)
    assert diagnosed(serves, line, serves).healthy


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_log_cut_at_its_start_tells_nothing(packed: Callable[[bytes], bytes]) -> None:
    cut = packed(FULL.encode())[:30]
    found = explain(unpacked(io.BufferedReader(io.BytesIO(cut)), "log"))  # type: ignore[type-var]
    assert (found.cause, found.first) == (CauseName.UNKNOWN, None)


@pytest.mark.parametrize(
    "line",
    [
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 1992294400",
        "alloc_tensor_range: failed to allocate CPU buffer of size 1992294400",
    ],
)
def test_a_buffer_on_the_cpu_is_memory_of_the_host(line: str) -> None:
    ends = "llama_model_load: error loading model: unable to allocate backend buffer"
    found = diagnosed("load_tensors: loading model tensors", line, ends)
    assert (found.cause, found.confidence) == (CauseName.HOST_RAM, "high")
    device = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 1992294400"
    assert diagnosed("load_tensors: loading", device, ends).cause is CauseName.WEIGHTS_TOO_BIG


@pytest.mark.parametrize(
    "frame",
    [
        '  File "/x/transformers/models/llama/modeling_llama.py", line 180, in '
        "eager_attention_forward",
        '  File "/x/transformers/generation/utils.py", line 2982, in generate',
        '  File "/x/torch/_tensor.py", line 581, in backward',
    ],
)
def test_a_pass_of_transformers_after_its_shards_is_no_loading(frame: str) -> None:
    shards = "Loading checkpoint shards: 100%|####| 4/4 [00:07<00:00,  1.90s/it]"
    found = diagnosed(shards, "Traceback (most recent call last):", frame, FULL)
    assert (found.cause, found.phase) == (CauseName.ACTIVATION_PEAK, Phase.PREFILL)
    script = '  File "/home/u/generate.py", line 5, in main'
    assert diagnosed(shards, script, FULL).cause is CauseName.WEIGHTS_TOO_BIG


def test_no_line_speaks_twice() -> None:
    ends = "llama_model_load: error loading model: unable to allocate CUDA0 buffer"
    first = diagnosed("load_tensors: loading model tensors", ends).first
    assert first is not None
    assert [one.line for one in first.evidence] == [2]


SGLANG_STATIC = (
    "[TP0] server_args=ServerArgs(model_path='/m/Llama-3-70B', tp_size=2, mem_fraction_static=0.7)",
    "[TP0] Load weight begin. avail mem=78.50 GB",
    "[TP0] Load weight end. type=LlamaForCausalLM, avail mem=12.30 GB, mem usage=66.20 GB.",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
)


def test_a_share_in_the_arguments_is_told_and_what_suffices_computed() -> None:
    found = diagnosed(*SGLANG_STATIC)
    assert found.first is not None
    assert "(0.7)" in reason_text(found.first, Language.ENGLISH)
    flags = [one.flag for one in remedies(found.first, "sglang", None, found.report.facts.flags)]
    # what was not left by the weights is 0.843 of the GPU; a little more is for a pool
    assert flags == ["--mem-fraction-static 0.89", "--tp-size 4"]
    unknown = diagnosed(*SGLANG_STATIC[1:]).first
    assert unknown is not None
    assert "?" not in reason_text(unknown, Language.ENGLISH)


def test_an_error_of_another_kind_is_not_memory() -> None:
    found = diagnosed(LOADING, "OSError: We couldn't connect to 'https://huggingface.co'")
    assert found.cause is CauseName.NOT_MEMORY
    assert found.other_error is not None


def test_a_killed_process_alone_is_told_with_doubt() -> None:
    found = diagnosed(LOADING, "task failed: exit code 137")
    assert (found.cause, found.confidence) == (CauseName.HOST_RAM, "low")


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda line: json.dumps({"log": line + "\n", "stream": "stderr"}),
        lambda line: f"\x1b[31m{line}\x1b[0m\r",
        lambda line: f"2026-01-01T00:00:00.1Z stderr F {line}",
        lambda line: f"(EngineCore_DP0 pid=17) {line}",
    ],
)
def test_what_runtimes_add_is_taken_off(wrapped) -> None:  # type: ignore[no-untyped-def]
    found = diagnosed(*(wrapped(line) for line in (LOADED, POOL, "Capturing CUDA graphs", FULL)))
    assert found.cause is CauseName.CUDA_GRAPHS


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_logs_that_powershell_wrote_are_read(encoding: str) -> None:
    mark = "" if encoding in ("utf-16", "utf-8-sig") else "\ufeff"
    text = mark + "\r\n".join((LOADED, POOL, "Capturing CUDA graphs", FULL))
    assert explain(io.BytesIO(text.encode(encoding))).cause is CauseName.CUDA_GRAPHS


@pytest.mark.parametrize(
    "line",
    [
        f"INFO [logger.py:40] Received request chatcmpl-1: prompt: 'Why? {FULL}', params: x",
        "INFO [logger.py:9] Received request cmpl-2: prompt: 'OOMKilled, exit code 137, Bus error'",
        f"INFO [logger.py:70] Generated response cmpl-2: output: '{FULL}'",
        "WARNING If you run into CUDA out of memory, lower --gpu-memory-utilization",
        "WARNING Large batches may lead to CUDA out of memory errors",
        "INFO Set it lower to avoid torch.OutOfMemoryError",
        'INFO:     127.0.0.1:137 - "POST /v1/chat/completions HTTP/1.1" 200 OK, status 137',
        "INFO code of token 137 is",
    ],
)
def test_what_clients_write_and_advice_is_no_failure(line: str) -> None:
    assert diagnosed(LOADING, LOADED, POOL, SERVES, line).healthy


@pytest.mark.parametrize(
    "line",
    [
        "Yesterday my training stopped with CUDA out of memory and I do not know why",
        "What does it mean that the pod was OOMKilled, and how do I give it more room?",
        "Please explain why a process is Killed when the machine has no memory left",
    ],
)
def test_prompts_that_are_printed_as_they_are_are_no_failure(line: str) -> None:
    assert diagnosed(LOADING, LOADED, POOL, SERVES, line).healthy
    assert diagnosed(LOADING, LOADED, POOL, SERVES, f"ERROR 01-01 {FULL}").first is not None


@pytest.mark.parametrize(
    "line",
    [
        FULL,
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.00 MiB on device 0: cudaMalloc "
        "failed: out of memory",
        "exit code 137",
        "Killed",
    ],
)
def test_an_error_without_anything_around_it_is_told_with_doubt(line: str) -> None:
    assert diagnosed(line).confidence == "low"


@pytest.mark.parametrize(
    ("cause", "phase", "lines"),
    [
        (
            "activation_peak",
            "prefill",
            ('ERROR [core.py:500]   File "gpu_model_runner.py", line 1, in execute_model', FULL),
        ),
        (
            "wrong_dtype_load",
            "load",
            (
                "MXFP4 quantization requires triton >= 3.4.0, we will default to dequantizing the "
                "model to bf16",
                FULL,
            ),
        ),
        (
            "weights_too_big",
            "load",
            ("ValueError: Some modules are dispatched on the CPU or the disk.",),
        ),
        (
            "weights_too_big",
            "load",
            (
                "llama_params_fit_impl: projected to use 21000 MiB of device memory vs. 15800 "
                "MiB of "
                "free device memory",
                "llama_params_fit: failed to fit params to free device memory: n_gpu_layers "
                "already "
                "set by user to 99, abort",
            ),
        ),
        (
            "encoder_budget",
            "load",
            (
                "ValueError: Chunked MM input disabled but max_tokens_per_mm_item (16384) is "
                "larger "
                "than max_num_batched_tokens (2048).",
            ),
        ),
        ("leak", "runtime", tuple(f"| {9000 + 900 * hour}MiB / 24564MiB |" for hour in range(7))),
        (
            "host_ram",
            "load",
            ("Error: model requires more system memory (9 GiB) than is available (7 GiB)",),
        ),
    ],
)
def test_further_lines_of_engines_are_told(cause: str, phase: str, lines: tuple[str, ...]) -> None:
    found = diagnosed(*lines)
    assert (str(found.cause), str(found.phase)) == (cause, phase)


@pytest.mark.parametrize(
    "line",
    ["exit code: 137", "Exit Code:    137", "exited with code 137", "Exited (137)", "exitCode=137"],
)
def test_exit_codes_of_a_kill_are_read(line: str) -> None:
    assert diagnosed(LOADING, line).cause is CauseName.HOST_RAM


SMI = {
    "driver 535": (
        "|   0  NVIDIA GeForce RTX 4090        On  | 00000000:1E:00.0 Off |                  Off |",
        "| 30%   26C    P8              16W / 450W |  20214MiB / 24564MiB |      0%      Default |",
        "|    0   N/A  N/A      4711      C   python3                                   20100MiB |",
    ),
    "driver 450": (
        "| 23%   42C    P2   108W / 250W |  10719MiB / 11172MiB |     42%      Default |",
        "|    0      1234      C   python                                     10700MiB |",
    ),
}


@pytest.mark.parametrize("table", SMI.values(), ids=SMI)
def test_an_error_without_figures_is_told_by_the_processes_beside_it(
    table: tuple[str, ...],
) -> None:
    found = diagnosed("RuntimeError: CUDA error: out of memory", *table)
    assert (found.cause, found.confidence) == (CauseName.OTHER_PROCESS, "low")
    assert diagnosed(*table).first is None  # a table alone is no failure


def test_a_start_that_served_later_is_told() -> None:
    found = diagnosed(LOADING, LOADED, FULL, LOADING, LOADED, POOL, SERVES)
    assert found.cause is CauseName.ACTIVATION_PEAK
    assert found.served_after == 7
    assert diagnosed(LOADED, POOL, SERVES, FULL).served_after is None


def test_secrets_of_a_line_are_hidden() -> None:
    secrets = "--api-key s3cr3tvalue HF_TOKEN=hf_abcdefgh http://me:pw@host/x"
    found = diagnosed(LOADING, f"{secrets} {FULL}")
    assert found.first is not None
    shown = " ".join(one.text for one in found.first.evidence)
    for secret in ("s3cr3tvalue", "hf_abcdefgh", "me:pw"):
        assert secret not in shown


def test_long_logs_keep_few_sightings() -> None:
    stats = (
        "INFO Engine 000: Avg generation throughput: 10.0 tokens/s, Running: 3 reqs, "
        "Waiting: 0 reqs, GPU KV cache usage: 41.0%"
    )
    found = diagnosed(*[stats] * 5000, FULL)
    assert len(found.report.sightings) <= 256
    assert found.report.counts["vllm_stats"] == 5000
    assert found.first is not None
    assert found.first.evidence[-1].line == 5001


@pytest.mark.parametrize("seed", range(40))
def test_any_mix_of_damaged_lines_is_told_without_failing(seed: int) -> None:
    rng = random.Random(seed)
    every = [line for case in CASES for line in case[2]]
    data = bytearray("\n".join(rng.choices(every, k=rng.randrange(1, 12))).encode())
    for _ in range(rng.choice((0, 3, 20))):
        place = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[place] = rng.randrange(256)
        else:
            data[place:place] = bytes(rng.choices(b"0123456789.,()[]{}\x1b\r\n\x00 -", k=4))
    found = explain(io.BytesIO(bytes(data)))
    for one in found.findings:
        for engine in (None, "vllm", "ollama"):
            assert all(step.key for step in remedies(one, engine, None))
        assert "{" not in reason_text(one, Language.ENGLISH) or "{" in str(one.values)
        assert all(data.count(b"\n") + 1 >= sighting.line for sighting in one.evidence)


def test_reports_of_real_failures(shared: Path) -> None:
    """The right cause first in nine of ten, in the first two in all but one, the right phase."""
    first = two = phase = count = 0
    for folder in sorted((shared / "truth" / "oom_cases").iterdir()):
        truth = json.loads((folder / "truth.json").read_text())
        with (folder / "input.txt").open("rb") as file:
            found = explain(file)
        names = [str(finding.cause) for finding in found.findings]
        count += 1
        first += names[:1] == [truth["cause"]]
        two += truth["cause"] in names[:2]
        phase += str(found.phase) == truth["phase"]
    assert count >= 20
    assert first >= 0.9 * count
    assert two >= count - 1
    assert phase >= 0.9 * count


def test_logs_of_real_starts(shared: Path) -> None:
    from tokenroom.validation.reading import open_plain

    for log in sorted((shared / "truth" / "vllm_logs").glob("*.log.gz")):
        with open_plain(log) as file:
            found = explain(file)
        failed = "FAILED" in log.name
        if failed:
            assert found.cause is not CauseName.UNKNOWN, log.name
        else:
            assert found.healthy, log.name


DESCRIBED = """    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Mon, 30 Nov 2026 02:10:01 +0000
      Finished:     Mon, 30 Nov 2026 {finished} +0000
    Ready:          False
    Restart Count:  6
"""

IN_YAML = """      terminated:
        exitCode: 137
        finishedAt: "2026-11-30T{finished}Z"
        reason: OOMKilled
        startedAt: "2026-11-30T02:10:01Z"
"""


@pytest.mark.parametrize("text", [DESCRIBED, IN_YAML])
def test_a_container_killed_soon_after_its_start_read_its_model(text: str) -> None:
    early = diagnosed(text.format(finished="02:12:41"))
    assert (early.cause, early.phase) == (CauseName.HOST_RAM, "load")
    assert not any(one.cause is CauseName.LEAK for one in early.findings)
    assert early.first is not None
    assert "160 s after it began" in reason_text(early.first, Language.ENGLISH)
    late = diagnosed(text.format(finished="09:12:41"))
    assert any(one.cause is CauseName.LEAK for one in late.findings)
    served = diagnosed(SERVES, text.format(finished="02:12:41"))
    assert served.cause is CauseName.LEAK


def test_a_moment_that_cannot_be_read_says_nothing() -> None:
    found = diagnosed(DESCRIBED.format(finished="noon"))
    assert found.cause is CauseName.LEAK


def test_a_failed_capture_shows_the_figures_beside_what_sglang_says() -> None:
    found = diagnosed(FULL, "Exception: Capture cuda graph failed: CUDA out of memory.")
    assert found.first is not None
    assert found.cause is CauseName.CUDA_GRAPHS
    assert [one.line for one in found.first.evidence] == [1, 2]


def test_a_line_is_shown_to_the_last_figure_that_was_read() -> None:
    line = f"ERROR 11-30 03:02:17 [core.py:845] {'a' * 40} {FULL} {'b' * 600}"
    found = diagnosed(SERVES, line)
    assert found.first is not None
    (shown,) = evidence_lines(found.first, Language.ENGLISH)
    assert "100.00 MiB" in shown
    assert "bbb" not in shown
    assert shown.endswith("…")
