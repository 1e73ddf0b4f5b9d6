// The server's answers, as far as the page reads them (docs/api.md has them whole).

export interface Rank {
  total_bytes: number;
  budget_bytes: number;
  weights_bytes: number;
  weights_by_component: Record<string, number>;
  kv_pool_bytes: number;
  activation_peak_bytes: number;
  cuda_graph_bytes: number;
  reserve_bytes: number;
  buffers_bytes: number;
  context_bytes: number;
  free_bytes: number;
  device?: string;
  is_host?: boolean;
}

export interface Change {
  change: string;
  flags: string;
  price: string;
  settings: Record<string, unknown>;
  weights: string | null;
  kv_pool_tokens: number;
  requests_running: number;
  request_tokens: number;
  gpus: number;
}

export interface Line {
  key: string;
  bytes: number;
  confidence: "exact" | "estimated";
  low_bytes: number;
  high_bytes: number;
  formula: string;
  values: Record<string, unknown>;
  source: string;
  parts: Line[];
}

export interface Fit {
  verdict: "fits" | "fits_with_less" | "does_not_fit";
  reason: string | null;
  engine: { name: string; version: string };
  model: {
    name: string;
    architecture: string;
    parameters_total: number;
    parameters_active: number;
    weights_bytes: number;
    quantization: string | null;
    layout?: string | null;
    source: string;
  };
  hardware: { accelerator: string; name: string; count: number; memory_bytes: number; used_bytes?: number };
  deployment: Record<string, { value: unknown; origin: string; reason?: string }>;
  ranks: Rank[];
  kv_blocks: number;
  kv_block_size: number;
  kv_pool_tokens: number;
  max_concurrency: number;
  max_model_len_that_fits: number;
  request_tokens: number;
  requests_held: number;
  requests_running: number;
  concurrency_asked: number | null;
  estimates: Record<string, [number, number]>;
  changes_that_fit?: Change[];
  warnings: string[];
  remarks?: string[];
  explain?: Line[];
  command: string | null;
  command_notes: string[];
}

export interface Ranged {
  value: number;
  low: number;
  high: number;
}

export interface SpeedPoint {
  concurrency: number;
  requests_running: number;
  requests_waiting: number;
  ttft_seconds: Ranged;
  tpot_seconds: Ranged | null;
  tokens_per_second_per_user: Ranged | null;
  output_tokens_per_second: Ranged;
  output_tokens_per_second_per_gpu: Ranged;
  requests_per_second: Ranged;
  usd_per_million_output_tokens: Ranged | null;
  regime?: string;
}

interface Reach {
  concurrency: number;
  cautious: number;
  hopeful: number;
  binds: string[];
  bound_by: string | null;
}

export interface Objectives {
  met: boolean;
  load: Reach;
  batch: Reach;
  unmet: { objective: string; alone_seconds: Ranged; floor_seconds: number; floor_by: string }[];
}

export interface Speed extends SpeedPoint {
  verdict: string;
  reason: string | null;
  prefill: { limiter: string; shares: Record<string, number> };
  decode: { limiter: string; shares: Record<string, number> };
  warnings: string[];
  points?: SpeedPoint[];
  objectives?: Objectives | null;
  tpot_parts?: Record<string, number> | null;
  ttft_parts?: Record<string, number> | null;
  tpot_limiter?: string;
}

export interface SweepPoint {
  value: number;
  weights_bytes: number;
  kv_used_bytes: number;
  kv_pool_bytes: number;
  activation_bytes: number;
  other_bytes: number;
  request_bytes: number;
  requests_running: number;
  requests_waiting: number;
  kv_pool_tokens: number;
  starts: boolean;
  in_use_bytes: number;
}

export interface Model {
  name: string;
  aliases: string[];
  architecture: string;
  parameters_total: number;
  parameters_active: number;
  max_position_embeddings: number | null;
  weights: string;
}

export interface Gpu {
  key: string;
  name: string;
  aliases: string[];
  vendor: string;
  memory_bytes: number;
  bandwidth_bytes_per_second: number | null;
}

export interface Catalogues {
  models: Model[];
  gpus: Gpu[];
  engines: { name: string; title: string }[];
  layouts: string[];
}

/** The server said no: its sentence. */
export class Refusal extends Error {}

function answer<T>(data: unknown): T {
  const { error } = data as { error?: { message?: string } };
  if (error) throw new Refusal(error.message ?? "");
  return data as T;
}

async function answered<T>(response: Response): Promise<T> {
  let data: unknown;
  try {
    data = JSON.parse(await response.text());
  } catch {
    throw new Refusal(`HTTP ${response.status}`);
  }
  return answer<T>(data);
}

/** Whether the page has no server and computes in the browser itself. */
export const alone = document.querySelector("meta[name=tokenroom][content=alone]") !== null;

/** Kinds of questions whose addresses have other names. */
const KINDS: Record<string, string> = { tables: "table" };

/** The answer to a question. */
export async function ask<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  if (alone) return answer<T>(JSON.parse(await asked(KINDS[path] ?? path, JSON.stringify(body), signal)));
  const response = await fetch(`v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: signal ?? null,
  });
  return answered<T>(response);
}

/** What does not depend on a question. */
export async function fetched<T>(path: string): Promise<T> {
  return answered<T>(await fetch(alone ? `data/${path}.json` : `v1/${path}`));
}

interface Waiting {
  kind: string;
  body: string;
  signal: AbortSignal | undefined;
  resolve: (text: string) => void;
}

let worker: Worker | undefined;
let current: Waiting | undefined;
const queue: Waiting[] = [];

/** Python in the browser, for who wants one of their own. */
export const workerOf = (): Worker => new Worker("worker.js", { type: "module" });

/** The JSON text with which the worker answers; what was given up before its turn is never asked. */
function asked(kind: string, body: string, signal?: AbortSignal): Promise<string> {
  if (!worker) {
    worker = workerOf();
    worker.addEventListener("message", (event: MessageEvent<string>) => {
      current?.resolve(event.data);
      current = undefined;
      next();
    });
  }
  return new Promise((resolve) => {
    queue.push({ kind, body, signal, resolve });
    next();
  });
}

function next(): void {
  while (!current && queue.length) {
    const first = queue.shift();
    if (!first || first.signal?.aborted) continue;
    current = first;
    worker?.postMessage({ kind: first.kind, body: first.body });
  }
}

let lists: Promise<Catalogues> | undefined;

/** Everything that may be named, fetched once. */
export function catalogues(): Promise<Catalogues> {
  lists ??= Promise.all([
    fetched<{ models: Model[] }>("models"),
    fetched<{ gpus: Gpu[] }>("gpus"),
    fetched<Pick<Catalogues, "engines" | "layouts">>("engines"),
  ]).then(([models, gpus, engines]) => ({ ...models, ...gpus, ...engines }));
  lists.catch(() => {
    lists = undefined; // the next who wants them asks again
  });
  return lists;
}
