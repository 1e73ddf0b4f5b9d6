import io
import json
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from tokenroom.cli.main import main
from tokenroom.hardware.measured_memory import MeasuredMemory, MeasuredPass, MeasuredPasses
from tokenroom.reports.hardware_profile_text import hardware_json, print_hardware, schema_text
from tokenroom.reports.messages import Language
from tokenroom.units import MIB

MEMORY = MeasuredMemory(
    profile="box",
    created="2026-08-12T10:00:00+00:00",
    gpu="l4",
    told_by="device",
    context_bytes=430 * MIB,
    kernels_bytes=90 * MIB,
    workspace_bytes=8 * MIB,
    communicators={2: 300 * MIB},
    passes=(
        MeasuredPasses(
            model="m",
            shape="s",
            dtype="bfloat16",
            attention="sdpa",
            passes=(MeasuredPass(512, 100 * MIB, 104 * MIB, 2 * MIB),),
        ),
    ),
    versions={"torch": "2.13.0"},
)


@pytest.mark.parametrize("language", list(Language))
def test_every_term_is_shown(language: Language) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100)
    print_hardware(console, MEMORY, (8192,), Path("box.json"), language)
    text = out.getvalue()
    for figure in ("430.00 MiB", "90.00 MiB", "8.00 MiB", "300.00 MiB", "1.060", "8,192", "box"):
        assert figure in text
    assert "{" not in text


def test_json_has_the_files_form() -> None:
    found = hardware_json(MEMORY, (8192,), Path("box.json"))
    assert found["memory"]["communicators"] == [{"ranks": 2, "num_bytes": 300 * MIB}]
    assert found["memory"]["passes"][0]["passes"][0]["gap_bytes"] == 2 * MIB
    assert found["tokens_left_out"] == [8192]
    jsonschema.validate(found, json.loads(schema_text()))


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--hardware", "--json-schema"]) == 0
    assert capsys.readouterr().out == schema_text()
