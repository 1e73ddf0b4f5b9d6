"""Record what TensorRT-LLM's scheduling policies decide, step by step, on drawn workloads.

Runs ``PyCapacityScheduler`` and ``PyMicroBatchScheduler`` of a checkout's
``tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`` on a CPU, without the rest of the package:
what the module imports is made up here, and so are requests, the executor's loop and the blocks,
which are C++ there. The blocks are written after ``kvCacheManager.cpp`` on real tokens, apart from
ours. Nothing of it is needed to run the tests. With ``src`` on PYTHONPATH::

    python scripts/oracle_tensorrt_llm_scheduler.py SCHEDULER.py record COUNT FILE
    python scripts/oracle_tensorrt_llm_scheduler.py SCHEDULER.py compare FIRST COUNT
"""

from __future__ import annotations

import importlib.util
import sys
from enum import Enum, IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "serving"))

from tensorrt_llm_scenarios import MOST_STEPS, Scenario, drawn, replay, write

Tokens = tuple[int, ...]
WINDOW = 1 << 20


class State(IntEnum):
    """``LlmRequestState`` as far as the policies compare it."""

    ENCODER_INIT = 1
    CONTEXT_INIT = 10
    GENERATION_IN_PROGRESS = 13
    GENERATION_TO_COMPLETE = 14
    GENERATION_COMPLETE = 20


class Policy(Enum):
    """``CapacitySchedulerPolicy``."""

    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"


class Summary:
    """``PrefixReuseSummary``."""

    def __init__(self, everything: int = 0, held: int = 0, first_new: Tokens | None = None) -> None:
        self.reusable_blocks_all = everything
        self.reusable_blocks_allocated = held
        self.first_new_block = first_new


class OutOfBlocksError(Exception):
    """The pool ran out in a step: the engine would fail here."""


