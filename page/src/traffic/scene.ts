// Where every request stands at a moment of a run: a pure function of the time, so that a picture
// may be scrubbed both ways.

import type { Frame, Playback, Stay } from "./simulation";

export type Kind = "prefill" | "decode";

/** A request in the KV pool from one time to another, its KV growing evenly. */
export interface Parked {
  start: number;
  end: number;
  kind: Kind;
  fromTokens: number;
  toTokens: number;
  /** It came in at the start; else it goes on from the piece before. */
  enters: boolean;
  leaves: "done" | "preempted" | null;
}

/** A request outside of the pool from one time to another. */
interface Outside {
  start: number;
  end: number;
  preempted: boolean;
}

export interface Way {
  stay: Stay;
  parked: Parked[];
  outside: Outside[];
}

export interface Scene {
  ways: Way[];
  frames: Frame[];
  seconds: number;
  /** The most requests that are in the pool at once, of those that are drawn. */
  crowd: number;
}

export interface Block {
  id: number;
  kind: Kind;
  tokens: number;
  /** When it came in. */
  since: number;
  /** How often it was sent out before. */
  preempted: number;
  /** How far it has come in, and gone out, from 0 to 1. */
  entered: number;
  left: number;
  leaves: "done" | "preempted" | null;
}

export interface Waiting {
  id: number;
  preempted: boolean;
}

export interface Moment {
  seconds: number;
  frame: Frame;
  blocks: Block[];
  queue: Waiting[];
}

/** Everything that is drawn of a run, worked out once. */
export function sceneOf(playback: Playback): Scene {
  const ways = playback.requests.filter((stay) => stay.refused === null).map(wayOf);
  return { ways, frames: playback.frames, seconds: playback.frames.at(-1)?.[0] ?? 0, crowd: crowdOf(ways) };
}

function crowdOf(ways: Way[]): number {
  const changes = ways.flatMap(({ parked }) =>
    parked.flatMap((piece): [number, number][] => [
      ...(piece.enters ? ([[piece.start, 1]] as [number, number][]) : []),
      ...(piece.leaves ? ([[piece.end, -1]] as [number, number][]) : []),
    ]),
  );
  changes.sort((one, two) => one[0] - two[0] || one[1] - two[1]);
  let now = 0;
  let most = 1;
  for (const [, change] of changes) {
    now += change;
    most = Math.max(most, now);
  }
  return most;
}

function wayOf(stay: Stay): Way {
  const outside: Outside[] = [{ start: stay.arrival_seconds, end: stay.scheduled_seconds, preempted: false }];
  const edges: [number, number][] = [];
  let from = stay.scheduled_seconds;
  for (const [out, back] of stay.pauses) {
    edges.push([from, out]);
    outside.push({ start: out, end: back, preempted: true });
    from = back;
  }
  edges.push([from, stay.finish_seconds]);
  const decoding = edges.reduce((sum, [start, end]) => sum + Math.max(0, end - Math.max(start, stay.first_token_seconds)), 0);
  const parked: Parked[] = [];
  let out = 0; // seconds of decoding so far
  edges.forEach(([start, end], index) => {
    const leaves = index < edges.length - 1 ? "preempted" : "done";
    const firstToken = Math.min(end, Math.max(start, stay.first_token_seconds));
    const tokensAt = (seconds: number) => stay.prompt_tokens + (decoding > 0 ? (stay.output_tokens * seconds) / decoding : stay.output_tokens);
    const prefills = start < stay.first_token_seconds;
    if (prefills) {
      const whole = end >= stay.first_token_seconds;
      const share = whole ? 1 : Math.min(1, (end - start) / Math.max(1e-9, stay.first_token_seconds - start));
      const cached = index === 0 ? stay.cached_tokens : 0;
      parked.push({
        ...{ start, end: firstToken, kind: "prefill", enters: true },
        fromTokens: cached,
        toTokens: cached + (stay.prompt_tokens - cached) * share,
        leaves: whole && end > firstToken ? null : leaves,
      });
    }
    if (end > firstToken) {
      const later = out + (end - firstToken);
      parked.push({
        ...{ start: firstToken, end, kind: "decode", enters: !prefills, leaves },
        fromTokens: tokensAt(out),
        toTokens: tokensAt(later),
      });
      out = later;
    }
  });
  return { stay, parked, outside };
}

/** The frame that holds at a time. */
export function frameAt(frames: Frame[], seconds: number): Frame {
  let low = 0;
  let high = frames.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((frames[middle]?.[0] ?? 0) <= seconds) low = middle;
    else high = middle - 1;
  }
  return frames[low] ?? [0, 0, 0, 0];
}

/**
 * The picture of a moment. `glide` is how many seconds of the run coming in and going out take;
 * 0 for at once.
 */
export function momentOf(scene: Scene, seconds: number, glide: number): Moment {
  const blocks: Block[] = [];
  const queue: (Waiting & { since: number })[] = [];
  for (const { stay, parked, outside } of scene.ways) {
    if (seconds < stay.arrival_seconds || seconds > stay.finish_seconds + glide) continue;
    const preempted = stay.pauses.reduce((count, [out]) => count + Number(out <= seconds), 0);
    const gone = parked.find((piece) => piece.leaves !== null && piece.end <= seconds && seconds < piece.end + glide);
    const here = parked.find((piece) => piece.start <= seconds && seconds < piece.end);
    if (here) {
      const first = here.enters ? here : (parked[parked.indexOf(here) - 1] ?? here);
      const share = (seconds - here.start) / Math.max(1e-9, here.end - here.start);
      blocks.push({
        ...{ id: stay.id, kind: here.kind, since: first.start, preempted, left: 0, leaves: null },
        tokens: here.fromTokens + (here.toTokens - here.fromTokens) * share,
        entered: glide > 0 ? Math.min(1, (seconds - first.start) / glide) : 1,
      });
      continue;
    }
    if (gone && glide > 0) {
      const first = gone.enters ? gone : (parked[parked.indexOf(gone) - 1] ?? gone);
      blocks.push({
        ...{ id: stay.id, kind: gone.kind, since: first.start, preempted, entered: 1, leaves: gone.leaves },
        tokens: gone.toTokens,
        left: (seconds - gone.end) / glide,
      });
      continue;
    }
    const waits = outside.find((piece) => piece.start <= seconds && seconds < piece.end);
    if (waits) queue.push({ id: stay.id, preempted: waits.preempted, since: waits.start });
  }
  queue.sort((one, two) => Number(two.preempted) - Number(one.preempted) || one.since - two.since);
  return { seconds, frame: frameAt(scene.frames, seconds), blocks, queue };
}

export interface Column {
  seconds: number;
  waiting: number;
  running: number;
  usage: number;
}

/** Means over stretches of equal length. */
export function columnsOf(frames: Frame[], count: number): Column[] {
  const end = frames.at(-1)?.[0] ?? 0;
  const each = end / count || 1;
  const columns = Array.from({ length: count }, (_, index) => ({ seconds: (index + 0.5) * each, waiting: 0, running: 0, usage: 0 }));
  frames.forEach(([from, waiting, running, usage], index) => {
    const to = frames[index + 1]?.[0] ?? end;
    for (let at = Math.min(count - 1, Math.floor(from / each)); at < count && at * each < to; at++) {
      const share = (Math.min(to, (at + 1) * each) - Math.max(from, at * each)) / each;
      const column = columns[at];
      if (!column || share <= 0) continue;
      column.waiting += waiting * share;
      column.running += running * share;
      column.usage += usage * share;
    }
  });
  return columns;
}
