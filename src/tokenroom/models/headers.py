"""Joining what a checkpoint's headers store with what its configuration describes.

The configuration says what every parameter is for and how engines divide it; the headers say how
many bytes it really has. Names are compared by module path, since quantisers store several tensors
for one matrix (``qweight``, ``scales``, ``weight_scale_inv``, ...) and checkpoints fuse or split
projections differently from engines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final, TypeAlias

from tokenroom.errors import ModelError
from tokenroom.models.ranges import StoredTensor
from tokenroom.models.spec import DTYPE_BITS, Layer, ModelSpec, Role, Tower, Weight
from tokenroom.units import format_bytes

UNMATCHED: Final = "unmatched"
"""Name of the weight that holds the bytes of tensors no parameter was found for."""

Path: TypeAlias = tuple[str, ...]

#: Wrappers around the language model; dropped from the front of a path.
_WRAPPERS: Final = frozenset(
    {
        "backbone",
        "base_model",
        "gpt_neox",
        "language_model",
        "llm",
        "model",
        "text_model",
        "thinker",
        "transformer",
    }
)
_VISION: Final = frozenset(
    {
        "embed_vision",
        "mm_projector",
        "model_vision",
        "multi_modal_projector",
        "patch_merger",
        "vision_adapter",
        "vision_embed_tokens",
        "vision_encoder",
        "vision_language_adapter",
        "vision_model",
        "vision_tower",
        "visual",
    }
)
_AUDIO: Final = frozenset({"audio_model", "audio_projector", "audio_tower", "embed_audio"})
_MTP: Final = frozenset({"mtp", "mtp_layers", "nextn", "model_mtp"})

#: Other spellings of one module; both sides are brought to the right-hand one.
_SPELLINGS: Final[Mapping[str, str]] = {
    "attention": "self_attn",
    "block_sparse_moe": "mlp",
    "feed_forward": "mlp",
    "self_attention": "self_attn",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
}
#: Fused modules and their parts, whichever side has which.
_FUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "W_pack": ("q_proj", "k_proj", "v_proj"),
    "Wqkv": ("q_proj", "k_proj", "v_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
    "w13": ("gate_proj", "up_proj"),
}
_PART_OF: Final[Mapping[str, tuple[str, ...]]] = {
    part: tuple(fused for fused, parts in _FUSED.items() if part in parts)
    for parts in _FUSED.values()
    for part in parts
}
_LEAF_SUFFIX: Final = re.compile(r"_(blocks|scales|scale|bias|packed|weight|qweight|qzeros)$")
_NEVER_LOADED: Final = ("rotary_emb.inv_freq", "attn.masked_bias", "attn.rotary_emb.cos_cached")


@dataclass(slots=True)
class _Part:
    """Weights that tensors may belong to, and the bytes found for each name among them."""

    weights: Sequence[Weight]
    by_path: dict[Path, list[int]] = field(default_factory=dict)
    by_leaf: dict[str, Path | None] = field(default_factory=dict)
    found_bytes: dict[tuple[int, ...], int] = field(default_factory=dict)
    found_elements: dict[tuple[int, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, weights: Sequence[Weight]) -> _Part:
        part = cls(weights)
        for index, weight in enumerate(weights):
            path = _canonical(weight.name.split("."))
            part.by_path.setdefault(path, []).append(index)
        for path in part.by_path:
            # A leaf that two modules share says nothing.
            part.by_leaf[path[-1]] = None if path[-1] in part.by_leaf else path
        return part

    def add(self, path: Path, tensor: StoredTensor) -> bool:
        """Counts the tensor for the weights its path names; False when it names none."""
        indexes = self._find(path)
        if not indexes:
            return False
        self.found_bytes[indexes] = self.found_bytes.get(indexes, 0) + tensor.num_bytes
        elements = self.found_elements.get(indexes, 0) + prod(tensor.shape)
        self.found_elements[indexes] = elements
        return True

    def _find(self, path: Path) -> tuple[int, ...]:
        for length in range(len(path), 0, -1):
            head, leaf = path[: length - 1], path[length - 1]
            names = (leaf,) if length < len(path) else (leaf, _LEAF_SUFFIX.sub("", leaf))
            for name in names:
                spelled = _SPELLINGS.get(name, name)
                fused = tuple((module,) for module in _PART_OF.get(spelled, ()))
                for parts in ((spelled,), _FUSED.get(spelled, ()), *fused):
                    places = [self.by_path.get((*head, part)) for part in parts]
                    if parts and all(places):
                        return tuple(index for place in places if place for index in place)
        for leaf in reversed(path[-2:]):
            unique = self.by_leaf.get(_SPELLINGS.get(leaf, leaf))
            if unique is not None:
                return tuple(self.by_path[unique])
        return ()

    def stored_bytes(self) -> tuple[int | None, ...]:
        """Bytes of each weight; those of a fused tensor are shared out by parameters, exactly."""
        stored: list[int | None] = [None] * len(self.weights)
        for indexes, num_bytes in self.found_bytes.items():
            left, parameters = num_bytes, sum(self.weights[index].parameters for index in indexes)
            for index in indexes:
                own = self.weights[index].parameters
                share = left * own // parameters if parameters else left
                stored[index] = (stored[index] or 0) + share
                left, parameters = left - share, parameters - own
        return tuple(stored)

    def differing(self, dtype: str) -> Iterable[str]:
        """Names of plain weights whose elements, or bytes in the model's type, are others.

        A weight with a type of its own has the one engines keep it in, whatever is stored.
        """
        for indexes, elements in self.found_elements.items():
            weights = [self.weights[index] for index in indexes]
            if any(weight.scheme is not None for weight in weights):
                continue
            described = sum(weight.parameters for weight in weights)
            own_type = any(weight.dtype is not None for weight in weights)
            num_bytes = described * DTYPE_BITS[dtype] // 8
            if elements != described or not (own_type or self.found_bytes[indexes] == num_bytes):
                yield weights[0].name

    def unfound(self) -> Iterable[Weight]:
        """The weights that no tensor was found for."""
        found = {index for indexes in self.found_bytes for index in indexes}
        return (weight for index, weight in enumerate(self.weights) if index not in found)

    def unfound_parameters(self) -> int:
        """Parameters that no tensor was found for."""
        return sum(weight.parameters for weight in self.unfound())


def attach_stored_tensors(
    spec: ModelSpec, tensors: Iterable[StoredTensor], *, mostly_there: bool = False
) -> ModelSpec:
    """``spec`` with the exact bytes of every weight as the checkpoint stores it.

    Blocks that were of one kind but differ in bytes become different kinds. Tensors that match no
    parameter are counted in a weight named ``"unmatched"`` (of the language model, a tower or a
    multi-token-prediction block) and listed in ``assumptions``, as are parameters that have no
    tensor, which keep their computed size. A stored copy of a tied head and rotary tables, which
    engines do not load, are listed but not counted.

    Args:
        spec: The model.
        tensors: What the headers list.
        mostly_there: Refuse tensors of less than half of the model's parameters.

    Raises:
        ModelError: More than half of the model is missing.
    """
    layers = [_Part.of(layer.weights) for layer in spec.layers]
    encoder = [_Part.of(layer.weights) for layer in spec.encoder_layers]
    mtp = [_Part.of(layer.weights) for layer in spec.mtp_layers]
    ends = _Part.of((*spec.input_weights, *spec.output_weights))
    towers = {tower.name: _Part.of(tower.weights) for tower in spec.towers}
    lost: dict[str, list[StoredTensor]] = {}
    skipped: list[StoredTensor] = []
    block = spec.layer_prefix.split(".")[-1]
    for tensor in tensors:
        names = tensor.name.split(".")
        if tensor.name.endswith(_NEVER_LOADED) or (
            spec.tied_embeddings and names[-2:] == ["lm_head", "weight"]
        ):
            skipped.append(tensor)
            continue
        component, part, path = _place(names, block, layers, encoder, mtp, towers, ends)
        if part is None or not part.add(path, tensor):
            lost.setdefault(component, []).append(tensor)
    parts = {"": (*layers, *encoder, ends), **{name: (part,) for name, part in towers.items()}}
    if mostly_there:
        _check_whole(spec, [part for group in parts.values() for part in group])
    stored = ends.stored_bytes()
    cut = len(spec.input_weights)
    output_weights = _stored(spec.output_weights, stored[cut:])
    mtp_layers = _stored_layers(spec.mtp_layers, mtp)
    if remainder := lost.get("mtp"):
        first = mtp_layers[0] if mtp_layers else Layer(mixers=(), ffn=None, weights=())
        first = replace(first, weights=(*first.weights, _unmatched(remainder)))
        mtp_layers = (first, *mtp_layers[1:])
    if remainder := lost.get("model"):
        output_weights += (_unmatched(remainder),)
    return replace(
        spec,
        layers=_stored_layers(spec.layers, layers),
        encoder_layers=_stored_layers(spec.encoder_layers, encoder),
        mtp_layers=mtp_layers,
        input_weights=_stored(spec.input_weights, stored[:cut]),
        output_weights=output_weights,
        towers=tuple(
            _stored_tower(tower, towers[tower.name], lost.get(tower.name, []))
            for tower in spec.towers
        ),
        assumptions=(
            *spec.assumptions,
            *_notes([part for group in parts.values() for part in group], spec, lost, skipped),
        ),
    )


def _check_whole(spec: ModelSpec, parts: Sequence[_Part]) -> None:
    """Refuse a checkpoint that stores less than half of its model: files are missing.

    Raises:
        ModelError: It does.
    """
    described = sum(weight.parameters for part in parts for weight in part.weights)
    missing = sum(part.unfound_parameters() for part in parts)
    if 2 * missing > described:
        found = sum(sum(part.found_bytes.values()) for part in parts)
        raise ModelError(
            f"the weight files store {format_bytes(found)}, {described - missing:,} of the "
            f"{described:,} parameters that the configuration of {spec.name} describes; fetch the "
            f"missing files, or give the config.json alone"
        )


def _canonical(names: Sequence[str]) -> Path:
    """A path without wrappers in front, expert numbers and differences of spelling."""
    start = 0
    while start < len(names) - 1 and names[start] in _WRAPPERS:
        start += 1
    return tuple(
        _SPELLINGS.get(name, name) for name in names[start:] if name != "*" and not name.isdecimal()
    )


def _place(
    names: Sequence[str],
    block: str,
    layers: Sequence[_Part],
    encoder: Sequence[_Part],
    mtp: Sequence[_Part],
    towers: Mapping[str, _Part],
    ends: _Part,
) -> tuple[str, _Part | None, Path]:
    """The component a tensor lies in, its weights, and the tensor's path among them."""
    for name in names:
        tower = "audio" if name in _AUDIO else "vision" if name in _VISION else ""
        if tower:
            return (
                (tower, towers[tower], _canonical(names))
                if tower in towers
                else (
                    "model",
                    None,
                    (),
                )
            )
    if not _MTP.isdisjoint(names):
        number = next((int(name) for name in names if _is_number(name)), 0)
        part = mtp[number] if number < len(mtp) else None
        tail = [index for index, name in enumerate(names) if _is_number(name)]
        return "mtp", part, _canonical(names[tail[0] + 1 if tail else 1 :])
    for index in range(len(names) - 2):
        if names[index] == block and _is_number(names[index + 1]):
            number, path = int(names[index + 1]), _canonical(names[index + 2 :])
            if encoder and "encoder" in names[:index]:
                return "model", encoder[number] if number < len(encoder) else None, path
            if number < len(layers):
                return "model", layers[number], path
            number -= len(layers)
            return "mtp", mtp[number] if number < len(mtp) else None, path
    return "model", ends, _canonical(names)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 6


