// What stands under each tab.

import { useState } from "preact/hooks";
import { ask, type Change, fetched, type Fit, type Speed, type SpeedPoint, type SweepPoint } from "./api";
import { useAnswer } from "./ask";
import { useWidth } from "./charts/Chart";
import { GrowthByConcurrency, GrowthByContext, GrowthLegend } from "./charts/Growth";
import { Pareto } from "./charts/Pareto";
import { gib, rough, seconds, tokens, whole } from "./format";
import { bodyOf, type Question } from "./question";
import { Text } from "./Text";
import { named, type Say } from "./words";

interface Props {
  question: Question;
  fit: Fit;
  say: Say;
}

const SETTLED = 120; // ms without a change before a panel asks

/** Doubles from 1 to a number that shows the end of what is held. */
function concurrencies(fit: Fit): string {
  const top = Math.max(16, fit.requests_held * 1.5, fit.concurrency_asked ?? 1);
  return `concurrency=1..${2 ** Math.ceil(Math.log2(Math.min(top, 65536)))}`;
}

export function Growth({ question, fit, say }: Props) {
  const [place, width] = useWidth();
  const [by, setBy] = useState<"concurrency" | "context">("concurrency");
  const longest = Math.max(question.context, fit.max_model_len_that_fits, 8192);
  const sweep = by === "concurrency" ? concurrencies(fit) : `context=512..${2 ** Math.ceil(Math.log2(longest))}`;
  const body: Record<string, unknown> = { ...bodyOf(question), sweep };
  if (by === "context") delete body.request_tokens;
  const { answer, refusal, stale } = useAnswer(
    JSON.stringify(body),
    (signal) => ask<{ points: SweepPoint[]; parameter: string; fit: Fit }>("sweep", body, signal),
    { delay: SETTLED, unreachable: say("unreachable") },
  );
  const ready = answer?.parameter === by && answer.points.length > 0;
  return (
    <>
      <div class="above">
      <fieldset class="switch">
        <legend>{say("growthBy")}</legend>
        {(["concurrency", "context"] as const).map((name) => (
          <label key={name}>
            <input type="radio" name="by" checked={by === name} onChange={() => setBy(name)} />
            <span>{say(name === "concurrency" ? "byConcurrency" : "byContext")}</span>
          </label>
        ))}
      </fieldset>
      {by === "concurrency" && <GrowthLegend say={say} />}
      </div>
      {refusal && <p class="refusal">{refusal}</p>}
      <div ref={place} class={stale ? "stale" : ""}>
      {ready && width > 0 && by === "concurrency" && <GrowthByConcurrency fit={answer.fit} points={answer.points} width={width} say={say} />}
      {ready && by === "concurrency" && <p class="caption">{say("growthCaption")}</p>}
      {ready && <GrowthTable points={answer.points} by={by} say={say} />}
      {ready && width > 0 && by === "context" && <GrowthByContext fit={answer.fit} points={answer.points} width={width} say={say} />}
      </div>
    </>
  );
}

