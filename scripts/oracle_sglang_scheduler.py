"""Record what SGLang's own scheduler decides, step by step, on workloads of our own.

Runs the event loops of SGLang's ``Scheduler`` (0.5.23) on a CPU with its own ``SchedulePolicy``,
``PrefillAdder``, ``ScheduleBatch``, token and page allocators, ``UnifiedRadixCache`` and
``SchedulerBatchResultProcessor``. The object is made without its constructor, which would load a
model; of its methods ``ingest_requests`` (no sockets), ``run_batch`` (no forward pass: the tokens
are made up, since only their number matters), ``process_batch_result`` (no metrics) and
``on_idle`` are replaced. Needs a Python 3.11 with torch 2.11 to 2.14, transformers and an unpacked
wheel of SGLang on its path; torchvision and gguf, which the imports name, are stood in for. From
the repository root, with ``src`` on PYTHONPATH::

    python scripts/oracle_sglang_scheduler.py record FILE
    python scripts/oracle_sglang_scheduler.py random SEED COUNT FILE
    python scripts/oracle_sglang_scheduler.py compare SEED COUNT

``record`` runs the workloads of a file anew, ``random`` appends drawn ones to it, ``compare`` runs
drawn ones through both schedulers and prints where they part. ``compare`` also runs with the tree
in Rust, which SGLang takes by default and whose shape cannot be read: set
SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND to ``rust``.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import types
from array import array
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "serving"))

import sglang_on_cpu  # noqa: F401

# isort: split
import torch
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
from sglang.srt.managers.scheduler_components.recv_skipper import SchedulerRecvSkipper
from sglang.srt.managers.utils import GenerationBatchResult, validate_input_length
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import SpawnRanks, get_context, publish
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang_scenarios import Scenario, Steps, checksum, read, replay, write

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


def _name(index: int) -> str:
    """A request's id; SGLang ends all whose ids begin alike."""
    return f"{index:04d}"


class _Silent:
    """Takes any call and answers nothing: metrics, traces, streams."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> None:
        return None

    def __bool__(self) -> bool:
        return False


class _Metrics(_Silent):
    """Counters that results add to."""

    num_generated_tokens = forward_ct_decode = 0


class _Group:
    """A queue of requests that nobody uses."""

    def has_waiting_grammars(self) -> bool:
        return False

    def abort_requests(self, _: Any) -> None:
        pass


class _Beams:
    def pending_member_rows(self, _: Any) -> int:
        return 0

    def retire_group(self, _: Any) -> None:
        pass

    def commit_decode(self, _: Any) -> set[int]:
        return set()


class _Alike:
    """Adapters that give back the batch they are handed."""

    def maybe_prepare_mlp_sync_batch(self, batch: Any, need_sync: Any = None) -> Any:
        return batch

    def maybe_convert_decode_to_extend(self, batch: Any) -> Any:
        return batch

    def prepare_for_forward(self, batch: Any, chunked_req: Any = None) -> Any:
        return batch


class _Tokens:
    """Tokens that a step gives: each request's next one when the result is taken in."""

    def __init__(self, owner: Driven, reqs: list[Any]) -> None:
        self._owner, self._reqs = owner, reqs

    def tolist(self) -> list[int]:
        return [self._owner.next_token(req) for req in self._reqs]

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())


