// Which cells of the drawn KV pool each request holds over time, handed out as an engine hands out
// blocks: where the last one ended if that is free, else the first that is.

import type { Parked, Scene } from "./scene";

/** One stay in the pool: its cells in the order in which it got them, and when. */
export interface Lot {
  cells: number[];
  from: number[];
}

export interface Parking {
  /** By request and the time at which it came in. */
  lots: Map<string, Lot>;
  cellTokens: number;
}

interface Step {
  seconds: number;
  lot: Lot;
  /** Cells it is to have from then on; 0 gives all back. */
  wanted: number;
}

export const lotName = (id: number, since: number): string => `${id} ${since}`;

/** Cells that are as small as lets all requests of a run park in so many of them at any time. */
export function parkingOf(scene: Scene, poolTokens: number, cells: number): Parking {
  for (let cellTokens = Math.max(1, poolTokens / cells); ; cellTokens *= 1.02) {
    const lots = new Map<string, Lot>();
    if (park(stepsOf(scene, cellTokens, lots), cells)) return { lots, cellTokens };
  }
}

function stepsOf(scene: Scene, cellTokens: number, lots: Map<string, Lot>): Step[] {
  const steps: Step[] = [];
  for (const { stay, parked } of scene.ways) {
    let lot: Lot = { cells: [], from: [] };
    let wanted = 0;
    for (const piece of parked) {
      if (piece.enters) {
        lot = { cells: [], from: [] };
        wanted = 0;
        lots.set(lotName(stay.id, piece.start), lot);
      }
      const last = Math.max(1, Math.ceil(piece.toTokens / cellTokens - 1e-9));
      while (wanted < last) {
        steps.push({ seconds: reached(piece, wanted * cellTokens), lot, wanted: wanted + 1 });
        wanted++;
      }
      if (piece.leaves) steps.push({ seconds: piece.end, lot, wanted: 0 });
    }
  }
  return steps.sort((one, two) => one.seconds - two.seconds || one.wanted - two.wanted);
}

/** When a piece holds more than so many tokens. */
function reached(piece: Parked, tokens: number): number {
  const grown = piece.toTokens - piece.fromTokens;
  const share = grown > 0 ? Math.max(0, (tokens - piece.fromTokens) / grown) : 0;
  return piece.start + share * (piece.end - piece.start);
}

/** Hand out cells; false when there are too few. */
function park(steps: Step[], count: number): boolean {
  const taken = new Uint8Array(count);
  let held = 0;
  for (const { seconds, lot, wanted } of steps) {
    if (!wanted) {
      for (const cell of lot.cells) taken[cell] = 0;
      held -= lot.cells.length;
      continue;
    }
    if (held === count) return false;
    const next = (lot.cells.at(-1) ?? -2) + 1;
    const cell = next > 0 && next < count && !taken[next] ? next : taken.indexOf(0);
    taken[cell] = 1;
    held++;
    lot.cells.push(cell);
    lot.from.push(seconds);
  }
  return true;
}
