// Axes around what a chart draws: gridlines, numbers, labels. Sizes are those of the view box.

import type { ComponentChildren } from "preact";
import type { ScaleContinuousNumeric } from "d3-scale";

export const WIDTH = 720;
export const HEIGHT = 280;
export const MARGIN = { left: 56, right: 16, top: 14, bottom: 40 };

export type Scale = ScaleContinuousNumeric<number, number>;

interface Props {
  id: string;
  title: string;
  x: Scale;
  y: Scale;
  xTicks: number[];
  yTicks: number[];
  xShown: (value: number) => string;
  yShown: (value: number) => string;
  xLabel: string;
  yLabel: string;
  children: ComponentChildren;
}

export function Chart(props: Props) {
  const { x, y } = props;
  const bottom = HEIGHT - MARGIN.bottom;
  const right = WIDTH - MARGIN.right;
  return (
    <svg id={props.id} class="chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={props.title}>
      {props.yTicks.map((tick) => (
        <g key={tick}>
          <line class="grid" x1={MARGIN.left} x2={right} y1={y(tick)} y2={y(tick)} />
          <text class="tick" x={MARGIN.left - 8} y={y(tick) + 4} text-anchor="end">
            {props.yShown(tick)}
          </text>
        </g>
      ))}
      {props.xTicks.map((tick) => (
        <text key={tick} class="tick" x={x(tick)} y={bottom + 16} text-anchor="middle">
          {props.xShown(tick)}
        </text>
      ))}
      <line class="axis" x1={MARGIN.left} x2={right} y1={bottom} y2={bottom} />
      <text class="axis-label" x={right} y={HEIGHT - 6} text-anchor="end">
        {props.xLabel}
      </text>
      <text class="axis-label" x={MARGIN.left} y={10}>
        {props.yLabel}
      </text>
      {props.children}
    </svg>
  );
}

/** Every so many values that about `most` are left, the last one among them. */
export function thinned(values: number[], most: number): number[] {
  const step = Math.ceil(values.length / most);
  return values.filter((_, index) => (values.length - 1 - index) % step === 0);
}
