// Where the parts of the moving picture lie: side by side, or below each other on a phone.

import type { Fit } from "../api";
import { governing } from "../MemoryBar";

export interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

interface Point {
  x: number;
  y: number;
}

export interface Layout {
  width: number;
  height: number;
  queue: { box: Place; places: Point[]; size: number; more: Point };
  gate: { x1: number; y1: number; x2: number; y2: number };
  gpu: Place;
  weights: Place;
  other: Place;
  otherBytes: number;
  pool: Place;
  cells: { size: number; columns: number; count: number; at: (index: number) => Point };
  /** Where requests come in. */
  from: Point;
  /** Where they go out. */
  exit: { horizontal: boolean; at: number };
  /** The bar that shows how full the pool is: its ground, and the part that is held. */
  level: (share: number) => Place[];
}

const NARROW = 600;
const TOP = 22;
const QUEUED = 10;
const STEP = 14;
const LEAST_POOL = 0.45; // of the GPU's width, so that requests can be told apart
const LEVEL = 8;
const LARGEST_CELL = 9;
const SMALLEST_CELL = 3; // enough for the 2,000 requests that are drawn at most
const CELLS_EACH = 3;

export function layoutOf(width: number, fit: Fit, crowd: number): Layout {
  return width < NARROW ? below(width, fit, crowd) : beside(width, fit, crowd);
}

/** Shares of the GPU that weights and all else but the pool take, and the rest's bytes. */
function sharesOf(fit: Fit): { weights: number; other: number; otherBytes: number } {
  const rank = governing(fit);
  const otherBytes = Math.max(0, rank.total_bytes - rank.weights_bytes - rank.kv_pool_bytes);
  const fixed = (rank.weights_bytes + otherBytes) / rank.total_bytes;
  const scale = Math.min(1, (1 - LEAST_POOL) / fixed) / rank.total_bytes;
  return { weights: rank.weights_bytes * scale, other: otherBytes * scale, otherBytes };
}

function beside(width: number, fit: Fit, crowd: number): Layout {
  const height = 300;
  const shares = sharesOf(fit);
  const queueWidth = Math.round(Math.min(190, width * 0.22));
  const gpu = { x: queueWidth + 14, y: TOP, width: width - queueWidth - 16, height: height - TOP - 4 };
  const weights = { ...gpu, width: gpu.width * shares.weights };
  const other = { ...gpu, x: weights.x + weights.width, width: gpu.width * shares.other };
  const pool = { ...gpu, x: other.x + other.width, width: gpu.x + gpu.width - other.x - other.width };
  const box = { x: 0, y: TOP, width: queueWidth, height: gpu.height };
  const rows = Math.floor((box.height - 20) / STEP);
  const columns = Math.floor(box.width / STEP);
  const places = grid(rows * columns, (index) => ({
    x: box.x + box.width - (Math.floor(index / rows) + 1) * STEP,
    y: box.y + (index % rows) * STEP,
  }));
  const gateX = queueWidth + 6;
  return {
    ...{ width, height, gpu, weights, other, pool, otherBytes: shares.otherBytes },
    queue: { box, places, size: QUEUED, more: { x: box.x, y: box.y + box.height - 2 } },
    gate: { x1: gateX, x2: gateX, y1: TOP, y2: TOP + gpu.height },
    from: { x: gateX, y: TOP + gpu.height / 2 },
    exit: { horizontal: true, at: width + 10 },
    level: levelOf(pool),
    cells: cellsOf(pool, crowd),
  };
}

function below(width: number, fit: Fit, crowd: number): Layout {
  const height = 430;
  const shares = sharesOf(fit);
  const box = { x: 0, y: TOP, width, height: STEP * 4 };
  const top = box.y + box.height + 34;
  const gpu = { x: 1, y: top, width: width - 2, height: height - top - 4 };
  const weights = { ...gpu, height: Math.max(24, gpu.height * shares.weights) };
  const other = { ...gpu, y: weights.y + weights.height, height: gpu.height * shares.other };
  const pool = { ...gpu, y: other.y + other.height, height: gpu.y + gpu.height - other.y - other.height };
  const columns = Math.floor((box.width - 50) / STEP);
  const places = grid(columns * 4, (index) => ({
    x: box.x + Math.floor(index / 4) * STEP,
    y: box.y + box.height - ((index % 4) + 1) * STEP,
  }));
  const gateY = box.y + box.height + 6;
  return {
    ...{ width, height, gpu, weights, other, pool, otherBytes: shares.otherBytes },
    queue: { box, places, size: QUEUED, more: { x: width - 44, y: box.y + box.height - 4 } },
    gate: { x1: 0, x2: width, y1: gateY, y2: gateY },
    from: { x: width / 2, y: gateY },
    exit: { horizontal: false, at: height + 10 },
    level: levelOf(pool),
    cells: cellsOf(pool, crowd),
  };
}

const grid = (count: number, at: (index: number) => Point): Point[] => Array.from({ length: count }, (_, index) => at(index));

const levelOf = (pool: Place) => (share: number): Place[] => [
  { ...pool, height: LEVEL },
  { ...pool, height: LEVEL, width: pool.width * Math.min(1, share) },
];

/**
 * Cells of one size, row by row, every other row backwards so that neighbours stay neighbours; so
 * small that each of so many requests has a few.
 */
function cellsOf(pool: Place, crowd: number): Layout["cells"] {
  const inside = { width: Math.max(1, pool.width - 4), height: Math.max(1, pool.height - LEVEL - 5) };
  let size = LARGEST_CELL;
  while (size > SMALLEST_CELL && Math.floor(inside.width / size) * Math.floor(inside.height / size) < CELLS_EACH * crowd) size--;
  const columns = Math.max(1, Math.floor(inside.width / size));
  const rows = Math.max(1, Math.floor(inside.height / size));
  const x = pool.x + (pool.width - columns * size) / 2;
  const at = (index: number) => {
    const row = Math.floor(index / columns);
    const place = index % columns;
    return { x: x + (row % 2 ? columns - 1 - place : place) * size, y: pool.y + LEVEL + 3 + row * size };
  };
  return { size, columns, count: columns * rows, at };
}
