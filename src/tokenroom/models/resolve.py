"""From what a user calls a model (path, name, Hub id) to its description."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenroom.errors import HubError, ModelError, UnknownArchitectureError, shown
from tokenroom.models import catalogue
from tokenroom.models.hf_config import read_config_file
from tokenroom.models.spec import ModelSpec
from tokenroom.units import format_bytes

if TYPE_CHECKING:
    from tokenroom.models.hub import HubOptions

_FILE_ENDINGS: Final = (".json", ".safetensors", ".gguf")
_PART: Final = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")


def load_model(
    name_or_path: str | Path,
    *,
    assume_architecture: str | None = None,
    hub: HubOptions | None = None,
) -> ModelSpec:
    """The model that ``name_or_path`` stands for: a local file or folder, a name, a Hub id.

    Local paths come first, then the catalogue, then the Hub (only for an id with an organisation,
    when the extra ``hub`` is installed and offline is not set). ``"MODEL@awq"`` is MODEL stored in
    that layout, whatever its checkpoint is stored in.

    Args:
        name_or_path: A config.json, a folder with one, a ``.safetensors`` file or index with one
            beside it, a ``.gguf`` file, a name of the catalogue or an id of the Hub; a layout may
            follow after ``@``.
        assume_architecture: Model type to read an unknown one as.
        hub: How to reach the Hub; None for the defaults and the HF_* environment variables. With a
            revision other than ``main`` the catalogue is not asked.

    Raises:
        ModelError: There is no such file, name or layout, or it cannot be read as a model.
        HubError: The Hub is needed but cannot be reached or has no such model.
    """
    if assume_architecture is not None:
        _check_known(assume_architecture)
    name = str(name_or_path)
    if not name.strip() or "\0" in name:
        raise ModelError("the model is empty; give a name, a Hub id or a path")
    path = _expanded(name)
    if _exists(path):
        return load_local(path, assume_architecture=assume_architecture)
    if "@" in name:
        return _in_layout(name, assume_architecture, hub)
    if isinstance(name_or_path, Path) or _must_be_path(name):
        raise ModelError(f"there is no file or folder {name[:200]!r}; check the path")
    if hub is None or hub.revision == "main":
        found = catalogue.lookup(name)
        if found is not None:
            return found
    return _load_remote(name, assume_architecture, hub)


def _check_known(model_type: str) -> None:
    """Refuse to assume what is no known model type, be it needed or not."""
    from tokenroom.models.architectures import builder_for, supported_model_types

    try:
        builder_for(model_type)
    except UnknownArchitectureError:
        from difflib import get_close_matches

        near = get_close_matches(model_type, supported_model_types(), n=1) or ["llama"]
        raise ModelError(
            f"the assumed architecture is {shown(model_type)}, which is no known model type; give "
            f"one such as {near[0]}"
        ) from None


def in_layout(spec: ModelSpec, layout: str) -> ModelSpec:
    """A model stored in that layout, named ``MODEL@LAYOUT``.

    Raises:
        QuantizationError: The layout is unknown or the model cannot be stored so.
    """
    from tokenroom.models.quantization.hypothetical import what_if

    return replace(what_if(spec, layout), name=f"{spec.name}@{layout}")


def _in_layout(name: str, assume_architecture: str | None, hub: HubOptions | None) -> ModelSpec:
    """The model before the last ``@``, stored in the layout after it."""
    from tokenroom.models.quantization.hypothetical import known_layouts

    model, _, layout = name.rpartition("@")
    if layout.lower().replace("-", "_") not in known_layouts():
        raise ModelError(
            f"{name[:200]!r} is no file, and {layout[:50]!r} after its @ is no weight layout; it "
            f"may be one of {', '.join(known_layouts())}"
        )
    return in_layout(load_model(model, assume_architecture=assume_architecture, hub=hub), layout)


def load_local(path: Path, *, assume_architecture: str | None = None) -> ModelSpec:
    """The model in a local file or folder.

    Weight files beside a configuration give the exact stored bytes; a lone config.json gives
    computed ones.

    Raises:
        ModelError: The files cannot be read as a model.
    """
    if path.is_dir():
        return _load_folder(path, assume_architecture)
    if path.name.endswith(".gguf"):
        from tokenroom.models.gguf import read_gguf_file

        return replace(read_gguf_file(path), path=str(path))
    if path.name.endswith((".safetensors", ".safetensors.index.json")):
        return _with_stored_tensors(path, path.parent, assume_architecture)
    spec = read_config_file(path, assume_architecture=assume_architecture)
    return replace(spec, path=str(path.parent))


def _load_folder(folder: Path, assume_architecture: str | None) -> ModelSpec:
    if any(folder.glob("*.safetensors")) or (folder / "model.safetensors.index.json").exists():
        return _with_stored_tensors(folder, folder, assume_architecture)
    if (folder / "config.json").exists():
        spec = read_config_file(folder, assume_architecture=assume_architecture)
        return replace(spec, path=str(folder))
    models = [
        file
        for file in sorted(folder.glob("*.gguf"))
        if not file.name.startswith("mmproj") and _is_first_part(file.name)
    ]
    if len(models) == 1:
        return load_local(models[0])
    if models:
        listed = ", ".join(file.name for file in models[:4])
        raise ModelError(f"{folder} holds {len(models)} GGUF models ({listed}, ...); name one")
    raise ModelError(f"{folder} holds no config.json, .safetensors or .gguf file")


def _is_first_part(name: str) -> bool:
    match = _PART.search(name)
    return match is None or int(match[1]) == 1


def _with_stored_tensors(weights: Path, folder: Path, assume_architecture: str | None) -> ModelSpec:
    from tokenroom.models.headers import attach_stored_tensors
    from tokenroom.models.safetensors import read_safetensors

    tensors = read_safetensors(weights)
    if not (folder / "config.json").exists():
        total = sum(tensor.num_bytes for tensor in tensors)
        raise ModelError(
            f"{weights} stores {format_bytes(total)} of weights ({total:,} bytes), but its"
            " config.json is needed beside it for layers and KV cache"
        )
    spec = read_config_file(folder, assume_architecture=assume_architecture)
    spec = attach_stored_tensors(spec, tensors, mostly_there=True)
    source = f"{spec.source} and headers of {weights.name}"
    return replace(spec, source=source, path=str(folder))


def _load_remote(name: str, assume_architecture: str | None, hub: HubOptions | None) -> ModelSpec:
    from tokenroom.models.hub import HubOptions, is_installed, is_repository_id, load_from_hub

    options = hub or HubOptions()
    is_file = name.endswith(".gguf") and is_repository_id("/".join(name.split("/")[:2]))
    if not is_repository_id(name) and not is_file:
        known = catalogue.entry(name)  # raises, naming what is near or ambiguous
        raise ModelError(
            f"{name} is bundled and has no revision {shown(options.revision)}; give the Hub "
            f"id with "
            f"the revision, such as {known.name}"
        )
    if not is_installed():
        raise HubError(
            f"{name} is not in the catalogue{_near(name)}; pip install 'tokenroom[hub]' to read it"
            f" from the Hub, or give the path of its config.json{_in_layout_hint(name)}"
        )
    if options.is_offline and options.revision == "main":
        try:
            return load_from_hub(name, options, assume_architecture=assume_architecture)
        except HubError as error:
            raise HubError(
                f"{name} is neither in the catalogue{_near(name)} nor in the Hub's cache; go"
                f" online, or give the path of its config.json{_in_layout_hint(name)}"
            ) from error
    try:
        return load_from_hub(name, options, assume_architecture=assume_architecture)
    except HubError as error:
        if hint := _in_layout_hint(name):
            raise HubError(f"{error}{hint}") from error
        raise


_LAYOUT_NAMED: Final = re.compile(
    r"(.+)[-_.](awq|gptq|fp8|int8|int4|w4a16|w8a8|nvfp4|mxfp4)\b.*", re.I
)
"""Name of a quantised checkpoint: the model it was made from, and the layout."""


def _in_layout_hint(name: str) -> str:
    """That a model of the catalogue stored in the layout which a name ends with needs no Hub."""
    match = re.fullmatch(
        r"(.+)[-_.](awq|gptq|fp8|int8|int4|w4a16|w8a8|nvfp4|mxfp4)\b.*", name, re.I
    )
    if match is None:
        return ""
    found = catalogue.candidates(match[1]) or catalogue.candidates(match[1].rsplit("/", 1)[-1])
    return f"; {found[0]}@{match[2].lower()} works offline" if len(found) == 1 else ""


def _near(name: str) -> str:
    near = catalogue.nearest(name)
    return f" (near it: {', '.join(near)})" if near else ""


def _expanded(name: str) -> Path:
    """The path with ``~`` replaced by the home folder, where there is such a user."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for a path
        return False


def _must_be_path(name: str) -> bool:
    """Whether a name can only mean a local path."""
    if name.startswith(("/", "./", "../", "~", ".\\")) or "\\" in name:
        return True
    # organisation/name/file.gguf lies on the Hub
    return name.endswith(_FILE_ENDINGS) and not (name.endswith(".gguf") and name.count("/") >= 2)