def load(path: str) -> ModuleType:
    """The scheduler's module, with made-up modules for what it imports."""
    internal = SimpleNamespace(
        batch_manager=SimpleNamespace(PrefixReuseSummary=Summary, PeftCacheManager=object)
    )
    requests = {"LlmRequest": Request, "LlmRequestState": State}
    requests |= dict.fromkeys(
        ("get_multimodal_encoder_token_lengths", "is_multimodal_encoder_ready"), None
    )
    made_up: dict[str, dict[str, Any]] = {
        "strenum": {"StrEnum": str},
        "tensorrt_llm": {},
        "tensorrt_llm.bindings": {"internal": internal},
        "tensorrt_llm.llmapi": {},
        "tensorrt_llm.llmapi.llm_args": {"CapacitySchedulerPolicy": Policy},
        "tensorrt_llm.logger": {"logger": SimpleNamespace(debug=lambda *_: None)},
        "tensorrt_llm._torch": {},
        "tensorrt_llm._torch.pyexecutor": {},
        "tensorrt_llm._torch.pyexecutor.llm_request": requests,
        "tensorrt_llm._torch.pyexecutor.scheduler": {},
    }
    for name, content in made_up.items():
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = []
        vars(module).update(content)
    spec = importlib.util.spec_from_file_location(
        "tensorrt_llm._torch.pyexecutor.scheduler.scheduler", path
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Request:
    """``LlmRequest`` as far as the policies read it."""

    lora_task_id = None
    num_draft_tokens = 0
    is_encoder_init_state = False
    is_disagg_generation_init_state = False

    def __init__(self, number: int, tokens: list[int], max_new_tokens: int) -> None:
        self.request_id = self.py_request_id = number
        self.tokens = tokens
        self.max_new_tokens = max_new_tokens
        self.pausing = False
        self.begin()

    def begin(self) -> None:
        """Everything it has is a prompt now."""
        self.prompt_len = len(self.tokens)
        self.context_current_position = self.prepopulated = 0
        self.context_chunk_size = self.prompt_len
        self.estimated_reusable_tokens = 0
        self.state = State.CONTEXT_INIT

    def pause(self) -> None:
        """``LlmRequest::pause``."""
        self.max_new_tokens -= self.generated
        self.begin()

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def state_value(self) -> int:
        return self.state.value

    @property
    def is_context_init_state(self) -> bool:
        return self.state is State.CONTEXT_INIT

    @property
    def is_generation_in_progress_state(self) -> bool:
        return self.state in (State.GENERATION_IN_PROGRESS, State.GENERATION_TO_COMPLETE)

    @property
    def is_first_context_chunk(self) -> bool:
        return self.context_current_position == self.prepopulated

    @property
    def context_remaining_length(self) -> int:
        return self.prompt_len - self.context_current_position

    @property
    def is_last_context_chunk(self) -> bool:
        return self.context_current_position + self.context_chunk_size == self.prompt_len

    def has_draft_tokens(self) -> bool:
        return False

    def get_num_tokens(self, _beam: int) -> int:
        return len(self.tokens)

    def get_unique_tokens(self, _beam: int) -> list[int]:
        return self.tokens

    def get_beam_width_by_iter(self, *, for_next_iteration: bool) -> int:
        return 1

    def will_complete_next_iteration(self) -> bool:
        return self.generated + 1 >= self.max_new_tokens

    def set_prepopulated(self, matched: int, size: int) -> None:
        """``setPrepopulatedPromptLen``."""
        self.prepopulated = matched
        if matched:
            chunk = self.context_chunk_size
            if matched + chunk < self.prompt_len:
                chunk = (matched + chunk) // size * size - matched
            self.context_current_position = matched
            self.context_chunk_size = min(chunk, self.prompt_len - matched)
        self.estimated_reusable_tokens = 0


class Block:
    """``KVCacheBlock``."""

    def __init__(self) -> None:
        self.refs = 0
        self.key: Tokens = ()
        self.parent: Block | None = None
        self.children: dict[Tokens, Block] = {}

    def detach(self) -> None:
        """``freeBlockAndAllDescendants``."""
        for child in list(self.children.values()):
            child.detach()
        if self.parent is not None:
            del self.parent.children[self.key]
            self.parent = None


class Blocks:
    """``KVCacheManager`` of one window, with real tokens."""

    is_variable_window = False
    max_attention_window_vec = (WINDOW,)

    def __init__(self, config: dict[str, Any]) -> None:
        self.size = config["tokens_per_block"]
        self.enable_block_reuse = config["enable_block_reuse"]
        self.credits = config["credits_reuse"]
        self.root = Block()
        self.free = [Block() for _ in range(config["num_blocks"])]
        self.held: dict[int, list[Block]] = {}
        self.counted: dict[int, int] = {}

    # What the policies ask.

    def get_kv_cache_stats(self) -> Any:
        return SimpleNamespace(num_free_blocks_per_window_size={WINDOW: len(self.free)})

    def analyze_prefix_reuse(self, tokens: list[int], _request: Request) -> Summary:
        node, everything, held = self.root, 0, 0
        for index in range(len(tokens) // self.size):
            end = (index + 1) * self.size
            child = node.children.get(tuple(tokens[end - self.size : end]))
            if child is None:
                return Summary(everything, held, tuple(tokens[:end]))
            everything += 1
            # A block that it needs but for its last token is copied, so that it takes one.
            held += child.refs > 0 and end < len(tokens)
            node = child
        return Summary(everything, held, None)

    def _reusable(self, request: Request, summary: Summary | None) -> tuple[int, int]:
        request.estimated_reusable_tokens = 0
        first = request.is_context_init_state and request.py_request_id not in self.held
        if not (self.enable_block_reuse and first and self.credits):
            return 0, 0
        if summary is None:
            summary = self.analyze_prefix_reuse(request.tokens, request)
        whole = request.prompt_len // self.size
        request.estimated_reusable_tokens = min(summary.reusable_blocks_all, whole) * self.size
        return summary.reusable_blocks_all, summary.reusable_blocks_allocated

    def get_remaining_blocks_to_completion(
        self, request: Request, _window: int, cached_summary: Summary | None = None
    ) -> int:
        whole = -(-(request.prompt_len + request.max_new_tokens) // self.size)
        held = self._reusable(request, cached_summary)[1]
        return whole - len(self.held.get(request.py_request_id, ())) - held

    def get_needed_blocks_one_step(
        self, request: Request, _two: bool, _window: int, cached_summary: Summary | None = None
    ) -> int:
        _, held = self._reusable(request, cached_summary)
        if request.is_context_init_state and request.py_request_id not in self.held:
            return -(-request.prompt_len // self.size) - held
        if request.is_generation_in_progress_state:
            now = self.counted[request.py_request_id]
            more = min(1, request.max_new_tokens - (now - request.prompt_len))
            return -(-(now + more) // self.size) - -(-now // self.size)
        return 0

    def start_scheduling(self) -> None:
        self.scheduling_free = len(self.free)
        self.scheduling_refs = {
            block: block.refs for blocks in self.held.values() for block in blocks
        }

    def scheduling_remove_sequence(self, number: int) -> None:
        for block in self.held[number]:
            self.scheduling_refs[block] -= 1
            self.scheduling_free += not self.scheduling_refs[block]

    def scheduling_has_free_blocks(self, count: int, _window: int) -> bool:
        return self.scheduling_free >= count

    # What the executor does.

    def _take(self) -> Block:
        if not self.free:
            raise OutOfBlocksError
        block = self.free.pop(0)
        block.detach()
        block.refs = 1
        return block

    def _claim(self, block: Block) -> None:
        if not block.refs:
            self.free.remove(block)
        block.refs += 1

    def add_sequences(self, requests: list[Request]) -> None:
        """``addSequence``: all find what there is before any takes a free block."""
        for request in requests:
            found: list[Block] = []
            node, matched, tokens = self.root, 0, request.tokens
            while self.enable_block_reuse:
                key = tuple(tokens[matched : min(matched + self.size, len(tokens) - 1)])
                child = node.children.get(key) if len(key) == self.size else None
                if child is not None:
                    self._claim(child)
                    found.append(child)
                    node, matched = child, matched + self.size
                    continue
                partial = next(
                    (one for at, one in node.children.items() if key and at[: len(key)] == key),
                    None,
                )
                if partial is not None:
                    matched += len(key)
                    if not partial.refs and not partial.children:
                        partial.detach()
                        self._claim(partial)
                        found.append(partial)
                break
            self.held[request.py_request_id] = found
            self.counted[request.py_request_id] = request.prompt_len
            if self.enable_block_reuse:
                request.set_prepopulated(matched, self.size)
        for request in requests:
            blocks = self.held[request.py_request_id]
            while len(blocks) < -(-request.prompt_len // self.size):
                blocks.append(self._take())

    def add_token(self, request: Request) -> None:
        """``addToken``."""
        number = request.py_request_id
        self.counted[number] += 1
        if (self.counted[number] - 1) % self.size == 0:
            self.held[number].append(self._take())

    def store(self, request: Request, usable: int) -> None:
        """``storeBlocks`` of whole blocks."""
        if not self.enable_block_reuse:
            return
        node, searching = self.root, True
        for index, block in enumerate(self.held[request.py_request_id][: usable // self.size]):
            key = tuple(request.tokens[index * self.size : (index + 1) * self.size])
            child = node.children.get(key) if searching else None
            if child is None:
                searching = False
                if block.parent is not None:
                    del block.parent.children[block.key]
                block.key, block.parent = key, node
                node.children[key] = child = block
            node = child

    def remove_sequence(self, request: Request) -> None:
        """``removeSequence``: blocks are stored, then freed from the last to the first."""
        usable = min(len(request.tokens) - 1, request.context_current_position + request.generated)
        self.store(request, max(0, usable))
        for block in reversed(self.held.pop(request.py_request_id)):
            block.refs -= 1
            if not block.refs:
                self.free.append(block)


def text(scenario: Scenario, index: int) -> list[int]:
    """The prompt of a request: tokens that its shared blocks name, then its own."""
    _, prompt, _, names = scenario["requests"][index]
    size = scenario["config"]["tokens_per_block"]
    shared = [1 + name * size + place for name in names for place in range(size)]
    return shared + [own_token(index, place) for place in range(len(shared), prompt)]


def own_token(index: int, place: int) -> int:
    """A token that no other request has there."""
    return -1 - (index * 10_000 + place)


def played(module: ModuleType, scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario by TensorRT-LLM's policies.

    Raises:
        OutOfBlocksError: The engine would fail.
    """
    config = scenario["config"]
    overlaps = config["overlaps"]
    blocks = Blocks(config)
    capacity = module.PyCapacityScheduler(
        config["max_batch_size"],
        blocks,
        scheduler_policy=Policy(config["capacity_scheduler_policy"]),
        enable_prefix_aware_scheduling=config["enable_prefix_aware_scheduling"],
    )
    chunks = None
    if config["enable_chunked_prefill"]:
        policy = module.ChunkingPolicy[config["context_chunking_policy"]]
        chunks = module.ContextChunkingConfig(policy, config["tokens_per_block"])
    micro = module.PyMicroBatchScheduler(config["max_batch_size"], config["max_num_tokens"], chunks)
    waiting: list[Request] = []
    active: list[Request] = []
    rows: list[dict[str, Any]] = []
    behind: tuple[list[Request], list[Request], list[Request]] | None = None
    last = max(row[0] for row in scenario["requests"])
    while len(rows) < MOST_STEPS:
        step = len(rows) + 1
        for index, (arrival, _, output, _) in enumerate(scenario["requests"]):
            if arrival == step:
                waiting.append(Request(index, text(scenario, index), output))
        if not waiting and not active and step > last and behind is None:
            break
        while waiting and len(active) < config["max_batch_size"]:
            active.append(waiting.pop(0))
        fitting, _, paused = capacity.schedule_request(active)
        _, prompts, decoding = micro.schedule(fitting, set())
        for request in paused:
            blocks.remove_sequence(request)
        new = [request for request in prompts if request.py_request_id not in blocks.held]
        blocks.add_sequences(new)
        scheduled = [
            [one.request_id, one.context_chunk_size, one.context_current_position]
            for one in prompts
        ]
        for request in decoding:
            scheduled.append([request.request_id, 1, blocks.counted[request.py_request_id]])
            blocks.add_token(request)
        free = len(blocks.free)
        due = behind if overlaps else (prompts, [], decoding)
        if overlaps and due is not None:
            sample(due)
        for request in paused:
            if request.state is not State.GENERATION_COMPLETE:
                request.pause()
        ends = []
        for request in prompts:
            request.context_current_position += request.context_chunk_size
            if not request.context_remaining_length:
                ends.append(request)
                request.state = State.GENERATION_IN_PROGRESS
        if overlaps:
            for request in (*ends, *decoding):
                if request.will_complete_next_iteration():
                    request.state = State.GENERATION_TO_COMPLETE
        else:
            sample((prompts, ends, decoding))
        if due is not None:
            for request in due[0]:
                if request.py_request_id in blocks.held:
                    done = min(request.context_current_position, len(request.tokens) - 1)
                    blocks.store(request, done)
        finished = [one for one in active if one.state is State.GENERATION_COMPLETE]
        for request in finished:
            if request.py_request_id in blocks.held:
                blocks.remove_sequence(request)
        active = [one for one in active if one.state is not State.GENERATION_COMPLETE]
        behind = (prompts, ends, decoding) if scheduled and overlaps else None
        rows.append(
            {
                "scheduled": scheduled,
                "paused": [one.request_id for one in paused],
                "finished": sorted(one.request_id for one in finished),
                "free": free,
            }
        )
    return rows


def sample(batch: tuple[list[Request], list[Request], list[Request]]) -> None:
    """A token for each request whose prompt ended, and for those that decode."""
    _, ends, decoding = batch
    for request in (*ends, *decoding):
        request.tokens.append(own_token(request.request_id, 5_000 + len(request.tokens)))
        if request.generated >= request.max_new_tokens:
            request.state = State.GENERATION_COMPLETE


def main(words: list[str]) -> None:
    """Record drawn workloads, or compare them with ours."""
    module = load(words[0])
    if words[1] == "record":
        kept = []
        seed = 0
        while len(kept) < int(words[2]):
            scenario = drawn(seed)
            seed += 1
            try:
                scenario["steps"] = played(module, scenario)
            except OutOfBlocksError:
                continue
            kept.append(scenario)
        write(Path(words[3]), kept)
        return
    failed = parted = 0
    for seed in range(int(words[2]), int(words[2]) + int(words[3])):
        scenario = drawn(seed)
        try:
            theirs = played(module, scenario)
        except OutOfBlocksError:
            failed += 1
            continue
        ours = replay(scenario)
        if ours != theirs:
            parted += 1
            step = next(
                (
                    at
                    for at, pair in enumerate(zip(ours, theirs, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(ours), len(theirs)),
            )
            print(f"{scenario['name']} parts at step {step + 1}: {scenario['config']}")
            print(f"  theirs {theirs[step : step + 1]}\n  ours   {ours[step : step + 1]}")
    print(f"{parted} part; in {failed} the engine would have run out of blocks")


if __name__ == "__main__":
    main(sys.argv[1:])
