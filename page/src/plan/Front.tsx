// What is worth its cost: each plan as a point, those that were simulated filled and numbered.

import { max } from "d3-array";
import { scaleLinear } from "d3-scale";
import { useState } from "preact/hooks";
import { Chart, HEIGHT, MARGIN, ticksFor, useWidth } from "../charts/Chart";
import { rough, seconds } from "../format";
import { Switch } from "../Switch";
import { keyOf, type Plan, promisedOf, type Proposal } from "./plan";
import type { PlanSay, PlanWord } from "./words";

interface Point {
  one: Proposal;
  /** Its place among the plans; 0 for one that was not simulated. */
  place: number;
  x: number;
  y: number;
}

const ACROSS = ["tpot", "ttft", "throughput"];
const MOST_OPEN = 150; // further ones would only be a cloud

interface Props {
  plan: Plan;
  chosen: string;
  told: PlanSay;
  onChoose: (key: string) => void;
}

export function Front({ plan, chosen, told, onChoose }: Props) {
  const [place, width] = useWidth();
  const [across, setAcross] = useState("tpot");
  const priced = plan.plans.some((one) => one.usd_per_hour !== null);
  const [wanted, setUp] = useState("cost");
  const up = priced ? wanted : "gpus";
  const { demand } = plan;
  const worth = (one: Proposal) => (up === "cost" ? one.usd_per_hour : one.gpus);
  const points: Point[] = [
    ...plan.untried.slice(0, MOST_OPEN).map((one) => ({ one, place: 0, x: means(one)[across], y: worth(one) })),
    ...plan.plans.map((one, index) => {
      const found = { tpot: promisedOf(one.simulated.tpot, demand), ttft: promisedOf(one.simulated.ttft, demand), throughput: one.output_tokens_per_second };
      return { one, place: index + 1, x: found[across as keyof typeof found], y: worth(one) };
    }),
  ].filter((point): point is Point => typeof point.x === "number" && typeof point.y === "number");
  if (!points.length) return null;
  const promised = across === "tpot" ? demand.tpot_seconds : across === "ttft" ? demand.ttft_seconds : null;
  const furthest = max(points, ({ x }) => x) ?? 1;
  const x = scaleLinear([0, Math.max(furthest, promised && promised < furthest * 3 ? promised : 0) * 1.08], [MARGIN.left, width - MARGIN.right]);
  const y = scaleLinear([0, (max(points, (point) => point.y) ?? 1) * 1.12], [HEIGHT - MARGIN.bottom, MARGIN.top]).nice();
  const shown = across === "throughput" ? rough : seconds;
  const name = (axis: string) => told(`axis_${axis}` as PlanWord);
  const statistic = across === "throughput" || demand.statistic === "mean" ? "" : ` (${demand.statistic})`;
  return (
    <section class="front" aria-label={told("frontTitle")}>
      <div class="above">
        <Switch name="across" legend={told("across")} values={ACROSS} chosen={across} shown={name} onChange={setAcross} />
        {priced && <Switch name="up" legend={told("up")} values={["cost", "gpus"]} chosen={up} shown={name} onChange={setUp} />}
        <ul class="keys">
          <li><i class="dot" aria-hidden="true" />{told("verified")}</li>
          {plan.untried.length > 0 && <li><i class="dot open" aria-hidden="true" />{told("notTried")}</li>}
        </ul>
      </div>
      <div ref={place}>
        {width > 0 && (
          <Chart id="front-chart" width={width} title={told("frontTitle")} x={x} y={y} xTicks={x.ticks(ticksFor(width))} yTicks={y.ticks(5).filter((tick) => up === "cost" || Number.isInteger(tick))} xShown={shown} yShown={rough} xLabel={`${name(across)}${statistic}`} yLabel={name(up)}>
            {promised !== null && x(promised) <= width - MARGIN.right && (
              <g>
                <line class="limit" x1={x(promised)} x2={x(promised)} y1={MARGIN.top} y2={HEIGHT - MARGIN.bottom} />
                <text class="limit-label" x={x(promised) - 6} y={MARGIN.top + 10} text-anchor="end">{`${told("promise")}: ${seconds(promised)}`}</text>
              </g>
            )}
            {points.map(({ one, place: number, x: at, y: value }) => {
              const key = keyOf(one);
              return (
                <g key={key} class={`front-point${number ? "" : " open"}${key === chosen ? " chosen" : ""}`} onClick={() => number && onChoose(key)}>
                  <circle cx={x(at)} cy={y(value)} r={number ? 8.5 : 3.5}>
                    <title>{`${one.name}: ${shown(at)}, ${up === "cost" ? `$${rough(value)}` : rough(value)}`}</title>
                  </circle>
                  {number > 0 && <text x={x(at)} y={y(value) + 3.8} text-anchor="middle">{number}</text>}
                </g>
              );
            })}
          </Chart>
        )}
      </div>
    </section>
  );
}

const means = (one: Proposal): Record<string, number | null> => ({
  tpot: one.mean_tpot_seconds,
  ttft: one.mean_ttft_seconds,
  throughput: one.output_tokens_per_second,
});
