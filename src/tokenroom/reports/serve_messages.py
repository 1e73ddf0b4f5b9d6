"""Sentences of ``serve`` and ``site``, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SERVE_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "serve.ready": (
        "tokenroom serves at {address} (Ctrl-C ends it)",
        "tokenroom 已在 {address} 提供服务（Ctrl-C 结束）",
    ),
    "site.written": (
        "written to {folder} ({size}); any web host can serve it",
        "已写入 {folder}（{size}）；任何网页主机均可提供",
    ),
    "serve.no_page": (
        "The page was not built into this installation: the API is there, the page is not. With "
        "Node.js, scripts/build_page builds it.",
        "本次安装未包含页面：API 可用，页面不可用。装有 Node.js 时可用 scripts/build_page 构建。",
    ),
}
