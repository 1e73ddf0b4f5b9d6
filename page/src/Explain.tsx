// The ledger line by line: formula, values, source. Opens over the page; Escape closes it.

import { useEffect, useRef } from "preact/hooks";
import type { Fit, Line, Speed } from "./api";
import { exactly, gib, rough, seconds, size } from "./format";
import { governing, poolRange } from "./MemoryBar";
import { named, type Say } from "./words";
import type { OperatorStep } from "./operators";

const KEYS: Record<string, string[]> = {
  activation: ["activation_peak", "compute buffer"],
  graphs: ["cuda_graphs"],
  reserve: ["non_torch", "libraries"],
  context: ["context", "driver"],
  weights: ["weights", "model buffers"],
  kv: ["kv_pool", "kv_cache", "KV buffer"],
  kv_request: ["kv_request", "kv_block", "kv_token", "kv_pool"],
  kv_available: ["kv_available", "token_budget", "kv_pool"],
  free: ["total", "free"],
  missing: ["kv_available", "total"],
};

interface Props {
  fit: Fit;
  speed: Speed | null;
  lines: Line[] | null;
  steps: OperatorStep[] | null;
  wanted: string;
  say: Say;
  onClose: () => void;
}

export function Explain({ fit, speed, lines, steps, wanted, say, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
  }, []);
  useEffect(() => {
    dialog.current?.querySelector(".wanted")?.scrollIntoView({ block: "start" });
  }, [lines, steps, wanted]);
  const keys = KEYS[wanted] ?? [wanted];
  const marked = lines?.find((line) => keys.some((key) => line.key === key || line.key.includes(key)));
  return (
    <dialog ref={dialog} class="explain" aria-labelledby="explain-title" onClose={onClose} onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
      <header>
        <h2 id="explain-title">{say("formulas")}</h2>
        <button type="button" class="quiet" onClick={() => dialog.current?.close()}>
          {say("close")}
        </button>
      </header>
      <div class="lines" tabIndex={0}>
        {wanted === "speed" && speed && (
          <>
            <PartsView label={say("ttft")} parts={speed.ttft_parts} say={say} />
            <PartsView label={say("tpot")} parts={speed.tpot_parts} say={say} />
          </>
        )}
        {wanted === "speed" && steps?.map((step) => <StepTable key={step.name} step={step} say={say} />)}
        {lines?.map((line) => <LineView key={line.key} line={line} say={say} wanted={line === marked && wanted !== "speed"} depth={0} range={line.key === "kv_pool" ? poolRange(fit, governing(fit)) : null} />)}
        {!lines && !steps && <p>{say("working")}</p>}
        <p class="source">{fit.model.source}</p>
      </div>
    </dialog>
  );
}

interface LineProps {
  line: Line;
  say: Say;
  wanted: boolean;
  depth: number;
  /** What measurements allow, where the line itself has none. */
  range?: [number, number] | null;
}

/** How sure a line is; parts of a line share its sureness and say nothing of their own. */
function confidence(line: Line, range: [number, number] | null | undefined, say: Say): string {
  if (line.confidence === "exact" && !range) return say("exact");
  const [low, high] = range ?? [line.low_bytes, line.high_bytes];
  return low === high ? say("estimated") : `${say("estimated")} ${gib(low)} – ${gib(high)} GiB`;
}

function LineView({ line, say, wanted, depth, range }: LineProps) {
  const values = Object.entries(line.values);
  return (
    <article class={`line depth-${Math.min(depth, 2)}${wanted ? " wanted" : ""}`}>
      <h3>
        <span>{line.key}</span>
        <span class="number" title={exactly(line.bytes)}>{size(line.bytes)}</span>
      </h3>
      <p class="number">
        {exactly(line.bytes)}
        {depth === 0 && ` · ${confidence(line, range, say)}`}
      </p>
      {line.formula && <p class="formula">{line.formula}</p>}
      {values.length > 0 && (
        <dl>
          {values.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd class="number">{written(value)}</dd>
            </div>
          ))}
        </dl>
      )}
      {line.source && <p class="source">{line.source}</p>}
      {line.parts.map((part) => <LineView key={part.key} line={part} say={say} wanted={false} depth={depth + 1} />)}
    </article>
  );
}

/** What a time is the sum of. */
function PartsView({ label, parts, say }: { label: string; parts: Record<string, number> | null | undefined; say: Say }) {
  const found = Object.entries(parts ?? {}).filter(([, value]) => value > 0);
  if (!found.length) return null;
  const sum = found.reduce((total, [, value]) => total + value, 0);
  return (
    <article class="line wanted">
      <h3>
        <span>{`${label}, ${say("madeOf")}`}</span>
        <span class="number">{seconds(sum)}</span>
      </h3>
      <dl>
        {found.map(([name, value]) => (
          <div key={name}>
            <dt>{named(say, name)}</dt>
            <dd class="number">{seconds(value)}</dd>
          </div>
        ))}
      </dl>
    </article>
  );
}

function StepTable({ step, say }: { step: OperatorStep; say: Say }) {
  return (
    <article class="line wanted">
      <h3>
        <span>{step.name}</span>
        <span class="number">{rough(step.seconds * 1000)} ms</span>
      </h3>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">{say("operator")}</th>
              <th scope="col">{say("time")}</th>
              <th scope="col">{say("ofStep")}</th>
              <th scope="col">{say("limitedBy")}</th>
              <th scope="col">FLOP</th>
              <th scope="col">B</th>
              <th scope="col">{say("source")}</th>
            </tr>
          </thead>
          <tbody>
            {step.operators.map((operator) => (
              <tr key={operator.name}>
                <th scope="row">{operator.name}</th>
                <td class="number">{rough(operator.seconds * 1e6)} µs</td>
                <td class="number">{rough(operator.share * 100)}%</td>
                <td>{operator.limiter ? named(say, operator.limiter) : ""}</td>
                <td class="number">{operator.flops ? `${rough(operator.flops / 1e9)} GFLOP` : ""}</td>
                <td class="number">{operator.bytes ? `${rough(operator.bytes / 1e6)} MB` : ""}</td>
                <td class="source">{operator.sources?.join(", ")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </article>
  );
}

function written(value: unknown): string {
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en-US") : String(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