def _stored(weights: Sequence[Weight], stored: Sequence[int | None]) -> tuple[Weight, ...]:
    return tuple(
        replace(weight, stored_bytes=num_bytes)
        for weight, num_bytes in zip(weights, stored, strict=True)
    )


def _stored_layers(layers: Sequence[Layer], parts: Sequence[_Part]) -> tuple[Layer, ...]:
    kinds: dict[tuple[int, tuple[int | None, ...]], Layer] = {}
    result = []
    for layer, part in zip(layers, parts, strict=True):
        stored = part.stored_bytes()
        kind = kinds.get((id(layer), stored))
        if kind is None:
            kind = replace(layer, weights=_stored(layer.weights, stored))
            kinds[id(layer), stored] = kind
        result.append(kind)
    return tuple(result)


def _stored_tower(tower: Tower, part: _Part, lost: Sequence[StoredTensor]) -> Tower:
    weights = _stored(tower.weights, part.stored_bytes())
    return replace(tower, weights=(*weights, _unmatched(lost)) if lost else weights)


def _unmatched(tensors: Sequence[StoredTensor]) -> Weight:
    return Weight(
        name=UNMATCHED,
        shape=(0,),
        role=Role.OTHER,
        stored_bytes=sum(tensor.num_bytes for tensor in tensors),
    )


