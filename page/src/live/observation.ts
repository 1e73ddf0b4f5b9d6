// What GET /v1/watch answers (docs/json.md, docs/api.md), as far as the page reads it.

export interface Latency {
  count: number;
  mean_seconds: number;
  p50_seconds: number;
  p90_seconds: number;
  p99_seconds: number;
  /** The 99th percentile is only known to lie beyond that. */
  beyond: boolean;
}

export const LATENCIES = ["ttft", "itl", "tpot", "queue", "e2e"] as const;

export interface Replica extends Record<(typeof LATENCIES)[number], Latency | null> {
  model: string | null;
  rank: string | null;
  running: number | null;
  waiting: number | null;
  kv_share: number | null;
  kv_used_tokens: number | null;
  kv_pool_tokens: number | null;
  prompt_tokens_per_second: number | null;
  generation_tokens_per_second: number | null;
  requests_per_second: number | null;
  preemptions: number | null;
  prefix_hit_share: number | null;
  totals: { prompt_tokens: number | null; generation_tokens: number | null; requests: number | null; preemptions: number | null };
}

export interface Planned {
  told_by: "command" | "endpoint";
  assumed: string[];
  model: string;
  gpu: string;
  gpus: number;
  starts: boolean;
  weights_bytes: number;
  activation_bytes: number;
  graphs_bytes: number;
  other_bytes: number;
  kv_pool_bytes: number;
  peak_bytes: number;
  kv_pool_tokens: number;
  kv_pool_tokens_low: number;
  kv_pool_tokens_high: number;
}

export interface Facts {
  engine: string;
  version: string | null;
  model: string | null;
  max_model_len: number | null;
  max_num_seqs: number | null;
  kv_pool_tokens: number | null;
  kv_bytes: number | null;
  weights_bytes: number | null;
  graphs_bytes: number | null;
}

export interface Endpoint {
  url: string;
  status: "waiting" | "up" | "down";
  since: number;
  error: string | null;
  restarts: number;
  facts: Facts | null;
  no_plan: string | null;
  planned: Planned | null;
  host_bytes: number | null;
  replicas: Replica[];
  torch: { gpu: string; allocated_bytes: number; reserved_bytes: number }[];
}

export interface Gpu {
  index: string;
  name: string;
  total_bytes: number;
  used_bytes: number;
  busy_share: number | null;
  processes: { pid: number; name: string | null; used_bytes: number | null }[] | null;
}

export interface Alert {
  key: string;
  severity: "critical" | "warning" | "notice";
  subject: string;
  since: number;
  text: string;
  helps: { key: string; flag: string; text: string }[];
}

/** An observation in short. */
export interface Moment {
  time: number;
  replicas: {
    url: string;
    model: string | null;
    rank: string | null;
    running: number | null;
    waiting: number | null;
    kv_share: number | null;
    generation_tokens_per_second: number | null;
    ttft_p50_seconds: number | null;
    itl_p50_seconds: number | null;
  }[];
  gpus: { index: string; used_bytes: number; busy_share: number | null }[];
}

export interface Observation {
  time: number;
  interval_seconds: number;
  window_seconds: number;
  gpus_error: string | null;
  gpus: Gpu[];
  endpoints: Endpoint[];
  alerts: Alert[];
  history?: Moment[];
}

/** From here on a KV pool is called full; the server's alerts begin there as well. */
export const WATERLINE = 0.8;

export const isWatching = (seen: Observation): boolean => seen.endpoints.length > 0;

/** What was seen of one engine of a server over time. */
export function seriesOf(history: Moment[], url: string, { model, rank }: Replica, name: "running" | "waiting" | "kv_share" | "generation_tokens_per_second" | "ttft_p50_seconds" | "itl_p50_seconds"): Point[] {
  return history.map(({ time, replicas }) => {
    const found = replicas.find((one) => one.url === url && one.rank === rank && one.model === model);
    return [time, found?.[name] ?? null];
  });
}

/** A moment in seconds since the epoch, and what was seen then; null where nothing was. */
export type Point = [time: number, value: number | null];
