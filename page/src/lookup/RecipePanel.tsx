// The Recipe tab: from the lengths of requests to the flags of the deployment that is asked about.

import { useMemo, useState } from "preact/hooks";
import { ask, fetched, Refusal } from "../api";
import { useAnswer } from "../ask";
import { Copy } from "../Copy";
import { fieldsOf, numberOr, textOf } from "../fields";
import { Figure } from "../Figures";
import { languageOf, rough, seconds, size, tokens, whole } from "../format";
import { deploymentOf } from "../opening";
import { bodyOf, type Question } from "../question";
import { Text } from "../Text";
import { described, type Preset } from "../traffic/workload";
import { named, type Say } from "../words";
import { type LookupSay, sayLookup } from "./words";

interface Recipe {
  p95_tokens: number;
  max_model_len: number;
  kv_bytes_per_request: number;
  kv_pool_tokens: number;
  ceiling: number;
  waterline: number;
  largest_batch: number | null;
  max_num_seqs: number;
  token_budget: number;
  step_seconds: number;
  ttft_seconds: number;
  tpot_seconds: number;
  output_tokens_per_second: number;
  steps: string[];
  command: string | null;
}

const BEGINNING = { from: "chat", p95: "6500", input: "", output: "", workload: "poisson:rate=5,input=lognormal(1024,0.8),output=256" };
type Fields = typeof BEGINNING;
const OWN = "own";
const DESCRIBED = "described";
const SETTLED = 120;

interface Props {
  question: Question;
  say: Say;
  onChange: (change: Partial<Question>) => void;
  onOpen: (deployment: Partial<Question>) => void;
}

/** The body of POST /v1/recipe. */
function recipeBody(question: Question, lengths: Record<string, unknown>): Record<string, unknown> {
  const { request_tokens: _, concurrency: __, context: ___, ...body } = bodyOf(question);
  return { ...body, ...lengths, ...(question.tpot ? { tpot: question.tpot } : {}) };
}

function lengthsOf({ from, p95, input, output, workload }: Fields): Record<string, unknown> {
  if (from === DESCRIBED) return { workload };
  if (from !== OWN) return { workload: from };
  return { p95: numberOr(p95), ...(input ? { input: numberOr(input) } : {}), ...(output ? { output: numberOr(output) } : {}) };
}

export function RecipePanel({ question, say, onChange, onOpen }: Props) {
  const { language } = question;
  const told = useMemo(() => sayLookup(language), [language]);
  const fields = useMemo(() => fieldsOf(question.recipe, BEGINNING), [question.recipe]);
  const change = (part: Partial<Fields>) => onChange({ recipe: textOf({ ...fields, ...part }, BEGINNING) });
  const unreachable = say("unreachable");
  const { answer: listed } = useAnswer("workloads", () => fetched<{ workloads: Preset[] }>("workloads"), { unreachable });
  const presets = (listed?.workloads ?? []).map(({ name }) => name);
  const body = recipeBody(question, lengthsOf(fields));
  const { answer, refusal, stale } = useAnswer(JSON.stringify(body), (signal) => ask<Recipe>("recipe", body, signal), { delay: SETTLED, unreachable });
  const [trouble, setTrouble] = useState("");
  const apply = async (found: Recipe) => {
    try {
      onOpen({ ...(await deploymentOf(found.command ?? "", question.gpu, language)), gpus: question.gpus, concurrency: found.max_num_seqs });
    } catch (error) {
      setTrouble(error instanceof Refusal ? error.message : unreachable);
    }
  };
  return (
    <div class="recipe">
      <p class="caption">{told("lead")}</p>
      <form class="workload" aria-label={say("tab_recipe")} onSubmit={(event) => event.preventDefault()}>
        <label class="field">
          <span>{told("scenario")}</span>
          <select value={fields.from} onChange={(event) => change({ from: event.currentTarget.value })}>
            {[...presets, OWN, DESCRIBED].map((name) => (
              <option key={name} value={name} selected={name === fields.from}>{name === OWN ? told("own") : name === DESCRIBED ? told("described") : scenarioName(say, name)}</option>
            ))}
          </select>
        </label>
        {fields.from === OWN && <Text label={told("p95")} value={fields.p95} onChange={(p95) => change({ p95 })} />}
        {fields.from === OWN && <Text label={told("meanInput")} value={fields.input} hint={told("halfOf")} onChange={(input) => change({ input })} />}
        {fields.from === OWN && <Text label={told("meanOutput")} value={fields.output} hint={told("tenthOf")} onChange={(output) => change({ output })} />}
        {fields.from === DESCRIBED && <div class="wide"><Text label={say("description")} value={fields.workload} onChange={(workload) => change({ workload })} /></div>}
        <Text label={told("tpot")} value={question.tpot} hint="50ms" onChange={(tpot) => onChange({ tpot })} />
      </form>
      {refusal && <p class="refusal" role="alert" lang={languageOf(refusal)}>{refusal}</p>}
      {!answer && !refusal && <p>{told("waiting")}</p>}
      {answer && (
        <div class={stale || refusal ? "recipe-found stale" : "recipe-found"} aria-busy={stale}>
          <Chain found={answer} told={told} />
          <PoolBar found={answer} told={told} />
          <h3>{told("steps")}</h3>
          <ol class="steps">{answer.steps.map((step) => <li key={step}>{step}</li>)}</ol>
          {answer.command && (
            <div class="launch">
              <span class="label">{told("start")}</span>
              <code tabIndex={0}>{answer.command}</code>
              <Copy text={answer.command} say={say} of={told("start")} />
              <button type="button" onClick={() => apply(answer)}>{told("apply")}</button>
            </div>
          )}
          {trouble && <p class="refusal" role="alert">{trouble}</p>}
          <Scenarios question={question} presets={presets} chosen={fields.from} say={say} told={told} onChoose={(from) => change({ from })} />
        </div>
      )}
    </div>
  );
}