class Driven(Scheduler):
    """SGLang's scheduler with made-up requests and forward passes."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        config = self.config = scenario["config"]
        page = config["page_size"]
        get_context().override(
            "oracle",
            page_size=page,
            chunked_prefill_size=config["chunked_prefill_size"],
            max_prefill_tokens=config["max_prefill_tokens"],
            enable_mixed_chunk=config["enable_mixed_chunk"],
            schedule_policy=config["schedule_policy"],
            schedule_conservativeness=config["schedule_conservativeness"],
            disable_overlap_schedule=not config["overlap"],
            disable_radix_cache=config["disable_radix_cache"],
            prefill_max_requests=config["prefill_max_requests"],
            pp_max_micro_batch_size=config["max_running_requests"],
            scheduler_recv_interval=config.get("scheduler_recv_interval", 1),
        )
        self.recv_skipper = SchedulerRecvSkipper.maybe_create()
        self.device = "cpu"
        self.page_size = page
        self.spec_algorithm = SpeculativeAlgorithm.from_string(None)
        self.model_config = types.SimpleNamespace(
            vocab_size=320,
            is_encoder_decoder=False,
            is_multimodal=False,
            self_opened_think_start_ids=None,
            think_end_ids=None,
        )
        self.max_total_num_tokens = config["max_total_num_tokens"]
        self.max_prefill_tokens = config["max_prefill_tokens"]
        self.max_running_requests = config["max_running_requests"]
        self.max_req_len = min(config["context_length"] - 1, self.max_total_num_tokens - 1)
        self.max_req_input_len = self.max_req_len - 5
        self.max_new_tokens_limit = None
        self.kv_shard_widening = 1
        self.sliding_window_size = None
        self.is_hybrid_swa = False
        self.is_generation = True
        self.enable_overlap = config["overlap"]
        self.chunked_prefill_size = config["chunked_prefill_size"]
        self.is_mixed_chunk = self.chunked_prefill_size is not None and config["enable_mixed_chunk"]
        for name in (
            "enable_hisparse",
            "enable_lora",
            "enable_hicache_storage",
            "enable_lmcache",
            "enable_hierarchical_cache",
            "enable_unified_cache_external_linker",
            "enable_priority_scheduling",
            "enable_priority_preemption",
            "schedule_low_priority_values_first",
            "abort_on_priority_when_disabled",
            "require_mlp_sync",
            "enable_unified_memory",
            "enable_pdmux",
            "enable_continuous_input_polling",
            "gracefully_exit",
            "_engine_paused",
        ):
            setattr(self, name, False)
        for name in (
            "dllm_config",
            "prefill_delayer",
            "min_free_slots_delayer",
            "dynamic_chunk_sizer",
            "lora_drainer",
            "truncation_align_size",
            "decode_offload_manager",
            "hisparse_coordinator",
            "max_queued_requests",
            "chunked_req",
            "_pending_chunked_abort_req",
            "last_batch",
            "cur_batch_for_debug",
            "rust_server",
            "mm_receiver",
            "scheduler_stage_metrics",
        ):
            setattr(self, name, None)
        for name in (
            "prefill_decode_interval",
            "prefill_decode_interval_min_bs",
            "_prefill_decode_interval_remaining",
            "priority_scheduling_preemption_threshold",
            "processed_tokens_counter",
            "max_prefill_bs",
            "forward_ct",
        ):
            setattr(self, name, 0)
        self.disaggregation_mode = DisaggregationMode.NULL
        self.default_priority_value = None
        self.metrics_reporter = _Metrics()
        self.load_inquirer = types.SimpleNamespace(_get_num_pending_tokens=lambda **_: 0)
        self.output_streamer = _Silent()
        self.grammar_manager = _Group()
        self.beam_coordinator = _Beams()
        self.dp_attn_adapter = self.ngram_embedding_manager = _Alike()
        self.tp_worker = self.model_worker = types.SimpleNamespace(
            model_runner=types.SimpleNamespace(attn_backend=None, prefill_aware_swa=False)
        )
        self.draft_worker = None
        size, rows = self.max_total_num_tokens, self.max_running_requests
        self.req_to_token_pool = ReqToTokenPool(rows, config["context_length"] + 8, "cpu", False)
        self.token_to_kv_pool_allocator = (
            TokenToKVPoolAllocator(size, torch.float32, "cpu", None, False)
            if page == 1
            else PagedTokenToKVPoolAllocator(size, page, torch.float32, "cpu", None, False)
        )
        self.tree_cache = UnifiedRadixCache(
            CacheInitParams(
                disable=config["disable_radix_cache"],
                req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
                page_size=page,
                tree_components=(ComponentType.FULL,),
            )
        )
        self.policy = SchedulePolicy(
            config["schedule_policy"], self.tree_cache, False, False, False
        )
        self.new_token_ratio_tracker = NewTokenRatioTracker.from_config()
        self.waiting_queue = []
        self.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)
        self.result_queue = deque()
        self.enable_skip_finishing_decode = False
        self.batch_result_processor = SchedulerBatchResultProcessor(
            is_generation=True,
            disaggregation_mode=self.disaggregation_mode,
            enable_overlap=self.enable_overlap,
            enable_overlap_mlx=False,
            model_config=self.model_config,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            tree_cache=self.tree_cache,
            hisparse_coordinator=None,
            req_to_token_pool=self.req_to_token_pool,
            decode_offload_manager=None,
            metrics_collector=_Silent(),
            metrics_reporter=_Metrics(),
            draft_worker=None,
            model_worker=self.model_worker,
            logprob_result_processor=_Silent(),
            output_streamer=self.output_streamer,
            beam_coordinator=self.beam_coordinator,
            abort_request=self.abort_request,
        )
        self.steps = Steps(scenario["requests"])
        self.row: dict[str, Any] | None = None
        self.known: dict[str, Req] = {}
        self.coming: list[int] = []
        self.ended: set[str] = set()
        self.cached: dict[str, int] = {}

    # -- made up --------------------------------------------------------------------------------

    def token(self, index: int, position: int) -> int:
        """A token of prompt or answer: equal where, and only where, block hashes are."""
        size = self.config["name_tokens"]
        hashes = self.scenario["requests"][index][7]
        block = position // size
        if block < len(hashes):
            return hashes[block] * size + position % size
        return OWN_TOKEN * (index + 1) + position

    def next_token(self, req: Req) -> int:
        return self.token(int(req.rid), len(req.origin_input_ids) + len(req.output_ids))

    def _arrive(self, index: int) -> None:
        _, _, prompt, output, most, ignore_eos, _, _ = self.scenario["requests"][index]
        parameters = SamplingParams(max_new_tokens=most, ignore_eos=bool(ignore_eos))
        parameters.normalize(None)
        req = Req(
            rid=_name(index),
            origin_input_text="",
            origin_input_ids=array("q", [self.token(index, at) for at in range(prompt)]),
            sampling_params=parameters,
            eos_token_ids={self.token(index, prompt + output - 1)},
            vocab_size=1 << 62,
        )
        req.logprob_start_len = -1
        self.init_req_max_new_tokens(req)
        assert validate_input_length(req, self.max_req_input_len, False) is None
        self.known[req.rid] = req
        self._add_request_to_queue(req)

    def _is_gone(self, req: Req) -> bool:
        return req.finished() or req.rid in self.ended

    def send_abort_output(self, abort_req: Any, req: Req) -> None:
        self.ended.add(req.rid)

    def _release_aborted_request(self, req: Req) -> None:
        pass

    def _prefetch_kvcache(self, req: Req, storage_hit_end: int | None = None) -> None:
        pass

    def _process_hicache_events(self) -> None:
        pass

    def _apply_war_barrier(self) -> None:
        pass

    def launch_batch_sample_if_needed(self, *_: Any) -> None:
        pass

    def ingest_requests(self, stop_at_pause: bool = False) -> list[Any]:
        """Close the row of the step before and let in what arrives at this one."""
        if self.row is not None:
            row, self.row = self.row, None
            finished = [rid for rid, req in self.known.items() if self._is_gone(req)]
            for rid in finished:
                del self.known[rid]
            more = self.steps.add(
                **row,
                finished=sorted(map(int, finished)),
                returned=self._sizes(),
            )
            if not more:
                self.gracefully_exit = True
                return []
        step = len(self.steps.rows) + 1
        idle = not self.known and not self.result_queue
        if idle:
            self.new_token_ratio_tracker.reset()  # on_idle: an idle loop turns until one arrives
            if step > self.steps.last_event:
                self.gracefully_exit = True
                return []
        rows = self.scenario["requests"]
        self.coming += [index for index, request in enumerate(rows) if request[0] == step]
        skipper = self.recv_skipper
        if skipper is None or skipper.handle(self.last_batch) or idle:
            if skipper is not None:
                skipper._counter = 0
            for index in self.coming:
                self._arrive(index)
            self.coming = []
        aborted = []
        for index, request in enumerate(rows):
            if request[1] == step and _name(index) in self.known:
                aborted.append(index)
                self.abort_request(AbortReq(rid=_name(index)))
        self.row = {"aborted": aborted}
        return []

    def get_next_batch_to_run(self, running_batch: Any, last_batch: Any) -> Any:
        if self.gracefully_exit:
            return types.SimpleNamespace(running_batch=running_batch, batch_to_run=None)
        before = {rid: req.retraction_count for rid, req in self.known.items()}
        plan = super().get_next_batch_to_run(running_batch, last_batch)
        batch = plan.batch_to_run
        scheduled: list[list[int]] = []
        admitted: list[list[int]] = []
        if batch is not None:
            extends = batch.forward_mode.is_extend()
            for at, req in enumerate(batch.reqs):
                length = int(batch.seq_lens_cpu[at])
                start = batch.prefix_lens[at] if extends else length - 1
                scheduled.append([int(req.rid), length - start, start])
                if req.rid not in self.cached:
                    self.cached[req.rid] = req.cached_tokens
                    admitted.append([int(req.rid), req.cached_tokens])
        assert self.row is not None
        ratio = self.new_token_ratio_tracker.current
        running, chunked = plan.running_batch.reqs, self.chunked_req
        self.row.update(
            scheduled=scheduled,
            admitted=admitted,
            retracted=[
                int(rid)
                for rid, count in sorted(before.items())
                if self.known[rid].retraction_count > count
            ],
            decided=[
                *self._sizes(),
                len(running),
                len(self.waiting_queue),
                int(plan.running_batch.batch_is_full),
                int(chunked is not None),
            ],
            queue=[int(req.rid) for req in self.waiting_queue],
            ratio=round(ratio, 9) if self.known or self.coming else 0,
            tree=self._shape(),
        )
        return plan

    def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
        self.forward_ct += 1
        batch.forward_iter = self.forward_ct
        batch.input_ids = None
        return GenerationBatchResult(next_token_ids=_Tokens(self, batch.reqs[:]))

    def process_batch_result(self, batch: Any, result: Any) -> None:
        if batch.forward_mode.is_decode():
            self.batch_result_processor.process_batch_result_decode(batch, result)
        else:
            self.batch_result_processor.process_batch_result_prefill(batch, result)

    def on_idle(self) -> None:
        if self.is_fully_idle():
            self.new_token_ratio_tracker.reset()
            allocator, tree = self.token_to_kv_pool_allocator, self.tree_cache
            assert allocator.available_size() + tree.evictable_size() == (
                self.max_total_num_tokens // self.page_size * self.page_size
            )

    def is_fully_idle(self, for_health_check: bool = False, ignore_waiting: bool = False) -> bool:
        return (
            self.running_batch.is_empty()
            and self.chunked_req is None
            and (self.last_batch is None or self.last_batch.is_empty())
            and not self.result_queue
            and not self.waiting_queue
        )

    # -- what is recorded -------------------------------------------------------------------------

    def _sizes(self) -> list[int]:
        return [self.token_to_kv_pool_allocator.available_size(), self.tree_cache.evictable_size()]

    def _shape(self) -> list[int]:
        """Nodes of the tree, and a checksum of where they lie, their locks and their recency."""
        core = self.tree_cache.tree_core
        if self.config["disable_radix_cache"] or not hasattr(core, "_collect_all_nodes"):
            return []
        found = []
        stack = [(core.root_node, 0)]
        while stack:
            node, depth = stack.pop()
            for child in node.children.values():
                end = depth + len(child.key)
                stack.append((child, end))
                found.append(
                    [
                        child.last_access_time,
                        child.key.token_ids[0],
                        depth,
                        end,
                        child.component_data[ComponentType.FULL].lock_ref,
                    ]
                )
        found.sort()
        return [len(found), checksum([row[1:] for row in found])]


def publish_arguments() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    Path(folder.name, "config.json").write_text(json.dumps(MODEL))
    arguments = ServerArgs(
        model_path=folder.name, device="cpu", skip_tokenizer_init=True, load_format="dummy"
    )
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0))
    return folder


def run(scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario as SGLang decides them."""
    driven = Driven(scenario)
    try:
        if driven.enable_overlap:
            driven.event_loop_overlap()
        else:
            driven.event_loop_normal()
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        driven.steps.rows.append({"fatal": True})
    return driven.steps.rows


