"""Which batch sizes SGLang captures CUDA graphs for.

Sources: ``cuda_graph_runner.py`` ``get_batch_sizes_to_capture`` (to 0.5.2), ``server_args.py``
``_generate_cuda_graph_batch_sizes`` and ``_generate_piecewise_cuda_graph_tokens`` (to 0.5.18),
``arg_groups/cuda_graph_hook.py`` (from 0.5.19).
"""

from __future__ import annotations

from tokenroom.engines.sglang.rules import VersionRules


def decode_sizes(
    rules: VersionRules,
    *,
    max_bs: int | None,
    memory_mib: float,
    speculative: bool,
    padding: bool,
    data_parallel: bool = False,
) -> tuple[int, ...]:
    """Batch sizes of decode graphs, before the pool of requests limits them.

    Args:
        rules: The version.
        max_bs: ``cuda_graph_max_bs``; None for the whole list of versions before 0.5.3.
        memory_mib: The card as the driver reports it.
        speculative: Tokens are drafted.
        padding: Batches may be padded to the next size.
        data_parallel: ``dp_size`` is above one (0.4.6 and before then capture less).
    """
    if rules.since(0, 5, 3):
        assert max_bs is not None
        return _sizes(rules, max_bs, speculative=speculative, padding=padding)
    found = _older_sizes(rules, memory_mib, speculative, padding, data_parallel)
    if max_bs is not None:
        found = [size for size in found if size <= max_bs]
        if rules.since(0, 4, 7) and found and found[-1] < max_bs:
            found += range(found[-1], max_bs + 1, 16)
    return tuple(sorted(set(found)))


def _sizes(
    rules: VersionRules, max_bs: int, *, speculative: bool, padding: bool
) -> tuple[int, ...]:
    if not padding:
        found = list(range(1, max_bs + 1))
    elif not speculative:
        found = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16)]
        found += range(512, max_bs + 1, 32)
    else:
        last = 65 if rules.since(0, 5, 5) else 64
        found = [*range(1, 9), *range(10, 33, 2), *range(40, last, 4), *range(72, 257, 8)]
        found += range(272, max_bs + 1, 16)
    found = [size for size in found if size <= max_bs]
    if rules.since(0, 5, 10) and max_bs not in found:
        found.append(max_bs)
    return tuple(found)


def _older_sizes(
    rules: VersionRules,
    memory_mib: float,
    speculative: bool,
    padding: bool,
    data_parallel: bool,
) -> list[int]:
    if not rules.since(0, 4, 6):
        return [1, 2, 4, *range(8, 161, 8)] if padding else [*range(1, 33), 64, 128]
    if not rules.since(0, 4, 7):
        if speculative:
            found = [*range(1, 9), *range(10, 33, 2), *range(40, 161, 16)]
        elif padding:
            found = [1, 2, 4, 8, *range(16, 161, 8)]
        else:
            found = [*range(1, 33), *range(40, 161, 16)]
        if memory_mib > 81920 and not data_parallel:
            found += range(160, 257, 8)
        return found
    if speculative:
        found = [*range(1, 9), *range(10, 33, 2), *range(40, 64, 8), *range(80, 161, 16)]
    elif padding:
        found = [1, 2, 4, 8, *range(16, 161, 8)]
    else:
        found = [*range(1, 33), *range(48, 161, 16)]
    if memory_mib > 90 * 1024:
        found += range(160, 257, 8)
    if memory_mib > 160 * 1000:
        found += range(256, 513, 16)
    return found


def prefill_sizes(rules: VersionRules, max_tokens: int) -> tuple[int, ...]:
    """Token counts of prefill graphs up to ``max_tokens``."""
    found = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32)]
    if not rules.since(0, 5, 8):
        found += [*range(640, 4097, 128), *range(4352, max_tokens + 1, 256)]
    else:
        found += range(576 if rules.since(0, 5, 9) else 640, 1025, 64)
        found += [*range(1280, 4097, 256), *range(4608, max_tokens + 1, 512)]
    return tuple(size for size in found if size <= max_tokens)
