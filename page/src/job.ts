// Long work: begun, watched, ended early, and what comes of it (docs/api.md).

import { alone, ask, Refusal, workerOf } from "./api";

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
  partials: number;
}

interface Hearing<T> {
  onProgress: (progress: Progress) => void;
  /** Hears of the answer as far as it is known. */
  onPartial?: (partial: T) => void;
}

/** The answer to a question that takes long; giving it up ends the work as well. */
export function worked<T>(kind: string, body: unknown, hearing: Hearing<T>, signal: AbortSignal): Promise<T> {
  return alone ? inBrowser(kind, body, hearing, signal) : onServer(kind, body, hearing, signal);
}

async function onServer<T>(kind: string, body: unknown, hearing: Hearing<T>, signal: AbortSignal): Promise<T> {
  const { id } = await ask<Job>(kind, body); // not given up: its id is needed to end the job
  const address = `v1/jobs/${id}`;
  const end = () => fetch(address, { method: "DELETE", keepalive: true }).catch(() => undefined);
  if (signal.aborted) {
    end();
    throw signal.reason;
  }
  signal.addEventListener("abort", end);
  const ended = await watched(address, hearing, signal);
  if (ended.state !== "done") throw new Refusal(ended.error ?? ended.state);
  const response = await fetch(`${address}/result`, { signal });
  if (!response.ok) throw new Refusal(`HTTP ${response.status}`);
  return (await response.json()) as T;
}

/** The job when it has ended, its events told on the way. */
function watched<T>(address: string, { onProgress, onPartial }: Hearing<T>, signal: AbortSignal): Promise<Job> {
  return new Promise((resolve, reject) => {
    const events = new EventSource(`${address}/events`);
    let asked = 0;
    let heard = 0;
    let ended = false;
    const finish = (settle: () => void) => {
      ended = true;
      events.close();
      settle();
    };
    const partial = async (number: number) => {
      asked = number;
      const response = await fetch(`${address}/partial`, { signal }).catch(() => null);
      const found = response?.ok ? ((await response.json().catch(() => null)) as T | null) : null;
      if (!found || ended || number < heard) return;
      heard = number;
      onPartial?.(found);
    };
    signal.addEventListener("abort", () => finish(() => reject(signal.reason)));
    events.addEventListener("progress", (event) => {
      const job = JSON.parse(event.data) as Job;
      onProgress(job);
      if (onPartial && job.partials > asked) partial(job.partials);
    });
    for (const state of ["done", "failed", "cancelled"]) {
      events.addEventListener(state, (event) => finish(() => resolve(JSON.parse((event as MessageEvent<string>).data) as Job)));
    }
    events.addEventListener("error", () => {
      // a lost connection is tried again by the browser; one that was refused is not
      if (events.readyState === EventSource.CLOSED) finish(() => reject(new Error("the events ended")));
    });
  });
}

/** In a worker of its own, which work that is given up takes with it. */
function inBrowser<T>(kind: string, body: unknown, { onProgress, onPartial }: Hearing<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const worker = workerOf();
    const finish = (settle: () => void) => {
      worker.terminate();
      settle();
    };
    signal.addEventListener("abort", () => finish(() => reject(signal.reason)));
    worker.addEventListener("message", (event: MessageEvent<string | (Progress & { partial: T | null })>) => {
      const said = event.data;
      if (typeof said !== "string") {
        onProgress(said);
        if (said.partial) onPartial?.(said.partial);
        return;
      }
      const found = JSON.parse(said) as T & { error?: { message: string } };
      finish(() => (found.error ? reject(new Refusal(found.error.message)) : resolve(found)));
    });
    worker.postMessage({ kind, body: JSON.stringify(body) });
  });
}
