// What comes of a run of a workload (docs/api.md).

import { type Progress, worked } from "../job";

export interface Distribution {
  count: number;
  mean_seconds: number | null;
  p50_seconds: number | null;
  p90_seconds: number | null;
  p95_seconds: number | null;
  p99_seconds: number | null;
  max_seconds: number | null;
}

export const LATENCIES = ["ttft", "tpot", "itl", "e2e", "queue"] as const;

export interface TimelinePoint {
  start_seconds: number;
  busy_seconds: number;
  running: number;
  waiting: number;
  kv_pool_usage: number;
}

/** A moment, requests that wait, requests that run, the share of the KV pool that is held. */
export type Frame = [seconds: number, waiting: number, running: number, usage: number];

export interface Stay {
  id: number;
  arrival_seconds: number;
  scheduled_seconds: number;
  first_token_seconds: number;
  finish_seconds: number;
  prompt_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  /** When it lost its blocks, and when it ran again. */
  pauses: [number, number][];
  refused: string | null;
}

export interface Playback {
  frames: Frame[];
  requests: Stay[];
  requests_left_out: number;
  quantiles: Record<"ttft" | "tpot" | "e2e", number[]>;
}

export interface Served {
  scheduler: { kv_pool_tokens: number };
  pools: { copies: number; replicas: number }[];
  workload: string;
  falls_behind: boolean | null;
  requests: { arrived: number; served: number; refused: Record<string, number>; unfinished: number };
  duration_seconds: number;
  latency: Record<(typeof LATENCIES)[number], Distribution>;
  throughput: { requests_per_second: number; output_tokens_per_second: number; total_tokens_per_second: number };
  goodput: { ttft_seconds: number | null; tpot_seconds: number | null; share: number; requests_per_second: number } | null;
  prefix_hit_rate: number | null;
  running: { mean: number; max: number };
  waiting: { mean: number; max: number };
  kv_pool_usage: { mean: number; max: number };
  preemptions: number;
  usd_per_million_output_tokens: number | null;
  timeline: TimelinePoint[];
  playback: Playback;
}

/** The engine does not start, so that nothing is served. */
export interface Unserved {
  verdict: "does_not_fit";
  reason: string;
}

type Answer = Served | Unserved;

/** What becomes of a workload; giving it up ends the work as well. */
export const simulated = (body: unknown, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<Answer> =>
  worked("simulate", body, { onProgress }, signal);
