// Logs to try it with: retold from public reports, in the form in which the engines write.

import activations from "./samples/activations.log";
import compute_buffer from "./samples/compute_buffer.log";
import healthy from "./samples/healthy.log";
import host_ram from "./samples/host_ram.log";
import kv_pool from "./samples/kv_pool.log";
import other_process from "./samples/other_process.log";
import sglang_share from "./samples/sglang_share.log";
import shm from "./samples/shm.log";
import too_short from "./samples/too_short.log";
import type { Beside } from "./useDoctor";

export interface Sample {
  name: "kv_pool" | "activations" | "sglang_share" | "compute_buffer" | "other_process" | "host_ram" | "shm" | "healthy" | "too_short";
  text: string;
  /** What this log leaves out. */
  beside: Partial<Beside>;
}

export const SAMPLES: Sample[] = [
  { name: "kv_pool", text: kv_pool, beside: {} },
  { name: "activations", text: activations, beside: {} },
  { name: "sglang_share", text: sglang_share, beside: { gpu: "h100-sxm-80gb" } },
  { name: "compute_buffer", text: compute_buffer, beside: { model: "meta-llama/Llama-3.1-8B-Instruct@q8_0" } },
  { name: "other_process", text: other_process, beside: {} },
  { name: "host_ram", text: host_ram, beside: {} },
  { name: "shm", text: shm, beside: {} },
  { name: "healthy", text: healthy, beside: {} },
  { name: "too_short", text: too_short, beside: {} },
];
