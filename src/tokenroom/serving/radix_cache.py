"""SGLang's pool of tokens with the tree of prefixes in it, and what requests hold of both.

Follows ``UnifiedRadixCache`` (``mem_cache/unified_radix_cache.py``), ``release_kv_cache`` and
``evict_from_tree_cache`` (``mem_cache/common.py``) and the token and page allocators
(``mem_cache/allocator``) of SGLang 0.5.23. A token of the pool is free, belongs to a request, or
to the tree.
"""

from __future__ import annotations

from tokenroom.errors import WorkloadError
from tokenroom.serving.radix_tree import Node, RadixTree
from tokenroom.serving.request import Request
from tokenroom.serving.sequence import Sequence


class RadixSequence(Sequence):
    """A request as SGLang's scheduler holds it; only the scheduler changes it.

    Attributes:
        names: Names of its blocks (``Request.block_hashes``).
        max_new_tokens: The longest answer it asked for, as far as context and pool allow.
        most_tokens: Prompt and such an answer.
        ignore_eos: It goes on to that length whatever comes out.
        prefix: Tokens that need not be computed in its next step of prompts (``prefix_len``).
        extend_end: Up to where that step computes (``extend_end``).
        protected: Tokens of its that belong to the tree (``cache_protected_len``).
        allocated: Tokens that have a place in the pool (``kv_committed_len``).
        last_node: The last run of its prefix when it was last looked up.
        locked: The run up to which it holds the tree; None while it holds nothing.
        middle_chunks: Chunks in flight after which its prompt goes on (``inflight_middle_chunks``).
        aborted: It ends with the next result.
    """

    __slots__ = (
        "aborted",
        "allocated",
        "extend_end",
        "ignore_eos",
        "last_node",
        "locked",
        "max_new_tokens",
        "middle_chunks",
        "most_tokens",
        "names",
        "prefix",
        "protected",
    )

    def __init__(
        self, request: Request, order: int, *, max_new_tokens: int, ignore_eos: bool
    ) -> None:
        answer = max_new_tokens if ignore_eos else min(request.output_tokens, max_new_tokens)
        last = request.prompt_tokens + max(1, answer)
        super().__init__(request, last, groups=0, order=order, own_name=-1 - order)
        self.last_tokens = last
        self.names = request.block_hashes
        self.max_new_tokens = max_new_tokens
        self.most_tokens = request.prompt_tokens + max_new_tokens
        self.ignore_eos = ignore_eos
        self.prefix = 0
        self.extend_end = 0
        self.protected = 0
        self.allocated = 0
        self.last_node: Node | None = None
        self.locked: Node | None = None
        self.middle_chunks = 0
        self.aborted = False

    @property
    def answered(self) -> int:
        """Tokens that came out."""
        return self.tokens - self.prompt_tokens


class RadixCache:
    """The pool, in tokens.

    Attributes:
        tree: What is cached.
        free_tokens: Tokens that nobody has.
        page_tokens: Tokens of a page.
        enabled: Prefixes are cached.

    Args:
        pool_tokens: Tokens of the pool (``max_total_num_tokens``).
        page_tokens: Tokens of a page; a request has whole pages.
        name_tokens: Tokens that one name of ``Request.block_hashes`` stands for.
        enabled: Prefixes are cached.
    """

    __slots__ = ("enabled", "free_tokens", "page_tokens", "tree")

    def __init__(
        self, *, pool_tokens: int, page_tokens: int, name_tokens: int, enabled: bool
    ) -> None:
        self.tree = RadixTree(page_tokens, name_tokens)
        self.free_tokens = pool_tokens // page_tokens * page_tokens
        self.page_tokens = page_tokens
        self.enabled = enabled

    @property
    def obtainable_tokens(self) -> int:
        """Tokens that are free or can be made so."""
        return self.free_tokens + self.tree.evictable_tokens

    def pages(self, tokens: int) -> int:
        """Tokens of the whole pages that hold so many."""
        return -(-tokens // self.page_tokens) * self.page_tokens

    def look_up(self, sequence: RadixSequence, length: int) -> None:
        """Find how much of a request's first tokens is cached."""
        if self.enabled:
            node = self.tree.match(sequence, length)
            sequence.last_node = node
            sequence.prefix = node.end

    def lock_prefix(self, sequence: RadixSequence) -> None:
        """Hold what :meth:`look_up` found."""
        sequence.protected = sequence.prefix
        if sequence.last_node is not None:
            self.tree.lock(sequence.last_node)
            sequence.locked = sequence.last_node

    def checkpoint(self, sequence: RadixSequence, length: int) -> None:
        """Give a request's first tokens to the tree, which it then holds up to there.

        An answer is kept as a run of its own, so that it can be dropped without its prompt.
        """
        if not self.enabled:
            return
        tree, page = self.tree, self.page_tokens
        length -= length % page
        node, duplicates = tree.insert(sequence, length, sequence.protected)
        self.free_tokens += duplicates
        prompt = sequence.prompt_tokens - sequence.prompt_tokens % page
        if 0 < prompt < length:
            tree.insert(sequence, prompt, prompt)
        if sequence.locked is not None:
            tree.unlock(sequence.locked)
        tree.lock(node)
        sequence.locked = sequence.last_node = node
        sequence.protected = length

    def release(self, sequence: RadixSequence) -> None:
        """Take back what a request has in the pool, and its hold on the tree."""
        self.free_tokens += self.pages(sequence.allocated) - sequence.protected
        if sequence.locked is not None:
            self.tree.unlock(sequence.locked)
            sequence.locked = None
        sequence.allocated = sequence.protected = 0

    def make_free(self, tokens: int) -> bool:
        """Drop cached runs until so many tokens are free, if need be; whether they are."""
        while self.free_tokens < tokens:
            dropped = self.tree.evict()
            if not dropped:
                return False
            self.free_tokens += dropped
        return True

    def take(self, tokens: int) -> None:
        """Let requests have free tokens.

        Raises:
            WorkloadError: There are not so many, which ends SGLang itself.
        """
        if tokens > self.free_tokens:
            raise WorkloadError(
                f"a step needs {tokens} tokens of the pool and {self.free_tokens} are left; SGLang "
                "ends here with 'Prefill out of memory': lower chunked_prefill_size or "
                "max_running_requests"
            )
        self.free_tokens -= tokens
