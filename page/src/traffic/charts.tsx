// A run over time, and how its latencies are distributed.

import { max } from "d3-array";
import { scaleLinear, scaleLog } from "d3-scale";
import { area, curveStepAfter, line } from "d3-shape";
import { useMemo } from "preact/hooks";
import { Chart, HEIGHT, MARGIN, ticksFor, useWidth } from "../charts/Chart";
import { percent, rough, seconds as shownSeconds } from "../format";
import type { Say } from "../words";
import { type Column, columnsOf } from "./scene";
import type { Served } from "./simulation";

interface Props {
  served: Served;
  say: Say;
}

interface TimedProps extends Props {
  /** The moment that the moving picture shows. */
  now: number;
}

const BOTTOM = HEIGHT - MARGIN.bottom;
const PIXELS = 3; // of a column

/** Seconds, minutes or hours: what the end of a run is told in. */
function unitOf(end: number): { size: number; word: "inSeconds" | "inMinutes" | "inHours" } {
  if (end < 300) return { size: 1, word: "inSeconds" };
  return end < 4 * 3600 ? { size: 60, word: "inMinutes" } : { size: 3600, word: "inHours" };
}

/** What all charts over time have in common. */
function useTime(served: Served, say: Say, now: number) {
  const { frames } = served.playback;
  const end = frames.at(-1)?.[0] ?? 0;
  const [place, width] = useWidth();
  const count = Math.max(2, Math.floor((width - MARGIN.left - MARGIN.right) / PIXELS));
  const columns = useMemo(() => columnsOf(frames, count), [frames, count]);
  const { size, word } = unitOf(end);
  const x = scaleLinear([0, end / size || 1], [MARGIN.left, width - MARGIN.right]);
  const at = (column: Column) => x((column.seconds - end / columns.length / 2) / size);
  const axis = { width, x, xTicks: x.ticks(ticksFor(width)), xShown: rough, xLabel: say(word) };
  const cursor = <line class="cursor" x1={x(now / size)} x2={x(now / size)} y1={MARGIN.top} y2={BOTTOM} />;
  return { place, columns, at, axis, cursor };
}

export function UsageOverTime({ served, say, now }: TimedProps) {
  const { place, columns, at, axis, cursor } = useTime(served, say, now);
  const y = scaleLinear([0, 1], [BOTTOM, MARGIN.top]);
  const held = area<Column>().x(at).y0(BOTTOM).y1((column) => y(column.usage)).curve(curveStepAfter);
  return (
    <div ref={place}>
      {axis.width > 0 && (
        <Chart id="usage-chart" title={say("kvOverTime")} {...axis} y={y} yTicks={[0, 0.25, 0.5, 0.75, 1]} yShown={percent} yLabel={say("kvOverTime")}>
          <path class="seg-kv" d={held(columns) ?? ""} />
          {cursor}
        </Chart>
      )}
    </div>
  );
}

export function RequestsOverTime({ served, say, now }: TimedProps) {
  const { place, columns, at, axis, cursor } = useTime(served, say, now);
  const top = max(columns, (column) => Math.max(column.running, column.waiting)) ?? 1;
  const y = scaleLinear([0, Math.max(1, top) * 1.08], [BOTTOM, MARGIN.top]).nice();
  const curve = (of: "running" | "waiting") =>
    line<Column>().x(at).y((column) => y(column[of])).curve(curveStepAfter)(columns) ?? "";
  return (
    <div ref={place}>
      {axis.width > 0 && (
        <Chart id="requests-chart" title={`${say("running")}, ${say("waiting")}`} {...axis} y={y} yTicks={y.ticks(5)} yShown={rough} yLabel={`${say("requestsUnit")}: ── ${say("running")}, ┄┄ ${say("waiting")}`}>
          <path class="curve" d={curve("running")} />
          <path class="curve dashed" d={curve("waiting")} />
          {cursor}
        </Chart>
      )}
    </div>
  );
}

const SHOWN = [
  // where the label stands: the share, and the side of the curve
  ["ttft", "TTFT", "", 80, "end"],
  ["tpot", "TPOT", "dashed", 50, "start"],
  ["e2e", "E2E", "dotted", 20, "start"],
] as const;
const LABEL = 40; // pixels that a label takes

export function Latencies({ served, say }: Props) {
  const [place, width] = useWidth();
  const { quantiles } = served.playback;
  const all = SHOWN.flatMap(([name]) => quantiles[name]).filter((value) => value > 0);
  const x = scaleLog([Math.min(...all) * 0.9, Math.max(...all) * 1.1], [MARGIN.left, width - MARGIN.right]);
  const y = scaleLinear([0, 1], [BOTTOM, MARGIN.top]);
  const powers = x.ticks().filter((tick) => Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-9);
  const ticks = powers.length > 1 ? powers : x.ticks(4);
  const drawn = (values: number[]) =>
    line<number>().x((value) => x(Math.max(value, x.domain()[0] ?? value))).y((_, index) => y(index / (values.length - 1)))(values) ?? "";
  return (
    <div ref={place}>
      {width > 0 && all.length > 0 && (
        <Chart id="latency-chart" title={say("latencyShare")} width={width} x={x} y={y} xTicks={ticks} yTicks={[0, 0.25, 0.5, 0.75, 1]} xShown={shownSeconds} yShown={percent} xLabel={say("latency")} yLabel={say("latencyShare")}>
          {SHOWN.filter(([name]) => quantiles[name].length > 1).map(([name, title, style, share, side]) => {
            const values = quantiles[name];
            const at = x(values[share] ?? 1);
            const before = at - MARGIN.left < LABEL ? false : side === "end" || width - MARGIN.right - at < LABEL;
            return (
              <g key={name}>
                <path class={`curve ${style}`} d={drawn(values)}>
                  <title>{title}</title>
                </path>
                <text class="limit-label" x={at + (before ? -7 : 7)} y={y(share / 100) + 4} text-anchor={before ? "end" : "start"}>
                  {title}
                </text>
              </g>
            );
          })}
        </Chart>
      )}
    </div>
  );
}
