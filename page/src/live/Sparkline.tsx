// A figure over the last minutes, small; gaps where nothing was seen.

import { extent } from "d3-array";
import { scaleLinear } from "d3-scale";
import { area, line } from "d3-shape";
import type { Point } from "./observation";

const WIDTH = 200;
const HEIGHT = 36;
const PAD = 2;

interface Props {
  points: Point[];
  /** Told to who does not see it. */
  label: string;
  /** What the top stands for at least. */
  top: number;
  /** A line that is drawn across. */
  mark?: number;
}

export function Sparkline({ points, label, top, mark }: Props) {
  const [start = 0, end = 1] = extent(points, ([time]) => time);
  const most = Math.max(top, ...points.map(([, value]) => value ?? 0));
  const x = scaleLinear([start, Math.max(end, start + 1)], [0, WIDTH]);
  const y = scaleLinear([0, most], [HEIGHT - PAD, PAD]);
  const known = ([, value]: Point) => value !== null;
  const at = ([time]: Point) => x(time);
  const height = ([, value]: Point) => y(value ?? 0);
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path class="spark-area" d={area<Point>().defined(known).x(at).y0(HEIGHT - PAD).y1(height)(points) ?? ""} />
      <path class="curve" d={line<Point>().defined(known).x(at).y(height)(points) ?? ""} />
      {mark !== undefined && <line class="limit" x1="0" x2={WIDTH} y1={y(mark)} y2={y(mark)} />}
    </svg>
  );
}
