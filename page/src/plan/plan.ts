// The answer to what should be deployed, as far as the page reads it (docs/json.md has it whole).

import { csvText } from "../exporting";
import type { Distribution } from "../traffic/simulation";

export interface Candidate {
  name: string;
  model: string;
  engine: string;
  accelerator: string;
  tensor_parallel_size: number;
  pipeline_parallel_size: number;
  data_parallel_size: number;
  expert_parallel: boolean;
  kv_cache_dtype: string | null;
  gpus_per_replica: number;
  /** Servers of prompts and of answers, where they are apart. */
  split?: { prompt_servers: number; prompt_tensor_parallel_size: number; answer_servers: number } | null;
}

export interface Proposal extends Candidate {
  replicas: number;
  gpus: number;
  usd_per_hour: number | null;
  headroom: number;
  concurrency: number;
  mean_ttft_seconds: number;
  mean_tpot_seconds: number | null;
  output_tokens_per_second: number;
  kv_pool_tokens: number;
  limiter: string;
  extrapolated: boolean;
}

export interface Simulated {
  load_per_replica: number;
  requests: number;
  ttft: Distribution;
  tpot: Distribution;
  running: { mean: number; max: number };
  waiting: { mean: number; max: number };
  kv_pool_usage_max: number;
  preemptions: number;
  /** The load that verified it, as a simulation takes it. */
  workload?: string;
}

export interface Option extends Proposal {
  simulated: Simulated;
  remarks: string[];
  launch: { command: string | null; docker: string | null; kubernetes: string | null };
}

export interface Rejection extends Candidate {
  reason: string;
  text: string;
}

export interface Demand {
  users: number | null;
  think_seconds: number;
  requests_per_second: number | null;
  input_tokens: number;
  output_tokens: number;
  longest_tokens: number;
  ttft_seconds: number | null;
  tpot_seconds: number | null;
  statistic: "mean" | "p50" | "p90" | "p95" | "p99";
}

export interface Plan {
  demand: Demand;
  complete: boolean;
  candidates: number;
  judged: number;
  /** Of candidates with all settings that are tried of each. */
  deployments?: { judged: number; ruled_out_by_bounds: number };
  plans: Option[];
  untried: Proposal[];
  rejected: Rejection[];
  markdown: string;
}

/** What stands for a proposal while others come and go. */
export const keyOf = (one: Proposal): string => `${one.model} ${one.engine} ${one.name}`;

/** The figure that is promised, of a simulated latency. */
export const promisedOf = (found: Distribution, demand: Demand): number | null => found[`${demand.statistic}_seconds`];

const CSV = [
  "state", "model", "engine", "accelerator", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
  "expert_parallel", "kv_cache_dtype", "max_num_batched_tokens", "max_num_seqs", "memory_share", "prefix_caching",
  "kv_offload_bytes", "max_model_len", "draft", "gpus_per_replica", "replicas", "gpus", "usd_per_hour",
  "headroom", "mean_ttft_seconds", "mean_tpot_seconds", "ttft_seconds", "tpot_seconds", "output_tokens_per_second",
  "limiter", "reason", "text",
];

/** Everything that was tried as rows, the columns of `tokenroom plan --csv`. */
export function csvOf(plan: Plan): string {
  const rows: Record<string, unknown>[] = [
    ...plan.plans.map((one) => ({
      ...one,
      state: "proposed",
      ttft_seconds: promisedOf(one.simulated.ttft, plan.demand),
      tpot_seconds: promisedOf(one.simulated.tpot, plan.demand),
    })),
    ...plan.untried.map((one) => ({ ...one, state: "untried" })),
    ...plan.rejected.map((one) => ({ ...one, state: "rejected" })),
  ];
  return csvText([CSV, ...rows.map((row) => CSV.map((name) => row[name]))]);
}
