// A run of a workload: begun, watched, ended early, and what comes of it (docs/api.md).

import { alone, ask, Refusal, workerOf } from "../api";

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

export interface Progress {
  done: number;
  /** 0 while it is not known. */
  total: number;
  figures: Record<string, number> | null;
}

interface Job extends Progress {
  id: string;
  state: "queued" | "running" | "done" | "failed" | "cancelled";
  error: string | null;
}

type Answer = Served | Unserved;

/** What becomes of a workload; giving it up ends the work as well. */
export function simulated(body: unknown, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<Answer> {
  return alone ? inBrowser(body, onProgress, signal) : onServer(body, onProgress, signal);
}

async function onServer(body: unknown, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<Answer> {
  const { id } = await ask<Job>("simulate", body); // not given up: its id is needed to end the job
  const address = `v1/jobs/${id}`;
  const end = () => fetch(address, { method: "DELETE", keepalive: true }).catch(() => undefined);
  if (signal.aborted) {
    end();
    throw signal.reason;
  }
  signal.addEventListener("abort", end);
  const ended = await watched(`${address}/events`, onProgress, signal);
  if (ended.state !== "done") throw new Refusal(ended.error ?? ended.state);
  const response = await fetch(`${address}/result`, { signal });
  if (!response.ok) throw new Refusal(`HTTP ${response.status}`);
  return (await response.json()) as Answer;
}

/** The job when it has ended, its events told on the way. */
function watched(address: string, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<Job> {
  return new Promise((resolve, reject) => {
    const events = new EventSource(address);
    const finish = (settle: () => void) => {
      events.close();
      settle();
    };
    signal.addEventListener("abort", () => finish(() => reject(signal.reason)));
    events.addEventListener("progress", (event) => onProgress(JSON.parse(event.data) as Job));
    for (const state of ["done", "failed", "cancelled"]) {
      events.addEventListener(state, (event) => finish(() => resolve(JSON.parse((event as MessageEvent<string>).data) as Job)));
    }
    events.addEventListener("error", () => {
      // a lost connection is tried again by the browser; one that was refused is not
      if (events.readyState === EventSource.CLOSED) finish(() => reject(new Error("the events ended")));
    });
  });
}

/** In a worker of its own, which a run that is given up takes with it. */
function inBrowser(body: unknown, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const worker = workerOf();
    const finish = (settle: () => void) => {
      worker.terminate();
      settle();
    };
    signal.addEventListener("abort", () => finish(() => reject(signal.reason)));
    worker.addEventListener("message", (event: MessageEvent<string | Progress>) => {
      const said = event.data;
      if (typeof said !== "string") return onProgress(said);
      const found = JSON.parse(said) as Answer & { error?: { message: string } };
      finish(() => (found.error ? reject(new Refusal(found.error.message)) : resolve(found)));
    });
    worker.postMessage({ kind: "simulate", body: JSON.stringify(body) });
  });
}
