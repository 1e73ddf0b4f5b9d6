"""Compute graphs as ggml builds them: tensors with shapes, sources and views, in evaluation order.

Only what memory depends on is kept. Shapes are ggml's (fastest dimension first), operations are
those of ``ggml/src/ggml.c`` of llama.cpp 0c1e57098, and :meth:`Graph.expand` orders nodes as
``ggml_visit_parents_graph`` does, since the allocator's result depends on that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, TypeAlias

from tokenroom.models.quantization.ggml import BLOCKS

Shape: TypeAlias = tuple[int, int, int, int]

_PLAIN_BYTES: Final = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8}

#: Operations that may write over a source (``ggml_op_can_inplace``, ``ggml/src/ggml-alloc.c``).
IN_PLACE: Final = frozenset(
    {"fill", "scale", "add", "add_id", "mul", "div", "sqr", "unary", "rope", "rms_norm", "clamp"}
    | {"soft_max"}
)
#: Operations that only look at a tensor differently (``ggml_is_view_op``).
VIEWS: Final = frozenset({"view", "reshape", "permute", "transpose", "none"})


def row_bytes(kind: str, elements: int) -> int:
    """Bytes of one row (``ggml_row_size``)."""
    plain = _PLAIN_BYTES.get(kind)
    if plain is not None:
        return plain * elements
    block, size = BLOCKS[kind]
    return elements * size // block


class AllocationState:
    """What the graph allocator knows of one tensor."""

    __slots__ = ("allocated", "children", "offset", "place", "views")

    def __init__(self) -> None:
        self.children = 0
        self.views = 0
        self.place = -1
        self.offset = 0
        self.allocated = False


class Tensor:
    """One tensor of a graph; mutable only while a graph is laid out.

    ``strides`` is None for a contiguous tensor. ``place`` is the buffer that already holds it
    (weights and caches), None for what the graph allocator has to find room for. ``backend`` is
    the backend it is assigned to, -1 when none is yet.
    """

    __slots__ = (
        "backend",
        "batch",
        "is_input",
        "is_output",
        "is_weight",
        "kind",
        "name",
        "nbytes",
        "ne",
        "op",
        "place",
        "src",
        "state",
        "strides",
        "view_of",
    )

    def __init__(
        self,
        op: str,
        kind: str,
        ne: Shape,
        src: tuple[Tensor, ...] = (),
        *,
        view_of: Tensor | None = None,
        strides: Shape | None = None,
    ) -> None:
        self.op = op
        self.kind = kind
        self.ne = ne
        self.src = src
        self.view_of = view_of
        self.strides = strides
        self.nbytes = (
            row_bytes(kind, ne[0]) * ne[1] * ne[2] * ne[3]
            if strides is None
            else _spanned(kind, ne, strides)
        )
        self.is_input = False
        self.is_output = False
        self.is_weight = False
        self.place: int | None = view_of.place if view_of is not None else None
        self.backend = -1
        self.batch = 0
        self.name = ""
        self.state: AllocationState | None = None


def _spanned(kind: str, ne: Shape, strides: Shape) -> int:
    """Bytes from the first to the last element of a strided tensor (``ggml_nbytes``)."""
    return row_bytes(kind, ne[0]) + sum((ne[i] - 1) * strides[i] for i in range(1, 4))


def shape(*sizes: int) -> Shape:
    """Sizes filled up with ones to four dimensions."""
    filled = (*sizes, 1, 1, 1, 1)
    return filled[0], filled[1], filled[2], filled[3]


def contiguous_strides(kind: str, ne: Shape) -> Shape:
    """Strides in bytes of a contiguous tensor."""
    row = row_bytes(kind, ne[0])
    element = _PLAIN_BYTES.get(kind, row)
    return element, row, row * ne[1], row * ne[1] * ne[2]


class Graph:
    """Tensors in evaluation order, with the operations that make them."""

    __slots__ = ("_seen", "leafs", "nodes")

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self._seen: set[int] = set()

    def expand(self, tensor: Tensor) -> Tensor:
        """Append a tensor and everything it needs that is not in the graph yet."""
        seen = self._seen
        if id(tensor) in seen:
            return tensor
        stack = [(tensor, 0)]
        seen.add(id(tensor))
        while stack:
            node, at = stack.pop()
            src = node.src
            while at < len(src) and id(src[at]) in seen:
                at += 1
            if at < len(src):
                stack.append((node, at + 1))
                seen.add(id(src[at]))
                stack.append((src[at], 0))
            elif node.op == "none":
                self.leafs.append(node)
            else:
                self.nodes.append(node)
        return tensor

    # What is there before the graph runs.

    def input(self, kind: str, *sizes: int) -> Tensor:
        """A tensor that the caller fills in."""
        made = Tensor("none", kind, shape(*sizes))
        made.is_input = True
        return made

    def stored(self, kind: str, sizes: Sequence[int], place: int, *, weight: bool) -> Tensor:
        """A weight or a cache, in a buffer of its own."""
        made = Tensor("none", kind, shape(*sizes))
        made.place = place
        made.is_weight = weight
        return made

    # Operations, each with the shape ggml gives its result.

    def mul_mat(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` is (in, out, ...), ``b`` (in, tokens, ...)."""
        made = Tensor("mul_mat", "f32", (a.ne[1], b.ne[1], b.ne[2], b.ne[3]), (a, b))
        made.batch = b.ne[1]
        return made

    def mul_mat_id(self, experts: Tensor, b: Tensor, ids: Tensor) -> Tensor:
        """Each token through the experts that ``ids`` names."""
        made = Tensor(
            "mul_mat_id", "f32", (experts.ne[1], ids.ne[0], b.ne[2], 1), (experts, b, ids)
        )
        made.batch = b.ne[2]
        return made

    def apply(self, op: str, a: Tensor, *others: Tensor) -> Tensor:
        """An operation whose result has the type and the shape of its first operand."""
        made = Tensor(op, a.kind, a.ne, (a, *others))
        made.batch = a.ne[1] * a.ne[2] * a.ne[3]
        return made

    def new(self, op: str, kind: str, ne: Shape, *src: Tensor) -> Tensor:
        """An operation with a result of its own shape."""
        made = Tensor(op, kind, ne, src)
        made.batch = prod(ne[1:])
        return made

    def get_rows(self, a: Tensor, ids: Tensor) -> Tensor:
        """Rows of ``a``; always float32 for float tables."""
        kind = "i32" if a.kind == "i32" else "f32"
        return Tensor("get_rows", kind, (a.ne[0], *ids.ne[:3]), (a, ids))

    def reshape(self, a: Tensor, *sizes: int) -> Tensor:
        """The same memory in another shape."""
        return Tensor("reshape", a.kind, shape(*sizes), (a,), view_of=a.view_of or a)

    def view(self, a: Tensor, sizes: Sequence[int], strides: Shape | None = None) -> Tensor:
        """Part of a tensor, contiguous when no strides in bytes are given."""
        base = a.view_of or a
        ne = shape(*sizes)
        if strides is not None and strides == contiguous_strides(a.kind, ne):
            strides = None
        return Tensor("view", a.kind, ne, (a,), view_of=base, strides=strides)

    def permute(self, a: Tensor, *axes: int) -> Tensor:
        """Dimensions in another order: dimension i goes to ``axes[i]``."""
        old = a.strides or contiguous_strides(a.kind, a.ne)
        ne, strides = [0] * 4, [0] * 4
        for at, axis in enumerate(axes):
            ne[axis], strides[axis] = a.ne[at], old[at]
        new = (ne[0], ne[1], ne[2], ne[3])
        laid = (strides[0], strides[1], strides[2], strides[3])
        if laid == contiguous_strides(a.kind, new):
            return Tensor("permute", a.kind, new, (a,), view_of=a.view_of or a)
        return Tensor("permute", a.kind, new, (a,), view_of=a.view_of or a, strides=laid)

    def transpose(self, a: Tensor) -> Tensor:
        """The first two dimensions exchanged."""
        return self.permute(a, 1, 0, 2, 3)

    def cont(self, a: Tensor, *sizes: int) -> Tensor:
        """A contiguous copy, in another shape when sizes are given."""
        return Tensor("cont", a.kind, shape(*sizes) if sizes else a.ne, (a,))

    def set_rows(self, table: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Write rows into a table; the result is the table."""
        made = Tensor(
            "set_rows", table.kind, table.ne, (rows, ids, table), view_of=table.view_of or table
        )
        made.batch = rows.ne[1]
        return made

    def copy(self, a: Tensor, target: Tensor) -> Tensor:
        """Write a tensor over another; the result is the other."""
        return Tensor("cpy", target.kind, target.ne, (a, target), view_of=target.view_of or target)

    def half(self, a: Tensor) -> Tensor:
        """The tensor in float16 if it is float32, as flash attention reads it."""
        return self.new("cast", "f16", a.ne, a) if a.kind == "f32" else a

    def concat(self, a: Tensor, b: Tensor, axis: int = 0) -> Tensor:
        """Two tensors one after the other along a dimension."""
        ne = list(a.ne)
        ne[axis] += b.ne[axis]
        return Tensor("concat", a.kind, (ne[0], ne[1], ne[2], ne[3]), (a, b))

    def glu(self, a: Tensor, b: Tensor) -> Tensor:
        """A gated activation of two halves that lie apart."""
        made = Tensor("glu", a.kind, a.ne, (a, b))
        made.batch = prod(a.ne[1:])
        return made
