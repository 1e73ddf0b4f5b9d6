"""Ollama's Modelfile: every line is understood, named in a note, or refused with its number."""

import pytest

from tokenroom.engines.llama_cpp.arguments import parse_command
from tokenroom.engines.registry import chosen_start, command_parser, engine_started_by
from tokenroom.errors import CommandLineError

WHOLE = '''# a comment
FROM "qwen3:14b"
REQUIRES 0.14.0
TEMPLATE """{{ .System }}
FROM inside a text
"""
SYSTEM You're Mario.
SYSTEM "one
two"
MESSAGE user Hello
PARAMETER num_ctx 16384
PARAMETER temperature 0.7
PARAMETER stop "<|end|>"
parameter stop "<|im_end|>"
LICENSE MIT
'''


def test_a_whole_modelfile_is_understood() -> None:
    parsed = parse_command(WHOLE)
    assert (parsed.model, parsed.settings.n_ctx) == ("qwen3:14b", 16384)
    assert parsed.settings.ignored_flags == ("temperature", "stop")
    assert parsed.settings.unknown_flags == ()
    assert not any("Modelfile" in note for note in parsed.notes)


def test_an_unknown_parameter_is_named_with_its_line() -> None:
    parsed = parse_command("FROM qwen3:14b\nPARAMETER num_cxt 4\n")
    assert parsed.settings.unknown_flags == ("num_cxt",)
    assert parsed.notes[0] == (
        "Ollama has no parameter num_cxt (line 2 of the Modelfile), which was left out"
    )


def test_what_is_loaded_beside_the_model_is_named() -> None:
    parsed = parse_command("FROM qwen3:14b\nADAPTER ./lora.gguf\n")
    assert parsed.notes[0] == "ADAPTER ./lora.gguf (line 2 of the Modelfile) is not counted"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("FROM m\n\nPARAMETR num_ctx 4", "line 3 of the Modelfile begins with '?PARAMETR"),
        ("FROM m\nPARAMETER num_ctx", "line 2 .* PARAMETER '?num_ctx'? without a value"),
        ("PARAMETR num_ctx 4\nFROM m", "line 1 of the Modelfile begins with '?PARAMETR"),
        ("from m\nPARAMETR num_ctx 4", "line 2 of the Modelfile begins with '?PARAMETR"),
        ("FROM m\nPARAMETER", "line 2 .* has PARAMETER without a value"),
        ("FROM m\nPARAMETER num_ctx many", "num_ctx is 'many'"),
        ("FROM m\n# again\nFROM n", "line 3 .* second FROM line, after line 1"),
        ('FROM m\nSYSTEM """never', 'line 2 .* opens """ and never closes it'),
        ("PARAMETER num_ctx 4", "the Modelfile has no FROM line"),
        ("FROM\nPARAMETER num_ctx 4", "line 1 .* has FROM without a value"),
    ],
)
def test_a_broken_line_is_refused(text: str, sentence: str) -> None:
    assert engine_started_by(text) == "llama.cpp"
    with pytest.raises(CommandLineError, match=sentence):
        parse_command(text)


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("from vllm import LLM\nllm = LLM('qwen3-8b', max_model_len=4096)", "vllm"),
        ("HF_HOME=/x vllm serve m", "vllm"),
        ("cat > x <<EOF\nFROM y\nEOF\nsglang serve m", "sglang"),
    ],
)
def test_other_texts_are_no_modelfile(text: str, engine: str) -> None:
    name, chosen = chosen_start(text, {})
    assert name == engine
    assert command_parser(name)(chosen, environment={}).model in ("m", "qwen3-8b")


def test_a_script_that_makes_a_model_and_runs_it_starts_one() -> None:
    made = "ollama create mine -f Modelfile\nollama run mine\n"
    name, chosen = chosen_start(f"cat > Modelfile <<'EOF'\n{WHOLE}EOF\n{made}", {})
    parsed = command_parser(name)(chosen, environment={})
    assert (parsed.model, parsed.settings.n_ctx) == ("qwen3:14b", 16384)
    name, chosen = chosen_start(made, {})
    assert (name, list(chosen)) == ("llama.cpp", ["ollama", "create", "mine", "-f", "Modelfile"])
    with pytest.raises(CommandLineError, match="2 engines are started"):
        chosen_start(made + "ollama run another\n", {})
