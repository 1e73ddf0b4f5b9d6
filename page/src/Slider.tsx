// A slider over round numbers, with a field beside it for any other.

import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  label: string;
  hint?: string;
  unit?: string;
  /** What to say of text that is no number. */
  invalid: string;
  value: number;
  stops: number[];
  shown: (value: number) => string;
  onChange: (value: number) => void;
}

export function Slider({ label, hint, unit, invalid, value, stops, shown, onChange }: Props) {
  const id = useId();
  const [typed, setTyped] = useState<string | null>(null);
  const [wrong, setWrong] = useState(false);
  const position = stops.reduce(
    (best, stop, index) =>
      Math.abs(Math.log(stop / value)) < Math.abs(Math.log((stops[best] ?? 1) / value)) ? index : best,
    0,
  );
  const field = useRef<HTMLInputElement>(null);
  const editing = typed !== null;
  useLayoutEffect(() => {
    if (editing) field.current?.select();
  }, [editing]);
  const drop = () => {
    setTyped(null);
    setWrong(false);
  };
  const commit = () => {
    if (typed === null) return;
    const count = parsed(typed);
    if (count === null) return setWrong(true);
    onChange(count);
    drop();
  };
  return (
    <div class="field slider">
      <label for={id} title={hint}>
        {label}
      </label>
      <input
        class="number"
        type="text"
        inputMode="numeric"
        aria-label={unit ? `${label}, ${unit}` : label}
        value={typed ?? shown(value)}
        aria-invalid={wrong}
        title={wrong ? invalid : undefined}
        ref={field}
        onFocus={() => typed === null && setTyped(String(value))}
        onClick={(event) => event.currentTarget.select()}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onBlur={commit}
        onKeyDown={(event) => {
          if (event.key === "Enter") event.currentTarget.blur();
          if (event.key === "Escape") drop();
        }}
      />
      <input
        id={id}
        type="range"
        min={0}
        max={stops.length - 1}
        step={1}
        value={position}
        aria-valuetext={unit ? `${shown(value)} ${unit}` : shown(value)}
        onInput={(event) => {
          drop();
          onChange(stops[Number(event.currentTarget.value)] ?? value);
        }}
      />
      {wrong && (
        <p class="refusal" role="alert">
          {invalid}
        </p>
      )}
    </div>
  );
}

/** `8192`, `8k`, `1m`; null for anything else. */
function parsed(text: string): number | null {
  const found = /^\s*(\d[\d,_ ]*(?:\.\d+)?)\s*([km]?)\s*$/i.exec(text);
  if (!found) return null;
  const unit = { "": 1, k: 1024, m: 2 ** 20 }[(found[2] ?? "").toLowerCase()] ?? 1;
  const count = Math.round(Number((found[1] ?? "").replace(/[,_ ]/g, "")) * unit);
  return count >= 1 && count <= 2 ** 30 ? count : null;
}

/** 1, 1.5, 2, 3, 4, 6, ... times `unit`, from `low` to `high`. */
export function roundNumbers(low: number, high: number): number[] {
  const found: number[] = [];
  for (let power = low; power <= high; power *= 2) {
    found.push(power);
    const between = power * 1.5;
    if (Number.isInteger(between) && between <= high) found.push(between);
  }
  return found;
}
