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
  free: Place;
  /** Where the label of the pool ends. */
  poolLabel: number;
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

interface Shares {
  weights: number;
  other: number;
  free: number;
  otherBytes: number;
}

/** Shares of the GPU that all but the pool takes, which is drawn wide enough to be looked into. */
function sharesOf(fit: Fit): Shares {
  const rank = governing(fit);
  const free = Math.max(0, rank.free_bytes);
  const otherBytes = Math.max(0, rank.total_bytes - rank.weights_bytes - rank.kv_pool_bytes - free);
  const beside = rank.weights_bytes + otherBytes + free;
  const scale = Math.min(1 / rank.total_bytes, (1 - LEAST_POOL) / Math.max(1, beside));
  return { weights: rank.weights_bytes * scale, other: otherBytes * scale, free: free * scale, otherBytes };
}

function beside(width: number, fit: Fit, crowd: number): Layout {
  const height = 300;
  const shares = sharesOf(fit);
  const queueWidth = Math.round(Math.min(190, width * 0.22));
  const gpu = { x: queueWidth + 14, y: TOP, width: width - queueWidth - 16, height: height - TOP - 4 };
  const weights = { ...gpu, width: gpu.width * shares.weights };
  const other = { ...gpu, x: weights.x + weights.width, width: gpu.width * shares.other };
  const free = { ...gpu, x: gpu.x + gpu.width * (1 - shares.free), width: gpu.width * shares.free };
  const pool = { ...gpu, x: other.x + other.width, width: free.x - other.x - other.width };
  const box = { x: 0, y: TOP, width: queueWidth, height: gpu.height };
  const rows = Math.floor((box.height - 20) / STEP);
  const columns = Math.floor(box.width / STEP);
  const places = grid(rows * columns, (index) => ({
    x: box.x + box.width - (Math.floor(index / rows) + 1) * STEP,
    y: box.y + (index % rows) * STEP,
  }));
  const gateX = queueWidth + 6;
  return {
    ...{ width, height, gpu, weights, other, pool, free, otherBytes: shares.otherBytes },
    queue: { box, places, size: QUEUED, more: { x: box.x, y: box.y + box.height - 2 } },
    poolLabel: pool.x + pool.width,
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
  const lowest = gpu.y + gpu.height * (1 - shares.free);
  const free = { ...gpu, y: lowest, height: gpu.height * shares.free };
  const pool = { ...gpu, y: other.y + other.height, height: lowest - other.y - other.height };
  const columns = Math.floor((box.width - 50) / STEP);
  const places = grid(columns * 4, (index) => ({
    x: box.x + Math.floor(index / 4) * STEP,
    y: box.y + box.height - ((index % 4) + 1) * STEP,
  }));
  const gateY = box.y + box.height + 6;
  return {
    ...{ width, height, gpu, weights, other, pool, free, otherBytes: shares.otherBytes },
    queue: { box, places, size: QUEUED, more: { x: width - 44, y: box.y + box.height - 4 } },
    poolLabel: gpu.x + gpu.width,
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
