"""Keys of JSON options that vLLM refuses."""

from __future__ import annotations

import pytest

from tokenroom.engines.vllm.arguments import parse_command
from tokenroom.engines.vllm.config_keys import known_keys
from tokenroom.errors import CommandLineError


@pytest.mark.parametrize(
    ("option", "version", "sentence"),
    [
        (
            '--speculative-config \'{"method": "ngram", "num_spec_tokens": 3}\'',
            "0.33.0",
            r"no key 'num_spec_tokens'; did you mean num_speculative_tokens\?",
        ),
        (
            '--speculative-config \'{"method": "mtp", "tensor_parallel_size": 2}\'',
            "0.19.0",
            "give draft_tensor_parallel_size",
        ),
        (
            '--speculative-config \'{"method": "ngram", "kv_cache_dtype": "fp8"}\'',
            "0.25.0",
            "vLLM 0.25.0 has no key 'kv_cache_dtype'",
        ),
        (
            '--compilation-config \'{"cudagraph_modes": "NONE"}\'',
            "0.33.0",
            r"no key 'cudagraph_modes'; did you mean cudagraph_mode\?",
        ),
        ("--compilation-config.level 3", "0.18.0", "no key 'level'"),
    ],
)
def test_unknown_keys_are_named(option: str, version: str, sentence: str) -> None:
    with pytest.raises(CommandLineError, match=sentence):
        parse_command(f"vllm serve M {option}", version=version)


@pytest.mark.parametrize(
    ("option", "version"),
    [
        ('--speculative-config \'{"method": "ngram", "prompt_lookup_max": 4}\'', "0.33.0"),
        ("--compilation-config.level 3", "0.17.0"),
        # Unknown keys were dropped before 0.13.
        ('--compilation-config \'{"cudagraph_modes": "NONE"}\'', "0.12.0"),
    ],
)
def test_known_keys_pass(option: str, version: str) -> None:
    parse_command(f"vllm serve M {option}", version=version)


def test_keys_live_in_versions() -> None:
    assert "speculative_token_tree" in known_keys("SpeculativeConfig", (0, 20, 0))
    assert "speculative_token_tree" not in known_keys("SpeculativeConfig", (0, 21, 0))
