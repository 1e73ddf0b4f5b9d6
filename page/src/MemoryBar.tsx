// One GPU's memory, end to end: what takes it, what is free, and what would not fit.

import type { Fit, Rank } from "./api";
import { exactly, gib } from "./format";
import type { Say, Word } from "./words";

export interface Segment {
  key: string;
  word: Word;
  bytes: number;
  /** What measurements allow, null where it is exact. */
  range: [number, number] | null;
}

/** The GPU with the least room, which decides. */
export function governing(fit: Fit): Rank {
  const gpus = fit.ranks.filter((rank) => !rank.is_host);
  const ranks = gpus.length ? gpus : fit.ranks;
  return ranks.reduce((worst, rank) => (rank.kv_pool_bytes < worst.kv_pool_bytes ? rank : worst));
}

/** What takes the memory of a GPU, in the order in which it is taken. */
export function segmentsOf(fit: Fit, rank: Rank): Segment[] {
  const ranged = (key: string): [number, number] | null => {
    const range = fit.estimates[key];
    return range && range[0] !== range[1] ? range : null;
  };
  // llama.cpp counts the driver and its libraries together, and takes nothing before it starts
  const driver = rank.device !== undefined;
  const before = driver ? 0 : rank.context_bytes;
  const reserve = rank.reserve_bytes + (driver ? rank.context_bytes : 0);
  const beside = ranged("reserve_bytes");
  const parts: Segment[] = [
    { key: "context", word: "seg_context", bytes: before, range: null },
    { key: "weights", word: "seg_weights", bytes: rank.weights_bytes, range: null },
    { key: "activation", word: "seg_activation", bytes: rank.activation_peak_bytes, range: ranged("activation_peak_bytes") },
    { key: "graphs", word: "seg_graphs", bytes: rank.cuda_graph_bytes, range: ranged("cuda_graph_bytes") },
    {
      key: "reserve",
      word: driver ? "seg_driver" : "seg_reserve",
      bytes: reserve,
      range: beside && [beside[0] + reserve - rank.reserve_bytes, beside[1] + reserve - rank.reserve_bytes],
    },
    { key: "buffers", word: "seg_buffers", bytes: rank.buffers_bytes, range: null },
    { key: "kv", word: "seg_kv", bytes: rank.kv_pool_bytes, range: poolRange(fit, rank) },
  ];
  const taken = parts.reduce((sum, part) => sum + Math.max(0, part.bytes), 0);
  if (taken > rank.total_bytes) {
    parts.push({ key: "missing", word: "seg_missing", bytes: taken - rank.total_bytes, range: null });
  } else {
    parts.push({ key: "free", word: "seg_free", bytes: rank.free_bytes, range: null });
  }
  return parts.filter((part) => part.bytes > 0);
}

/** The pool if the estimates err together as far as they were measured to. */
export function poolRange(fit: Fit, rank: Rank): [number, number] | null {
  const [low, high] = fit.estimates.kv_pool_tokens ?? [0, 0];
  if (low === high || !fit.kv_pool_tokens) return null;
  const each = rank.kv_pool_bytes / fit.kv_pool_tokens;
  return [low * each, high * each];
}

interface Props {
  fit: Fit;
  say: Say;
  /** Where its lines are explained; they are no buttons without it. */
  onExplain?: (key: string) => void;
}

export function MemoryBar({ fit, say, onExplain }: Props) {
  const rank = governing(fit);
  const segments = segmentsOf(fit, rank);
  const missing = segments.find((segment) => segment.key === "missing");
  const scale = rank.total_bytes + (missing?.bytes ?? 0);
  let at = 0;
  return (
    <section class="memory" aria-label={say("perGpu")}>
      <header>
        <h2>{fit.ranks.length > 1 ? say("ofStage") : say("perGpu")}</h2>
        <span class="number">
          {rank.budget_bytes > 0 && rank.budget_bytes < rank.total_bytes && `${say("budget")} ${gib(rank.budget_bytes)} · `}
          {gib(rank.total_bytes)} GiB
        </span>
      </header>
      <svg id="memory-bar" class="bar" viewBox="0 0 1000 44" preserveAspectRatio="none" role="img" aria-label={segments.map((segment) => `${say(segment.word)} ${gib(segment.bytes)} GiB`).join(", ")}>
        {missing && <defs>
          <pattern id="hatch" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="9" height="9" class="fill-missing" />
            <rect width="4" height="9" class="fill-hatch" />
          </pattern>
        </defs>}
        {segments.map((segment) => {
          const over = segment.key === "missing";
          const size = Math.min(segment.bytes, over ? Infinity : rank.total_bytes - at);
          const x = (1000 * at) / scale;
          const width = (1000 * Math.max(0, size)) / scale;
          at += size;
          return (
            <rect key={segment.key} x={x} y="0" width={width} height="44" class={`seg-${segment.key}`}>
              <title>{`${say(segment.word)}: ${gib(segment.bytes)} GiB`}</title>
            </rect>
          );
        })}
        {missing && <line class="edge" x1={(1000 * rank.total_bytes) / scale} x2={(1000 * rank.total_bytes) / scale} y1="0" y2="44" />}
      </svg>
      <ul class="legend">
        {segments.map((segment) => {
          const line = (
            <>
              <i class={`swatch seg-${segment.key}`} aria-hidden="true" />
              <span>{say(segment.word)}</span>
              <b class="number">{gib(segment.bytes)}</b>
              <small class="number">
                {segment.range ? `${gib(segment.range[0])}–${gib(segment.range[1])}` : segment.key === "weights" ? say("exact") : ""}
              </small>
            </>
          );
          return (
            <li key={segment.key}>
              {onExplain ? (
                <button type="button" class="legend-line" title={`${exactly(segment.bytes)} · ${say("explainHint")}`} onClick={() => onExplain(segment.key)}>{line}</button>
              ) : (
                <div class="legend-line" title={exactly(segment.bytes)}>{line}</div>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}
