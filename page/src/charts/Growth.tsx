// How a GPU fills as requests are added, or how many requests stay as they get longer.

import { max } from "d3-array";
import { scaleLinear, scaleLog } from "d3-scale";
import { area, line, stack } from "d3-shape";
import type { Fit, SweepPoint } from "../api";
import { rough, tokens, whole } from "../format";
import type { Say, Word } from "../words";
import { Chart, HEIGHT, MARGIN, thinned, ticksFor } from "./Chart";

const GIB = 2 ** 30;
const LAYERS = [
  ["other_bytes", "other", "other"],
  ["weights_bytes", "weights", "seg_weights"],
  ["activation_bytes", "activation", "seg_activation"],
  ["kv_used_bytes", "kv", "kvUsed"],
] as const satisfies readonly (readonly [keyof SweepPoint, string, Word])[];

interface Props {
  fit: Fit;
  points: SweepPoint[];
  width: number;
  say: Say;
}

export function GrowthByConcurrency({ fit, points, width, say }: Props) {
  const values = points.map((point) => point.value);
  const total = (fit.ranks[0]?.total_bytes ?? 0) / GIB;
  const top = max(points, (point) => point.in_use_bytes / GIB) ?? 1;
  const x = scaleLog([Math.max(1, Math.min(...values)), Math.max(...values, 2)], [MARGIN.left, width - MARGIN.right]);
  const y = scaleLinear([0, Math.max(top, total) * 1.08], [HEIGHT - MARGIN.bottom, MARGIN.top]);
  const layers = stack<SweepPoint>()
    .keys(LAYERS.map(([key]) => key))
    .value((point, key) => Number(point[key as keyof SweepPoint]) / GIB)(points);
  const filled = area<{ data: SweepPoint; 0: number; 1: number }>()
    .x((item) => x(item.data.value))
    .y0((item) => y(item[0]))
    .y1((item) => y(item[1]));
  const held = fit.requests_running;
  const ends = points[0] && held >= points[0].value && held < (values.at(-1) ?? 0);
  return (
    <Chart id="growth-chart" width={width} title={say("inUse")} x={x} y={y} xTicks={thinned(values.filter((value) => Number.isInteger(Math.log2(value))), ticksFor(width))} yTicks={y.ticks(5)} xShown={tokens} yShown={rough} xLabel={say("concurrency")} yLabel={say("inUse")}>
      {layers.map((layer, index) => (
        <path key={layer.key} class={`seg-${LAYERS[index]?.[1]}`} d={filled(layer as never) ?? ""}>
          <title>{say(LAYERS[index]?.[2] ?? "other")}</title>
        </path>
      ))}
      <Across at={y(total)} width={width} text={`${say("gpuMemory")} ${rough(total)} GiB`} />
      {ends && <Down at={x(Math.max(1, held))} width={width} text={`${say("poolFull")}: ${whole(held)}`} />}
    </Chart>
  );
}

export function GrowthByContext({ fit, points, width, say }: Props) {
  const starting = points.filter((point) => point.starts);
  const values = points.map((point) => point.value);
  const top = max(starting, (point) => point.requests_running) ?? 1;
  const x = scaleLog([Math.min(...values), Math.max(...values)], [MARGIN.left, width - MARGIN.right]);
  const y = scaleLog([0.8, Math.max(2, top) * 1.3], [HEIGHT - MARGIN.bottom, MARGIN.top]);
  const drawn = line<SweepPoint>()
    .x((point) => x(point.value))
    .y((point) => y(Math.max(0.8, point.requests_running)));
  const asked = fit.concurrency_asked ?? 1;
  const longest = fit.max_model_len_that_fits;
  return (
    <Chart id="growth-chart" width={width} title={say("heldAtOnce")} x={x} y={y} xTicks={thinned(values, ticksFor(width))} yTicks={y.ticks(4).filter((tick) => Number.isInteger(Math.log10(tick)) || top < 10)} xShown={tokens} yShown={whole} xLabel={`${say("context")}, ${say("tokensUnit")}`} yLabel={say("heldAtOnce")}>
      <path class="curve" d={drawn(starting) ?? ""} />
      {starting.map((point) => (
        <circle key={point.value} class="point" cx={x(point.value)} cy={y(Math.max(0.8, point.requests_running))} r="3.5">
          <title>{`${tokens(point.value)}: ${whole(point.requests_running)}`}</title>
        </circle>
      ))}
      {asked > 1 && asked <= top * 1.3 && <Across at={y(asked)} width={width} text={`${say("asked")}: ${whole(asked)}`} />}
      {longest > 0 && longest < (values.at(-1) ?? 0) && <Down at={x(longest)} width={width} text={`${say("longest")}: ${tokens(longest)}`} />}
    </Chart>
  );
}

interface LimitProps {
  at: number;
  width: number;
  text: string;
}

function Across({ at, width, text }: LimitProps) {
  return (
    <g>
      <line class="limit" x1={MARGIN.left} x2={width - MARGIN.right} y1={at} y2={at} />
      <text class="limit-label" x={MARGIN.left + 6} y={at - 5}>
        {text}
      </text>
    </g>
  );
}

function Down({ at, width, text }: LimitProps) {
  const left = at > width / 2;
  return (
    <g>
      <line class="limit" x1={at} x2={at} y1={MARGIN.top} y2={HEIGHT - MARGIN.bottom} />
      <text class="limit-label" x={left ? at - 6 : at + 6} y={MARGIN.top + 30} text-anchor={left ? "end" : "start"}>
        {text}
      </text>
    </g>
  );
}

export function GrowthLegend({ say }: { say: Say }) {
  return (
    <ul class="keys">
      {[...LAYERS].reverse().map(([, name, word]) => (
        <li key={name}>
          <i class={`swatch seg-${name}`} aria-hidden="true" />
          {say(word)}
        </li>
      ))}
    </ul>
  );
}
