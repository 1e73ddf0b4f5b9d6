// Throughput against what a user sees, one point a number of requests at once.

import { max } from "d3-array";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import type { Ranged, SpeedPoint } from "../api";
import { rough, whole } from "../format";
import type { Say } from "../words";
import { Chart, HEIGHT, MARGIN, ticksFor } from "./Chart";

interface Props {
  points: SpeedPoint[];
  asked: number;
  width: number;
  say: Say;
}

/** A point whose requests get more than one token, so that a client sees a rate. */
type Rated = SpeedPoint & { tokens_per_second_per_user: Ranged };

export function Pareto({ points: all, asked, width, say }: Props) {
  const points = all.filter((point): point is Rated => point.tokens_per_second_per_user !== null);
  const users = points.map((point) => point.tokens_per_second_per_user);
  const gpus = points.map((point) => point.output_tokens_per_second_per_gpu);
  const x = scaleLinear([0, (max(users, (range) => range.high) ?? 1) * 1.05], [MARGIN.left, width - MARGIN.right]).nice();
  const y = scaleLinear([0, (max(gpus, (range) => range.high) ?? 1) * 1.05], [HEIGHT - MARGIN.bottom, MARGIN.top]).nice();
  const path = line<Rated>()
    .x((point) => x(point.tokens_per_second_per_user.value))
    .y((point) => y(point.output_tokens_per_second_per_gpu.value));
  return (
    <Chart id="pareto-chart" width={width} title={say("speedY")} x={x} y={y} xTicks={x.ticks(ticksFor(width))} yTicks={y.ticks(5)} xShown={rough} yShown={rough} xLabel={say("speedX")} yLabel={say("speedY")}>
      {points.map((point) => {
        const user = point.tokens_per_second_per_user;
        const gpu = point.output_tokens_per_second_per_gpu;
        return (
          <g key={point.concurrency} class="whiskers">
            <line x1={x(user.low)} x2={x(user.high)} y1={y(gpu.value)} y2={y(gpu.value)} />
            <line x1={x(user.value)} x2={x(user.value)} y1={y(gpu.low)} y2={y(gpu.high)} />
          </g>
        );
      })}
      <path class="curve" d={path(points) ?? ""} />
      {points.map((point, index) => {
        const at = [x(point.tokens_per_second_per_user.value), y(point.output_tokens_per_second_per_gpu.value)] as const;
        const chosen = point.concurrency === asked;
        return (
          <g key={point.concurrency}>
            <circle class={chosen ? "point chosen" : "point"} cx={at[0]} cy={at[1]} r={chosen ? 6 : 3.5}>
              <title>{`${whole(point.concurrency)}: ${rough(point.output_tokens_per_second_per_gpu.value)} / ${rough(point.tokens_per_second_per_user.value)} tok/s`}</title>
            </circle>
            {(chosen || index % 3 === 0) && (
              <text class="tick" x={at[0] + 8} y={at[1] - 6}>
                {whole(point.concurrency)}
              </text>
            )}
          </g>
        );
      })}
    </Chart>
  );
}
