"""Requests that are longer than a deployment's ``max_model_len``, and what engines do with them."""

from __future__ import annotations

from enum import StrEnum

from tokenroom.serving.request import Request


class TooLong(StrEnum):
    """Which part of a request exceeds ``max_model_len``."""

    PROMPT = "prompt"
    """The prompt leaves no room for one token of an answer: every engine refuses the request. vLLM
    0.33 ``vllm/v1/engine/input_processor.py`` (``_validate_prompt_len``); SGLang 0.5.23
    ``sglang/srt/managers/tokenizer_manager.py`` (``input_token_num >= context_len``)."""

    ANSWER = "answer"
    """Prompt and answer together exceed it. vLLM ends the answer there (``get_max_tokens`` of
    ``vllm/entrypoints/serve/utils/api_utils.py``); SGLang refuses the request when its
    ``max_new_tokens`` asks for so many (``tokenizer_manager.py``, "Requested token count")."""


def too_long(request: Request, max_model_len: int) -> TooLong | None:
    """Which part of a request exceeds ``max_model_len``; None when it fits.

    Args:
        request: The request.
        max_model_len: Most tokens of a prompt and its answer together.
    """
    if request.prompt_tokens >= max_model_len:
        return TooLong.PROMPT
    if request.prompt_tokens + request.output_tokens > max_model_len:
        return TooLong.ANSWER
    return None
