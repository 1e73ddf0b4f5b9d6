// Axes around what a chart draws: gridlines, numbers, labels. Drawn at the width there is, so that
// letters keep their size.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ScaleContinuousNumeric } from "d3-scale";

export const HEIGHT = 264;
export const MARGIN = { left: 52, right: 14, top: 26, bottom: 38 };
const NARROWEST = 300;
const WIDEST = 1100;

export type Scale = ScaleContinuousNumeric<number, number>;

interface Props {
  id: string;
  title: string;
  width: number;
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
  const right = props.width - MARGIN.right;
  return (
    <svg id={props.id} class="chart" viewBox={`0 0 ${props.width} ${HEIGHT}`} width={props.width} height={HEIGHT} role="img" aria-label={props.title}>
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

/** The width that a place for a chart has, followed as it changes. */
export function useWidth(): [RefObject<HTMLDivElement>, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const observer = new ResizeObserver(() => {
      setWidth(Math.max(NARROWEST, Math.min(WIDEST, Math.floor(element.clientWidth))));
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [place, width];
}

/** How many numbers fit under an axis of that width. */
export const ticksFor = (width: number): number => Math.max(3, Math.floor(width / 90));
