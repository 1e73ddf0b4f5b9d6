// What POST /v1/explain answers (docs/json.md), as far as the page reads it.

import type { Fit } from "../api";
import type { Deployment } from "./corrected";

export const PHASES = ["load", "profile", "kv_init", "graph_capture", "prefill", "decode", "runtime"] as const;

export type Phase = (typeof PHASES)[number];

export interface Effect {
  starts: boolean;
  pool_tokens: [number, number];
  activation_bytes: [number, number];
  weights_bytes: [number, number];
  ttft_ratio: number | null;
  tpot_ratio: number | null;
}

export interface Remedy {
  key: string;
  what: string;
  flag: string | null;
  value: number | string | null;
  /** What asks for the deployment with it; null where nothing does. */
  question?: Deployment | null;
  cost: "nothing" | "speed" | "capacity" | "quality" | "hardware";
  effect: Effect | null;
}

export interface Held {
  device: number;
  reserved_bytes: number;
  allocated_bytes: number;
  unused_bytes: number;
  largest_free_bytes: number;
  segments: number;
  by_taker: Record<string, number>;
  sites: { where: string; taker: string; bytes: number; blocks: number }[];
}

export interface Diagnosis {
  healthy: boolean;
  cause: string | null;
  phase: Phase | null;
  confidence: "high" | "medium" | "low";
  served_after: number | null;
  verdict: string;
  reason: string | null;
  error: string | null;
  alternatives: { cause: string; phase: Phase; weight: number }[];
  evidence: { line: number; text: string }[];
  recovered: {
    engine: string | null;
    version: string | null;
    model: string | null;
    gpu: string | null;
    gpus: number | null;
    flags: Record<string, unknown>;
    figures: Record<string, unknown>;
  };
  /** What PyTorch held of each GPU, where the file is a memory snapshot. */
  snapshot: Held[] | null;
  ledger: Fit | null;
  no_ledger: string | null;
  /** What asks for the deployment, where there is a ledger. */
  question?: Deployment;
  remedies: Remedy[];
}

/** What became of a log: the four differ in how they are told. */
export type Kind = "cause" | "healthy" | "other" | "unknown";

export function kindOf({ healthy, cause }: Diagnosis): Kind {
  if (healthy) return "healthy";
  if (cause === "unknown" || cause === null) return "unknown";
  return cause === "not_memory" ? "other" : "cause";
}

const WEIGHTS = { high: 3, medium: 2, low: 1 };

/** How much of an answer it is; of several logs the one with most is shown first. */
export function tellsOf(found: Diagnosis): number {
  const kinds: Record<Kind, number> = { cause: 30, other: 20, healthy: 10, unknown: 0 };
  return kinds[kindOf(found)] + WEIGHTS[found.confidence];
}