def _notes(
    parts: Sequence[_Part],
    spec: ModelSpec,
    lost: Mapping[str, Sequence[StoredTensor]],
    skipped: Sequence[StoredTensor],
) -> Iterable[str]:
    unmatched = [tensor for group in lost.values() for tensor in group]
    if unmatched:
        yield (
            f"{_listed(unmatched)} of the checkpoint match no parameter of the configuration and"
            " are counted as stored"
        )
    if skipped:
        yield f"{_listed(skipped)} are stored but not loaded by engines and not counted"
    missing = {weight.name: None for part in parts for weight in part.unfound()}
    if missing:
        lacking = sum(part.unfound_parameters() for part in parts)
        described = sum(weight.parameters for part in parts for weight in part.weights)
        yield (
            f"the checkpoint stores no tensor for {_some(list(missing))} ({lacking:,} of "
            f"{described:,} parameters); computed sizes are used there"
        )
    differing = {name: None for part in parts for name in part.differing(spec.dtype)}
    if differing:
        yield (
            f"the checkpoint stores {_some(list(differing))} with other shapes or types than the"
            " configuration says; the stored bytes are used"
        )


def _listed(tensors: Sequence[StoredTensor]) -> str:
    total = format_bytes(sum(tensor.num_bytes for tensor in tensors))
    return f"{len(tensors)} tensors of {total} ({_some([tensor.name for tensor in tensors])})"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name[:100] for name in names[:3]) + more
