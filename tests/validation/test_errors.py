"""Errors in logs as sentences: which counts, what is cut and what is hidden."""

import pytest

from tokenroom.validation.logs.facts import error_sentence


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ERROR 04-22 [x.py:8] AssertionError: 7 is odd", "AssertionError: 7 is odd"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "OutOfMemoryError: CUDA out of memory."),
        ("  Value error, too long [type=value_error, x=1]", "ValueError: too long"),
        ("llama_load: error loading model: no such file", "no such file"),
        ("RuntimeError: Engine core failed. See root cause above.", None),
        ("BrokenPipeError: [Errno 32] Broken pipe", None),
        ("raise ValueError(", None),
        ("OSError: hf_abcdefgh denied", "OSError: HIDDEN denied"),
        ("OSError: password='geheim' is wrong", "OSError: password='HIDDEN' is wrong"),
        ("OSError: api_key=['sk1'] is wrong", "OSError: api_key=['HIDDEN'] is wrong"),
        ("OSError: Authorization: Bearer abc.def", "OSError: Authorization: Bearer HIDDEN"),
        ("OSError: https://me:pw@host/a?sig=1 is gone", "OSError: https://host/a is gone"),
        ("ValueError: " + "Word. " * 80, "ValueError: " + ("Word. " * 50).strip()),
    ],
)
def test_an_error_is_a_sentence_without_secrets(line: str, said: str | None) -> None:
    assert error_sentence(line) == said