const scenarioName = (say: Say, name: string): string => named(say, `workload_${described(name).name}`).replace(/^workload_/, "");

/** Each step's figure, in the order in which one leads to the next. */
function Chain({ found, told }: { found: Recipe; told: LookupSay }) {
  const atOnce = told("atOnce");
  const limiting = found.largest_batch !== null && found.largest_batch < found.waterline;
  return (
    <div class="figures chain">
      <Figure label={told("step_p95")} value={whole(found.p95_tokens)} note={told("tokenUnit")} />
      <Figure label={told("step_length")} value={whole(found.max_model_len)} note={told("plusFifth")} />
      <Figure label={told("step_request")} value={size(found.kv_bytes_per_request)} note="KV / GPU" />
      <Figure label={told("step_ceiling")} value={whole(found.ceiling)} note={`${tokens(found.kv_pool_tokens)} ${told("ofPool")}`} />
      <Figure label={told("step_waterline")} value={whole(found.waterline)} note={told("ofCeiling")} />
      {found.largest_batch !== null && <Figure label={told("step_batch")} value={limiting ? whole(found.largest_batch) : `≥ ${whole(found.largest_batch)}`} note={limiting ? atOnce : told("notLimiting")} />}
      <Figure label={told("step_seqs")} value={<span class="result">{whole(found.max_num_seqs)}</span>} note={atOnce} />
      <Figure label={told("step_budget")} value={whole(found.token_budget)} note={`${told("perStep")}: ${seconds(found.step_seconds)}`} />
    </div>
  );
}

/** The pool with what runs in it, and what is left free. */
function PoolBar({ found, told }: { found: Recipe; told: LookupSay }) {
  const at = (count: number) => `${((100 * Math.min(count, found.ceiling)) / found.ceiling).toFixed(2)}%`;
  const label = `${told("poolBar")}: ${whole(found.max_num_seqs)} ${told("kept")}, ${told("step_waterline")} ${whole(found.waterline)}, ${told("step_ceiling")} ${whole(found.ceiling)}`;
  return (
    <svg class="pool-bar" role="img" aria-label={label} width="100%" height="46">
      <rect class="seg-free" x="0" y="14" width="100%" height="18" rx="3" />
      <rect class="seg-kv" x="0" y="14" width={at(found.max_num_seqs)} height="18" rx="3" />
      <line class="limit" x1={at(found.waterline)} x2={at(found.waterline)} y1="10" y2="36" />
      <text x={at(found.waterline)} y="8" text-anchor="middle">{`80% · ${whole(found.waterline)}`}</text>
      <text x="100%" y="45" text-anchor="end">{`${told("step_ceiling")} ${whole(found.ceiling)}`}</text>
      <text x="0" y="45">{`${whole(found.max_num_seqs)} ${told("kept")}`}</text>
    </svg>
  );
}

interface ScenariosProps {
  question: Question;
  presets: string[];
  chosen: string;
  say: Say;
  told: LookupSay;
  onChoose: (name: string) => void;
}

function Scenarios(props: ScenariosProps) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{props.told("compare")}</summary>
      {open && <ScenarioTable {...props} />}
    </details>
  );
}

function ScenarioTable({ question, presets, chosen, say, told, onChoose }: ScenariosProps) {
  return (
    <div class="scroll" tabIndex={0}>
      <table class="stacked" role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader">{told("scenario")}</th>
            {(["step_p95", "step_length", "step_ceiling", "step_seqs", "step_budget", "step_ttft", "step_tpot", "step_throughput"] as const).map((word) => (
              <th key={word} scope="col" role="columnheader" class="right">{told(word)}</th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {presets.map((name) => <ScenarioRow key={name} name={name} question={question} chosen={name === chosen} say={say} told={told} onChoose={onChoose} />)}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps extends Omit<ScenariosProps, "presets" | "chosen"> {
  name: string;
  chosen: boolean;
}

function ScenarioRow({ name, question, chosen, say, told, onChoose }: RowProps) {
  const body = recipeBody(question, { workload: name });
  const { answer, refusal, stale } = useAnswer(JSON.stringify(body), (signal) => ask<Recipe>("recipe", body, signal), { delay: SETTLED, unreachable: say("unreachable") });
  const cells: [Parameters<LookupSay>[0], string][] = answer
    ? [
        ["step_p95", whole(answer.p95_tokens)],
        ["step_length", whole(answer.max_model_len)],
        ["step_ceiling", whole(answer.ceiling)],
        ["step_seqs", whole(answer.max_num_seqs)],
        ["step_budget", whole(answer.token_budget)],
        ["step_ttft", seconds(answer.ttft_seconds)],
        ["step_tpot", seconds(answer.tpot_seconds)],
        ["step_throughput", rough(answer.output_tokens_per_second)],
      ]
    : [];
  return (
    <tr role="row" class={`${chosen ? "chosen" : ""}${stale ? " stale" : ""}`}>
      <th scope="row" role="rowheader">
        <button type="button" class="link" aria-pressed={chosen} onClick={() => onChoose(name)}>{scenarioName(say, name)}</button>
      </th>
      {answer ? cells.map(([word, text]) => <td key={word} role="cell" class="number right" data-label={told(word)}>{text}</td>) : <td role="cell" colSpan={8} lang={refusal ? languageOf(refusal) : undefined}>{refusal || told("waiting")}</td>}
    </tr>
  );
}
