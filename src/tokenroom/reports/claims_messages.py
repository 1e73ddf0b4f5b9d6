"""Sentences and labels of ``claims``, in English and in Chinese, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLAIMS_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    # key: (English, Chinese)
    "claims.title": ("Published claims, checked", "已发表的说法，逐条核对"),
    "claims.about": (
        "{claims} claims of two Chinese articles on GPU memory for LLM serving: {counts}.",
        "两篇关于大模型推理显存的中文文章中的 {claims} 条说法：{counts}。",
    ),
    "claims.count": ("{count} {verdict}", "{verdict} {count} 条"),
    "claims.article.ledger": (
        "The ledger: who takes the memory, and how to need less",
        "显存账本：显存被谁吃了、如何压低",
    ),
    "claims.article.handbook": (
        "The handbook: formulas, tables and a worked case",
        "拆解手册：公式、速查表与实战案例",
    ),
    "claims.short.ledger": ("ledger", "账本"),
    "claims.short.handbook": ("handbook", "手册"),
    "claims.section": ("Section {section}", "第 {section} 节"),
    "claims.column.id": ("Row", "行"),
    "claims.column.where": ("Section", "章节"),
    "claims.column.claim": ("Claim", "说法"),
    "claims.column.published": ("Published", "原文"),
    "claims.column.ours": ("Here", "此处"),
    "claims.column.verdict": ("Verdict", "结论"),
    "claims.column.why": ("Why, and source", "原因与来源"),
    "claims.verdict.equal": ("equal", "一致"),
    "claims.verdict.close": ("close", "接近"),
    "claims.verdict.depends": ("depends", "视情况"),
    "claims.verdict.corrected": ("corrected", "更正"),
    "claims.verdict.added": ("added", "补充"),
    "claims.yes": ("yes", "是"),
    "claims.no": ("no", "否"),
    "claims.join": ("; ", "；"),
    "claims.named": ("{name}: {figure}", "{name}：{figure}"),
    "claims.source": ("Source: {source}", "来源：{source}"),
    "claims.footer": (
        "tokenroom claims ROW tells why. Rows marked * take simulations.",
        "tokenroom claims 行名 给出原因。带 * 的行需要模拟。",
    ),
    "claims.reading": (
        "Verdicts follow from the figures: equal within what rounding to the printed digits "
        "explains (0.5%), close within 10%, corrected where nothing comes near, depends where "
        "some cases do and others do not, added where the article prints no figure. A GB of a "
        "card's memory may be meant as 10^9 or as 2^30 bytes, and is read as either.",
        "结论由数字得出：一致（0.5% 以内，即四舍五入）、接近（10% 以内）、更正（均不接近）、视情况"
        "（部分情形符合）、补充（原文没有数字）。卡上显存的 GB 可能指 10^9 或 2^30 字节，两者皆"
        "可。",
    ),
    "claims.generated": (
        "Written by `python scripts/write_claims.py` from `src/tokenroom/claims`: every figure "
        "here is computed, and `tokenroom claims` computes it anew.",
        "由 `python scripts/write_claims.py` 根据 `src/tokenroom/claims` 生成：所有数字均为计算所"
        "得，`tokenroom claims` 会重新计算。",
    ),
}
