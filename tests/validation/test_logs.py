"""Start-up logs of every engine, and what terminals and container runtimes do to them.

The logs in tests/fixtures/logs are made up in the engines' own line formats; that of vLLM on CPU
is real.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenroom import fit
from tokenroom.errors import RowError
from tokenroom.hardware.catalogue import load_catalogue
from tokenroom.validation.logs.lines import read_messages
from tokenroom.validation.logs.read import Started, read_log
from tokenroom.validation.rows import Row
from tokenroom.validation.validate import validate

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
VLLM = (LOGS / "vllm_0.19.log").read_text()
FIGURES = {
    "free_at_start_gib": 78.68,
    "total_gpu_gib": 79.19,
    "weights_gib": 15.27,
    "kv_gib": 57.5,
    "kv_tokens": 418688,
    "max_concurrency_len": 8192,
    "max_concurrency": 51.11,
    "graph_gib": 0.96,
}


def read(name: str, told: Started | None = None) -> Row:
    return read_log(LOGS / f"{name}.log", load_catalogue(), told)


def written(folder: Path, text: str | bytes) -> Row:
    file = folder / "start.log"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_log(file, load_catalogue())


def test_a_log_of_vllm_is_a_row() -> None:
    row = read("vllm_0.19")
    assert row.reported == FIGURES
    assert row.flags == {
        "max_model_len": 8192,
        "gpu_memory_utilization": 0.95,
        "enable_prefix_caching": False,
    }
    assert (row.engine, row.engine_version, row.model) == ("vllm", "0.19.0", "Qwen/Qwen3-8B")
    assert (row.gpu, row.inferred) == ("NVIDIA H100 80GB HBM3", ("gpu",))
    assert (row.gpus, row.outcome, row.grade) == (1, "ok", "C"), "three GPUs have that memory"
    assert read("vllm_0.19", Started(gpu="h100")).grade == "A"


def test_a_log_of_the_v0_engine_is_a_row() -> None:
    row = read("vllm_0.6")
    assert row.engine_version == "0.6.4"
    assert row.flags == {
        "max_model_len": 20000,
        "gpu_memory_utilization": 0.9,
        "tensor_parallel_size": 1,
    }
    assert row.reported["weights_gib"] == 14.9888
    assert row.reported["peak_torch_gib"] == 17.06
    assert row.reported["kv_gib"] == 3.81
    assert row.reported["blocks"] == 1952
    assert row.reported["max_concurrency"] == 1.56


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("print_info: file type   = Q4_K - Medium", "llama-3.2-3b Q4_K_M"),
        ("print_info: file type   = (guessed) Q5_K - Small", "llama-3.2-3b Q5_K_S"),
        ("llm_load_print_meta: model ftype      = IQ4_XS - 4.25 bpw", "llama-3.2-3b IQ4_XS"),
        ("print_info: file type   = Q2_K - Medium", "llama-3.2-3b Q2_K"),
        ("print_info: file type   = Q8_0", "llama-3.2-3b Q8_0"),
        ("print_info: file type   = unknown, may not work", "llama-3.2-3b"),
    ],
)
def test_the_type_of_a_file_goes_with_the_model_that_is_named(
    line: str, model: str, tmp_path: Path
) -> None:
    log = tmp_path / "l.log"
    text = (LOGS / "llama_cpp.log").read_text()
    log.write_text(text.replace("load_tensors: offloaded", f"{line}\nload_tensors: offloaded"))
    row = read_log(log, load_catalogue(), Started(model="llama-3.2-3b"))
    assert row.model == model
    assert row.flags["n_ctx"] == 4096
    assert read_log(log, load_catalogue(), Started(model="llama-3.2-3b Q6_K")).model == (
        "llama-3.2-3b Q6_K"
    ), "a name that says it counts"


def test_the_type_of_a_file_makes_its_tensors_exact(tmp_path: Path) -> None:
    log = tmp_path / "l.log"
    text = (LOGS / "llama_cpp.log").read_text()
    line = "print_info: file type   = Q4_K - Medium"
    log.write_text(text.replace("load_tensors: off", f"{line}\nload_tensors: off", 1))
    row = read_log(log, load_catalogue(), Started(model="llama-3.2-3b"))
    compared = {item.quantity: item.error_pct for item in validate([row]).comparisons}
    assert compared["cuda0_model_mib"] == pytest.approx(0, abs=0.001)
    assert compared["cpu_model_mib"] == pytest.approx(0, abs=0.001)


def test_words_of_other_releases_are_known(tmp_path: Path) -> None:
    late_v0 = (
        "INFO 03-01 10:00:00 worker.py:267] Memory profiling takes 3.10 seconds\n"
        "INFO 03-01 10:00:00 worker.py:267] the current vLLM instance can use total_gpu_memory "
        "(79.22GiB) x gpu_memory_utilization (0.90) = 71.30GiB\n"
        "INFO 03-01 10:00:00 worker.py:267] model weights take 14.96GiB; non_torch_memory takes "
        "0.09GiB; PyTorch activation peak memory takes 1.26GiB; the rest of the memory reserved "
        "for KV Cache is 54.99GiB.\n"
        "INFO 03-01 10:00:01 executor_base.py:111] # cuda blocks: 28154, # CPU blocks: 2048\n"
    )
    row = written(tmp_path, late_v0)
    assert row.reported == {
        "total_gpu_gib": 79.22,
        "budget_gib": 71.3,
        "weights_gib": 14.96,
        "non_torch_gib": 0.09,
        "activation_gib": 1.26,
        "kv_gib": 54.99,
        "blocks": 28154,
        "cpu_blocks": 2048,
    }
    assert row.flags == {"gpu_memory_utilization": 0.9}
    newest = (
        "(EngineCore pid=9) DEBUG 01-02 Memory profiling takes 9.00 seconds. Total non KV cache "
        "memory: 17.73GiB; torch peak memory increase: 2.21GiB; total consumed (from "
        "mem_get_info): 15.52GiB; weights memory: 15.27GiB.\n"
        "(EngineCore pid=9) INFO 01-02 GPU KV cache size: 418,672 tokens, Maximum concurrency for "
        "8,192 tokens per request: 51.11x\n"
    )
    row = written(tmp_path, newest)
    assert row.reported == {
        "total_non_kv_gib": 17.73,
        "activation_gib": 2.21,
        "consumed_gib": 15.52,
        "weights_gib": 15.27,
        "kv_tokens": 418672,
        "max_concurrency_len": 8192,
        "max_concurrency": 51.11,
    }


def test_a_start_that_failed_for_want_of_memory_says_so() -> None:
    row = read("vllm_failed")
    assert row.outcome == "fails"
    assert row.reported["kv_needed_gib"] == 10.12
    assert row.reported["kv_gib"] == 5.59
    assert row.reported["est_max_model_len"] == 122080


def test_a_log_of_sglang_is_a_row() -> None:
    row = read("sglang")
    assert (row.engine, row.model, row.gpus) == ("sglang", "Qwen/Qwen3-8B", 2)
    assert row.flags == {"tp_size": 2, "mem_fraction_static": 0.85, "page_size": 1}
    assert row.reported["weights_gib"] == 7.70, "the first rank's, though the second came first"
    assert row.reported["kv_tokens"] == 800000
    assert row.reported["kv_gib"] == 54.94
    assert row.reported["graph_gib"] == 0.60
    assert row.outcome == "ok"


def test_a_log_of_llama_cpp_is_a_row() -> None:
    row = read("llama_cpp")
    assert (row.engine, row.engine_version) == ("llama.cpp", "b8668")
    assert (row.gpu, row.gpus, row.model) == ("NVIDIA GeForce RTX 3090", 1, "/models/m.gguf")
    assert row.reported["cuda0_model_mib"] == 1918.35
    assert row.reported["cpu_model_mib"] == 308.23
    assert row.reported["cuda0_kv_mib"] == 448
    assert row.reported["host_compute_mib"] == 14.02
    assert (row.reported["k_mib"], row.reported["kv_layers"]) == (224, 28)
    assert row.flags["n_ctx"] == 4096
    assert row.flags["cache_type_k"] == "f16"


def test_a_log_of_tensorrt_llm_is_a_row() -> None:
    row = read("tensorrt_llm", Started(model="Qwen/Qwen3-8B"))
    assert (row.engine, row.engine_version) == ("tensorrt-llm", "1.0.0")
    assert row.reported["kv_tokens"] == 457120
    assert row.reported["block_size"] == 32
    assert row.reported["kv_gib"] == row.reported["available_kv_gib"] == 55.8
    assert row.flags == {"kv_cache_free_gpu_memory_fraction": 0.9}


def docker_json(text: str) -> str:
    return "".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-02T10:00:00Z"}) + "\n"
        for line in text.splitlines()
    )


def cri(text: str) -> str:
    """Lines as containerd keeps them, each cut in two."""
    cut = []
    for line in text.splitlines():
        middle = len(line) // 2
        cut.append(f"2026-01-02T10:00:00.123456789Z stdout P {line[:middle]}")
        cut.append(f"2026-01-02T10:00:00.123456789Z stdout F {line[middle:]}")
    return "\n".join(cut) + "\n"


def coloured(text: str) -> str:
    return "".join(f"\x1b[0;36m{line[:20]}\x1b[0m{line[20:]}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "disguise",
    [
        docker_json,
        cri,
        coloured,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(f"vllm-1  | {line}\n" for line in text.splitlines()),
        lambda text: "".join(
            f"[pod/vllm-0/server] 2026-01-02T10:00:00Z {line}\n" for line in text.splitlines()
        ),
        lambda text: "".join(
            f"Jan 02 10:00:00 host vllm[7]: {line}\n" for line in text.splitlines()
        ),
        lambda text: text.replace(
            "(EngineCore", "Loading: 10%|█  |\rLoading: 20%|██ |\r(EngineCore"
        ),
        lambda text: "\ufeff" + text,
    ],
    ids=["docker", "cri", "colours", "crlf", "compose", "kubectl", "syslog", "bars", "bom"],
)
def test_what_a_runtime_adds_changes_nothing(
    disguise: Callable[[str], str], tmp_path: Path
) -> None:
    assert written(tmp_path, disguise(VLLM)).reported == FIGURES


def test_a_gzipped_log_is_read_whatever_its_name(tmp_path: Path) -> None:
    assert written(tmp_path, gzip.compress(VLLM.encode())).reported == FIGURES


def test_a_gzipped_log_cut_in_the_middle_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    noise = "".join(f"INFO step {number * 7919 % 10007}\n" for number in range(4000))
    whole = gzip.compress((VLLM + noise).encode())
    assert written(tmp_path, whole[: len(whole) - 2000]).reported == FIGURES


def test_a_log_cut_within_a_figure_does_not_take_half_of_it(tmp_path: Path) -> None:
    cut = VLLM[: VLLM.index("418,688") + 3]
    row = written(tmp_path, cut)
    assert "kv_tokens" not in row.reported
    assert row.outcome is None


def test_ranks_that_write_into_one_line_are_told_apart(tmp_path: Path) -> None:
    text = (
        "INFO non-default args: {'model': 'm', 'tensor_parallel_size': 2}\n"
        "(Worker_TP1 pid=12) INFO Available KV cache memory: 36.9 GiB"
        "(Worker_TP0 pid=11) INFO Available KV cache memory: 37.28 GiB\n"
        "(EngineCore pid=10) INFO GPU KV cache size: 241,000 tokens\n"
    )
    row = written(tmp_path, text)
    assert row.reported == {
        "kv_gib": 37.28,
        "kv_tokens": 241000,
        "kv_gib_other_ranks": [36.9],
    }
    assert row.gpus == 2


def test_of_several_starts_the_last_with_figures_is_taken(tmp_path: Path) -> None:
    earlier = VLLM.replace("418,688", "111,111")
    again = VLLM.splitlines()[1]
    assert written(tmp_path, f"{earlier}{VLLM}{again}\n").reported == FIGURES


def test_secrets_of_the_command_line_do_not_reach_the_row() -> None:
    assert "sk-hidden" not in repr(read("vllm_0.19"))


def test_a_line_without_end_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    file = tmp_path / "long.log"
    file.write_bytes(b"x" * (3 * 2**18) + b"\n" + VLLM.encode())
    lengths = [len(message.text) for message in read_messages(file)]
    assert max(lengths) <= 2**18
    assert read_log(file, load_catalogue()).reported == FIGURES


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no line that"),
        (b"hello\nworld\n", "holds no line that"),
        (bytes(range(256)) * 40, "holds no line that"),
        (b"\x1f\x8b\x08\x00 not gzip at all", "holds no line that"),
    ],
    ids=["empty", "other", "binary", "damaged"],
)
def test_what_is_no_log_is_refused_in_one_sentence(
    content: bytes, said: str, tmp_path: Path
) -> None:
    with pytest.raises(RowError, match=said) as raised:
        written(tmp_path, content)
    assert "\n" not in str(raised.value)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="cannot be read"):
        read_log(tmp_path / "none.log", load_catalogue())


@pytest.mark.shared
def test_whole_logs_give_the_figures_that_people_took_from_them(shared: Path) -> None:
    rows = [
        json.loads(line)
        for line in (shared / "truth" / "engine_memory.jsonl").read_text().splitlines()
    ]
    logs = {row["log"]: row for row in rows if row.get("log")}
    assert len(logs) > 50
    catalogue = load_catalogue()
    # Of the run over four stages the row mixes the ranks' figures.
    mixed = {"total_non_kv_gib", "activation_gib"}
    for name, expected in logs.items():
        row = read_log(shared / "truth" / name, catalogue)
        for quantity, value in expected["reported"].items():
            if isinstance(value, list) or (quantity in mixed and "pp4" in name):
                continue
            assert row.reported.get(quantity) == value, (name, quantity)
        assert row.model == expected["model"], name
        assert row.outcome == expected["outcome"], name
        assert row.gpus == expected["gpus"], name


def test_a_real_start_on_cpu_and_its_metrics_are_a_row(tmp_path: Path) -> None:
    """Recorded by scripts/oracle_vllm_serve.py; 1 GiB holds what the cache's layout says."""
    row = read("vllm_cpu_0.32", Started(gpu="h100"))
    assert (row.engine, row.engine_version, row.model) == ("vllm", "0.32.0", "tiny-llama")
    assert row.flags == {
        "max_model_len": 1024,
        "block_size": 32,
        "max_num_seqs": 8,
        "enforce_eager": True,
    }
    assert (row.outcome, row.reported["block_size"], row.reported["blocks"]) == ("ok", 32, 65536)
    assert (row.reported["kv_gib"], row.reported["kv_tokens"]) == (1.0, 2_097_152)
    metrics = (LOGS / "vllm_cpu_0.32.log").read_text("utf-8").splitlines()[-1]
    assert metrics.startswith("vllm:cache_config_info{")
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = fit(
        tmp_path,
        "h100",
        engine="vllm@0.32.0",
        context=1024,
        block_size=32,
        kv_cache_memory_bytes=2**30,
    ).plan
    assert plan.kv_blocks == row.reported["blocks"]
    assert plan.kv_pool_tokens == row.reported["kv_tokens"]
    assert plan.max_concurrency == row.reported["max_concurrency"]
