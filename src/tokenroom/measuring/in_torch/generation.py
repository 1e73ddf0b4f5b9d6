"""One ``generate`` of a given shape, measured."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

import torch

from tokenroom.errors import MeasurementError
from tokenroom.measuring.in_torch.measurement import KvExceedsWeightsWarning, measure
from tokenroom.measuring.record import Measured, Meter

CACHES: Final[Mapping[str, Mapping[str, Any]]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static"},
    "offloaded": {"cache_implementation": "offloaded"},
    "fp8": {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}},
}
"""What ``generate`` is given for each kind of cache."""


def measure_generation(
    model: Any,
    *,
    batch: int,
    prompt_tokens: int,
    new_tokens: int,
    cache: str = "dynamic",
    seed: int = 0,
    meter: Meter | None = None,
) -> Measured:
    """Generate greedily from random prompts and measure it.

    Args:
        model: A model of transformers.
        batch: Sequences.
        prompt_tokens: Of each; of an encoder-decoder what the encoder reads.
        new_tokens: That each gets.
        cache: A name of :data:`CACHES`.
        seed: Of the prompts.
        meter: As :func:`~tokenroom.measuring.in_torch.measurement.measure` takes it.

    Raises:
        MeasurementError: The lengths are beyond the model's, or memory ran out.
    """
    text = model.config.get_text_config(decoder=True)
    longest = getattr(text, "max_position_embeddings", None)
    if isinstance(longest, int) and prompt_tokens + new_tokens > longest:
        raise MeasurementError(
            f"--prompt {prompt_tokens} and --new-tokens {new_tokens} are more than the "
            f"{longest} positions of the model; give less"
        )
    if cache == "offloaded" and model.device.type != "cuda":
        raise MeasurementError("--cache offloaded moves layers off a GPU, and there is none here")
    model.generation_config.eos_token_id = None  # so that all tokens are made
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(0, text.vocab_size, (batch, prompt_tokens), generator=generator)
    prompt = prompt.to(model.device)
    mask = torch.ones_like(prompt)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KvExceedsWeightsWarning)  # the report says it
            with torch.no_grad(), measure(model, meter=meter) as seen:
                model.generate(
                    prompt,
                    attention_mask=mask,
                    max_new_tokens=new_tokens,
                    do_sample=False,
                    pad_token_id=0,
                    **CACHES[cache],
                )
    except torch.OutOfMemoryError as problem:
        raise MeasurementError(
            f"memory ran out while {batch} sequences of {prompt_tokens} + {new_tokens} tokens were "
            f"generated; give a smaller --batch or --prompt"
        ) from problem
    except (ValueError, ImportError, RuntimeError) as problem:
        first = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]
        raise MeasurementError(f"the model does not generate so: {first}") from problem
    return seen.measured