def drawn(seed: int) -> Scenario:
    """A workload drawn from a seed: crowded, shared, aborted, long, cut, without caching."""
    draw = random.Random(seed)
    page = draw.choice((1, 1, 1, 4, 16, 64))
    size = page * draw.choice((1, 1, 4)) if page > 1 else draw.choice((1, 8, 16))
    longest = draw.choice((256, 512, 1024))
    chunk = draw.choice((None, 64, 128, 256, 512))
    seqs = draw.choice((2, 4, 16, 32, 32))
    typical = draw.choice((20, 60, 150, longest // 3))
    answers = draw.choice((1, 5, 30, 120, 120))
    count = draw.randint(3, 40)
    spread = draw.choice((1, 1, 10, 30, 200))
    share = draw.choice((0.0, 0.5, 0.9))
    asks = draw.choice(("length", "more", "more", "mixed"))
    conservativeness = draw.choice((1.0, 0.3, 0.05, 1.3))
    pool = int(longest * draw.choice((0.6, 1.05, 1.5, 3, 8)))
    if draw.random() < 0.3:  # more is let in than there is room for
        seqs, answers, asks, spread, conservativeness = 32, 120, "more", 10, 0.05
        count = draw.randint(10, 40)
        pool = (typical + 40) * draw.choice((4, 8, 12))
    pool = max(pool, 3 * page, 64)
    room = min(longest - 1, pool - 1) - 5
    names = 1
    shared: list[list[int]] = []
    for _ in range(draw.choice((1, 2, 5))):
        length = draw.randint(1, max(1, typical // size))
        shared.append(list(range(names, names + length)))
        names += length
    above = draw.choice((0.1, 0.5, 3))
    interval = draw.choice((1, 1, 1, 4, 10))
    requests: list[list[Any]] = []
    for _ in range(count):
        prompt = min(room - 1, 1 + int(draw.expovariate(1 / typical)))
        output = 1 + int(draw.expovariate(1 / answers))
        hashes: list[int] = []
        if draw.random() < share:
            if requests and draw.random() < 0.3:  # a next turn: the whole of an earlier request
                earlier = draw.choice(requests)
                blocks = min(earlier[2] + earlier[3], longest) // size
                while len(earlier[7]) < blocks:
                    earlier[7].append(names)
                    names += 1
                hashes = list(earlier[7])
                prompt = min(room - 1, max(prompt, len(hashes) * size + draw.randint(0, 9)))
            else:
                hashes = list(draw.choice(shared))
                if draw.random() < 0.7:
                    prompt = min(room - 1, prompt + len(hashes) * size)
            hashes = hashes[: (prompt + output) // size]
        arrival = draw.randint(1, spread)
        abort = arrival + draw.randint(0, 30) if draw.random() < 0.08 and interval == 1 else 0
        more = asks == "more" or (asks == "mixed" and draw.random() < 0.5)
        most = output + int(draw.expovariate(1 / (above * answers))) if more else output
        forced = int(most == output and draw.random() < (0.9 if asks == "length" else 0.3))
        requests.append([arrival, abort, prompt, output, most, forced, 0, hashes])
    return {
        "name": f"drawn {seed}",
        "config": {
            "max_total_num_tokens": pool,
            "page_size": page,
            "context_length": longest,
            "max_running_requests": seqs,
            "max_prefill_tokens": draw.choice((64, 256, 1024, 16384)),
            "chunked_prefill_size": None if chunk is None else max(chunk, page, 2 * seqs),
            "prefill_max_requests": draw.choice((None, None, None, 1, 3)),
            "scheduler_recv_interval": interval,
            "enable_mixed_chunk": draw.random() < 0.3,
            "disable_radix_cache": draw.random() < 0.2,
            "overlap": draw.random() < 0.7,
            "schedule_policy": draw.choice(("fcfs", "fcfs", "lpm", "dfs-weight", "lof")),
            "schedule_conservativeness": conservativeness,
            "name_tokens": size,
        },
        "requests": requests,
    }


def _compare(seeds: range) -> int:
    wrong = pairs = steps = retractions = ended = 0
    theirs_seconds = ours_seconds = 0.0
    for seed in seeds:
        scenario = drawn(seed)
        started = time.perf_counter()
        theirs = run(scenario)
        theirs_seconds += time.perf_counter() - started
        started = time.perf_counter()
        ours = replay(scenario)
        ours_seconds += time.perf_counter() - started
        if not any("tree" in row for row in theirs):
            for row in ours:  # the tree in Rust does not show its shape
                row.pop("tree", None)
        steps += len(theirs)
        pairs += sum(len(row.get("scheduled", ())) for row in theirs)
        retractions += sum(len(row.get("retracted", ())) for row in theirs)
        ended += any("fatal" in row for row in theirs)
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
        f"{len(seeds)} workloads, {steps} steps, {pairs} scheduled requests, {retractions} "
        f"retractions, {ended} that ended the server: {wrong} differ; "
        f"theirs {theirs_seconds:.1f} s, ours {ours_seconds:.1f} s"
    )
    return 1 if wrong else 0


def main(arguments: list[str]) -> int:
    """See the module's docstring."""
    folder = publish_arguments()
    with folder:
        if arguments[0] == "compare":
            first, count = int(arguments[1]), int(arguments[2])
            return _compare(range(first, first + count))
        path = Path(arguments[-1])
        scenarios = list(read(path)) if path.exists() else []
        if arguments[0] == "random":
            first, count = int(arguments[1]), int(arguments[2])
            scenarios += [drawn(seed) for seed in range(first, first + count)]
        write(path, [scenario | {"steps": run(scenario)} for scenario in scenarios])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