function GrowthTable({ points, by, say }: { points: SweepPoint[]; by: "concurrency" | "context"; say: Say }) {
  return (
    <details>
      <summary>{say("numbers")}</summary>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">{say(by)}</th>
              <th scope="col">{say("running")}</th>
              <th scope="col">{say("waiting")}</th>
              <th scope="col">{say("kvUsed")}, GiB</th>
              <th scope="col">{say("inUse")}</th>
            </tr>
          </thead>
          <tbody>
            {points.map((point) => (
              <tr key={point.value}>
                <th scope="row" class="number">{whole(point.value)}</th>
                <td class="number">{whole(point.requests_running)}</td>
                <td class="number">{whole(point.requests_waiting)}</td>
                <td class="number">{gib(point.kv_used_bytes)}</td>
                <td class="number">{gib(point.in_use_bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

type OnChange = (change: Partial<Question>) => void;

export function SpeedPanel({ question, fit, say, onChange }: Props & { onChange: OnChange }) {
  const [place, width] = useWidth();
  const top = 2 ** Math.ceil(Math.log2(Math.max(16, Math.min(fit.requests_held, 1024), question.concurrency)));
  const body = { ...speedBody(question), sweep: `concurrency=1..${top}` };
  const { answer, refusal, stale } = useAnswer(
    JSON.stringify(body),
    (signal) => ask<Speed>("speed", body, signal),
    { delay: SETTLED, unreachable: say("unreachable") },
  );
  const points = answer?.points ?? [];
  return (
    <>
      <ObjectivesRow question={question} say={say} onChange={onChange} />
      {(refusal || answer?.reason) && <p class="refusal">{refusal || answer?.reason}</p>}
      {!answer && !refusal && <p>{say("working")}</p>}
      <div ref={place} class={stale ? "stale" : ""}>
        {points.length > 0 && width > 0 && <Pareto points={points} asked={question.concurrency} width={width} say={say} />}
      </div>
      {points.length > 0 && (
        <>
          <p class="caption">{say("speedCaption")}</p>
          <PointTable points={points} say={say} />
        </>
      )}
    </>
  );
}

/** The largest load under the objectives that are given. */
function ObjectivesRow({ question, say, onChange }: { question: Question; say: Say; onChange: OnChange }) {
  const { tpot, ttft } = question;
  const body = { ...speedBody(question), ...(tpot ? { tpot } : {}), ...(ttft ? { ttft } : {}) };
  const { answer, refusal, stale } = useAnswer(
    tpot || ttft ? JSON.stringify(body) : "",
    (signal) => ask<Speed>("speed", body, signal),
    { delay: SETTLED, unreachable: say("unreachable") },
  );
  const found = tpot || ttft ? answer?.objectives : null;
  const [missed] = found?.unmet ?? [];
  return (
    <div class="objectives">
      <Text label={say("tpotObjective")} value={tpot} hint="50ms" onChange={(value) => onChange({ tpot: value })} />
      <Text label={say("ttftObjective")} value={ttft} hint="2s" onChange={(value) => onChange({ ttft: value })} />
      <p role="status" class={stale ? "stale" : ""}>
        {refusal && (tpot || ttft) && <span class="refusal">{refusal}</span>}
        {found?.met && (
          <>
            {say("largest")}: <b class="number">{whole(found.load.concurrency)}</b>{" "}
            <small class="number">
              {whole(found.load.cautious)} – {whole(found.load.hopeful)}
            </small>
            {found.load.bound_by && ` · ${say("boundBy")} ${named(say, found.load.bound_by)}`}
          </>
        )}
        {missed && `${say("outOfReach")}: ${seconds(missed.alone_seconds.value)}`}
      </p>
    </div>
  );
}

function PointTable({ points, say }: { points: SpeedPoint[]; say: Say }) {
  return (
    <div class="scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">{say("concurrency")}</th>
            <th scope="col">{say("ttft")}</th>
            <th scope="col">{say("tpot")}</th>
            <th scope="col">{say("user")} ({say("perSecond")})</th>
            <th scope="col">{say("total")} ({say("perSecond")})</th>
            <th scope="col">{say("waiting")}</th>
          </tr>
        </thead>
        <tbody>
          {points.map((point) => (
            <tr key={point.concurrency}>
              <th scope="row" class="number">{whole(point.concurrency)}</th>
              <td class="number">{seconds(point.ttft_seconds.value)}</td>
              <td class="number">{point.tpot_seconds ? seconds(point.tpot_seconds.value) : "—"}</td>
              <td class="number">{point.tokens_per_second_per_user ? rough(point.tokens_per_second_per_user.value) : "—"}</td>
              <td class="number">{rough(point.output_tokens_per_second.value)}</td>
              <td class="number">{point.requests_waiting ? whole(point.requests_waiting) : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The body of POST /v1/speed. */
export function speedBody(question: Question): Record<string, unknown> {
  const { request_tokens: _, ...body } = bodyOf(question);
  return {
    ...body,
    input: question.input,
    output: question.output,
    ...(Number(question.price) > 0 ? { price: Number(question.price) } : {}),
  };
}

export function Changes({ question, fit, say, onApply }: Props & { onApply: (change: Change) => void }) {
  const body = { ...bodyOf(question), changes: true };
  const { answer, refusal, busy } = useAnswer(
    fit.verdict === "fits" ? "" : JSON.stringify(body),
    (signal) => ask<Fit>("fit", body, signal),
    { delay: SETTLED, unreachable: say("unreachable") },
  );
  if (fit.verdict === "fits") return <p>{say("changesNone")}</p>;
  if (refusal) return <p class="refusal">{refusal}</p>;
  const changes = answer?.changes_that_fit;
  if (!changes) return <p>{say("working")}</p>;
  if (!changes.length) return <p>{say("changesNothing")}</p>;
  return (
    <>
      <p>{say("changesAsk")}</p>
      <div class={busy ? "scroll stale" : "scroll"} tabIndex={0}>
        <table class="stacked" role="table">
          <thead role="rowgroup">
            <tr role="row">
              <th role="columnheader" />
              <th scope="col" role="columnheader">{say("change")}</th>
              <th scope="col" role="columnheader">{say("pool")} ({say("tokensUnit")})</th>
              <th scope="col" role="columnheader">{say("held")}</th>
              <th scope="col" role="columnheader">{say("gpus")}</th>
              <th scope="col" role="columnheader">{say("costs")}</th>
            </tr>
          </thead>
          <tbody role="rowgroup">
            {changes.map((change) => (
              <tr key={change.flags} role="row">
                <td role="cell">
                  <button type="button" onClick={() => onApply(change)}>{say("apply")}</button>
                </td>
                <th scope="row" role="rowheader"><code>{change.flags}</code></th>
                <td class="number" role="cell" data-label={`${say("pool")} (${say("tokensUnit")})`}>{whole(change.kv_pool_tokens)}</td>
                <td class="number" role="cell" data-label={say("held")}>{whole(change.requests_running)} × {tokens(change.request_tokens)}</td>
                <td class="number" role="cell" data-label={say("gpus")}>{change.gpus}</td>
                <td role="cell" data-label={say("costs")}>{change.price}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const ENGINES = ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers"];

interface Beside {
  engine: string;
  fit: Fit | null;
  speed: Speed | null;
  refusal: string;
}

export function Engines({ question, say, titles }: Props & { titles: Record<string, string> }) {
  const plain = { ...question, command: "", settings: "", util: "", version: "" };
  const setAside = question.settings || question.util || question.version || question.command;
  const { answer, busy } = useAnswer(
    JSON.stringify(question),
    (signal) =>
      Promise.all(
        ENGINES.map((engine) => beside(engine === question.engine ? question : suited(plain, engine), signal)),
      ),
    { delay: SETTLED, unreachable: say("unreachable") },
  );
  if (!answer) return <p>{say("working")}</p>;
  return (
    <>
    <p class="caption">
      {say("enginesCaption")}
      {setAside && ` ${say("enginesAside")}`}
    </p>
    <div class={busy ? "scroll stale" : "scroll"} tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">{say("engine")}</th>
            <th scope="col">{say("verdict")}</th>
            <th scope="col">{say("pool")} ({say("tokensUnit")})</th>
            <th scope="col">{say("held")}</th>
            <th scope="col">{say("ttft")}</th>
            <th scope="col">{say("tpot")}</th>
            <th scope="col">{say("total")} ({say("perSecond")})</th>
          </tr>
        </thead>
        <tbody>
          {answer.map(({ engine, fit, speed, refusal }) => (
            <tr key={engine}>
              <th scope="row">{titles[engine] ?? engine} {fit && <small>{fit.engine.version}</small>}</th>
              {fit ? (
                <>
                  <td class={`verdict-${fit.verdict}`}>{named(say, fit.verdict)}</td>
                  <td class="number">{whole(fit.kv_pool_tokens)}</td>
                  <td class="number">{whole(fit.requests_held)}</td>
                  <td class="number">{speed?.ttft_seconds ? seconds(speed.ttft_seconds.value) : "—"}</td>
                  <td class="number">{speed?.tpot_seconds ? seconds(speed.tpot_seconds.value) : "—"}</td>
                  <td class="number">{speed?.output_tokens_per_second ? rough(speed.output_tokens_per_second.value) : "—"}</td>
                </>
              ) : (
                <td colSpan={6}>{refusal}</td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
    </>
  );
}

/** The question as that engine is asked it: llama.cpp divides its context among its slots. */
function suited(question: Question, engine: string): Question {
  if (engine !== "llama.cpp") return { ...question, engine };
  const slots = question.concurrency;
  return { ...question, engine, context: question.context * slots, settings: `n_parallel=${slots}` };
}

async function beside(question: Question, signal: AbortSignal): Promise<Beside> {
  const found: Beside = { engine: question.engine, fit: null, speed: null, refusal: "" };
  try {
    found.fit = await ask<Fit>("fit", bodyOf(question), signal);
    if (found.fit.verdict !== "does_not_fit") {
      found.speed = await ask<Speed>("speed", speedBody(question), signal).catch(() => null);
    }
  } catch (error) {
    found.refusal = (error as Error).message;
  }
  return found;
}

interface Errors {
  engine: string | null;
  quantity: string;
  n: number;
  median_abs_pct: number;
  p90_abs_pct: number;
  worst_abs_pct?: number;
}

interface Accuracy {
  num_rows: number;
  outcomes: { n: number; foreseen: number };
  by_quantity: Errors[];
  speeds?: Errors[];
}

const MAIN = ["kv_tokens", "weights_gib", "activation_gib", "graph_gib", "k_mib", "kv_total_mib"];

export function AccuracyPanel({ say, titles }: { say: Say; titles: Record<string, string> }) {
  const { answer, refusal } = useAnswer("accuracy", () => fetched<Accuracy>("accuracy"), {
    unreachable: say("unreachable"),
  });
  if (refusal) return <p class="refusal">{refusal}</p>;
  if (!answer) return <p>{say("working")}</p>;
  const main = answer.by_quantity.filter((group) => MAIN.includes(group.quantity));
  return (
    <>
      <p>{say("accuracyLead")}</p>
      <p>
        {say("foreseen")}: <b class="number">{answer.outcomes.foreseen} / {answer.outcomes.n}</b>
      </p>
      <ErrorTable groups={main} say={say} titles={titles} />
      {answer.speeds && <ErrorTable groups={answer.speeds} say={say} titles={titles} caption={say("speedErrors")} />}
      <details>
        <summary>{say("all")}</summary>
        <ErrorTable groups={answer.by_quantity} say={say} titles={titles} />
      </details>
    </>
  );
}

interface ErrorTableProps {
  groups: Errors[];
  say: Say;
  titles: Record<string, string>;
  caption?: string;
}

function ErrorTable({ groups, say, titles, caption }: ErrorTableProps) {
  const percent = (value: number | undefined) => (value === undefined ? "" : `${value.toFixed(value < 10 ? 2 : 0)}%`);
  return (
    <div class="scroll" tabIndex={0}>
      <table>
        {caption && <caption>{caption}</caption>}
        <thead>
          <tr>
            <th scope="col">{say("engine")}</th>
            <th scope="col">{say("quantity")}</th>
            <th scope="col">{say("rows")}</th>
            <th scope="col">{say("median")}</th>
            <th scope="col">{say("p90")}</th>
            <th scope="col">{say("worst")}</th>
          </tr>
        </thead>
        <tbody>
          {groups.map((group) => (
            <tr key={`${group.engine} ${group.quantity}`}>
              <th scope="row">{titles[group.engine ?? ""] ?? group.engine}</th>
              <td><code>{group.quantity}</code></td>
              <td class="number">{group.n}</td>
              <td class="number">{percent(group.median_abs_pct)}</td>
              <td class="number">{group.n > 2 ? percent(group.p90_abs_pct) : ""}</td>
              <td class="number">{percent(group.worst_abs_pct)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
