// The Tables tab: the look-up tables of articles, of the models and GPUs one chooses.

import { useEffect, useMemo } from "preact/hooks";
import { ask } from "../api";
import { useAnswer } from "../ask";
import { Chips } from "../Chips";
import type { Option } from "../Combobox";
import { Copy } from "../Copy";
import { csvText, download } from "../exporting";
import { fieldsOf, listOf, numberOr, textOf } from "../fields";
import { gib, languageOf, rough, whole } from "../format";
import { Menu } from "../Menu";
import type { Question } from "../question";
import { Switch } from "../Switch";
import { Text } from "../Text";
import type { Say } from "../words";
import { type LookupSay, type LookupWord, sayLookup } from "./words";

type Cell = string | number | null;

interface Column {
  name: string;
  heading: string;
  unit: "text" | "count" | "tokens" | "bytes" | "seconds" | "share";
}

interface Table {
  name: string;
  title: string;
  columns: Column[];
  rows: Cell[][];
  remarks: string[];
}

// Tables of which a phone shows a card for each row; those of lengths or users are read down their columns.
const CARDS = ["concurrency", "reference"];
const NAMES = ["params", "kv", "concurrency", "gpus-for-users", "reference"] as const;
const BEGINNING = {
  name: "kv",
  models: "meta-llama/Meta-Llama-3.1-8B,Qwen/Qwen2.5-72B-Instruct,deepseek-ai/DeepSeek-V3",
  gpus: "rtx-4090,l40s,a100-sxm-80gb,h100-sxm-80gb",
  layouts: "bf16,fp8,int8,awq",
  kv: "bfloat16",
  lengths: "2048,4096,8192,32768",
  batches: "1,4,16,64",
  users: "10,50,100,500,1000",
  tokens: "4096",
  requests: "16",
  input: "3072",
  output: "1024",
  think: "10s",
  tpot: "100ms",
  ttft: "",
  engine: "vllm",
  heat: "yes",
};
type Fields = typeof BEGINNING;
type Name = keyof Fields;
const ENGINES = [
  ["vllm", "vLLM"],
  ["sglang", "SGLang"],
  ["tensorrt-llm", "TensorRT-LLM"],
] as const;
const SETTLED = 250;
const GIGABYTE = 1e9;
const SHADES = 9;

/** What each table is of beside its models. */
const PARTS: Record<string, Name[]> = {
  params: ["layouts"],
  kv: ["lengths", "batches", "kv"],
  concurrency: ["gpus", "tokens", "engine"],
  "gpus-for-users": ["gpus", "users", "input", "output", "think", "tpot", "ttft", "engine"],
  reference: ["gpus", "tokens", "requests", "engine"],
};
const LABELS: Partial<Record<Name, LookupWord>> = { kv: "kvType" };

function tableBody(fields: Fields, language: string): Record<string, unknown> {
  const body: Record<string, unknown> = { name: fields.name, models: listOf(fields.models), language };
  for (const part of PARTS[fields.name] ?? []) {
    const text = fields[part];
    if (part === "gpus" || part === "layouts") body[part] = listOf(text);
    else if (part === "lengths" || part === "batches" || part === "users") body[part] = listOf(text).map(numberOr);
    else if (part === "think" || part === "ttft") {
      if (text) body[part === "think" ? "think_time" : part] = text;
    } else body[part] = numberOr(text);
  }
  return body;
}

interface Props {
  question: Question;
  say: Say;
  options: { models: Option[] | undefined; gpus: Option[] | undefined };
  wantLists: () => void;
  onChange: (change: Partial<Question>) => void;
}

export function TablesPanel({ question, say, options, wantLists, onChange }: Props) {
  const { language } = question;
  const told = useMemo(() => sayLookup(language), [language]);
  const fields = useMemo(() => fieldsOf(question.table, BEGINNING), [question.table]);
  const change = (part: Partial<Fields>) => onChange({ table: textOf({ ...fields, ...part }, BEGINNING) });
  const body = tableBody(fields, language);
  useEffect(wantLists, []);
  const { answer, refusal, stale } = useAnswer(JSON.stringify(body), (signal) => ask<Table>("tables", body, signal), { delay: SETTLED, unreachable: say("unreachable") });
  const parts = PARTS[fields.name] ?? [];
  return (
    <div class="tables">
      <form class="tables-asked" aria-label={say("tab_tables")} onSubmit={(event) => event.preventDefault()}>
        <Switch name="table" legend={told("table")} values={[...NAMES]} chosen={fields.name} shown={(name) => told(`table_${name}` as LookupWord)} onChange={(name) => change({ name })} />
        <div class="tables-fields">
          <Chips label={told("models")} hint={told("addModel")} chosen={listOf(fields.models)} options={options.models} say={say} onOpen={wantLists} onChange={(models) => change({ models: models.join(",") })} />
          {parts.includes("gpus") && <Chips label={told("gpus")} hint={told("addGpu")} chosen={listOf(fields.gpus)} options={options.gpus} say={say} onOpen={wantLists} onChange={(gpus) => change({ gpus: gpus.join(",") })} />}
          <div class="tables-parts">
            {parts.includes("engine") && (
              <label class="field">
                <span>{told("engine")}</span>
                <select value={fields.engine} onChange={(event) => change({ engine: event.currentTarget.value })}>
                  {ENGINES.map(([name, title]) => <option key={name} value={name} selected={name === fields.engine}>{title}</option>)}
                </select>
              </label>
            )}
            {parts.filter((part) => part !== "gpus" && part !== "engine").map((part) => (
              <Text key={part} label={told(LABELS[part] ?? (part as LookupWord))} value={fields[part]} onChange={(value) => change({ [part]: value || BEGINNING[part] })} />
            ))}
          </div>
        </div>
      </form>
      {refusal && <p class="refusal" role="alert" lang={languageOf(refusal)}>{refusal}</p>}
      {!answer && !refusal && <p>{told("waiting")}</p>}
      {answer && (
        <div class={stale || refusal ? "stale" : ""} aria-busy={stale}>
          <Shown table={answer} heat={fields.heat === "yes"} say={say} told={told} onHeat={(heat) => change({ heat: heat ? "yes" : "no" })} />
        </div>
      )}
    </div>
  );
}

function Shown({ table, heat, say, told, onHeat }: { table: Table; heat: boolean; say: Say; told: LookupSay; onHeat: (heat: boolean) => void }) {
  const shade = useMemo(() => shadesOf(table), [table]);
  const file = (ending: string) => `${table.name}.${ending}`;
  const first = table.columns.findIndex(({ unit }) => unit !== "text");
  return (
    <>
      <header class="above">
        <h2>{table.title}</h2>
        <label class="heat-switch">
          <input type="checkbox" checked={heat} onChange={(event) => onHeat(event.currentTarget.checked)} /> {told("heat")}
        </label>
        <Menu label={told("download")} disabled={false}>
          <button type="button" onClick={() => download(file("csv"), new Blob([csvOf(table)], { type: "text/csv" }))}>{told("csv")}</button>
          <button type="button" onClick={() => download(file("md"), new Blob([markdownOf(table)], { type: "text/markdown" }))}>{told("markdown")}</button>
          <button type="button" onClick={() => download(file("json"), new Blob([JSON.stringify(table, null, 2)], { type: "application/json" }))}>{told("json")}</button>
        </Menu>
      </header>
      <div class="scroll" tabIndex={0}>
        <table class={`lookup${heat ? " heat" : ""}${CARDS.includes(table.name) ? " stacked" : ""}`} role="table">
          <thead role="rowgroup">
            <tr role="row">
              {table.columns.map(({ name, heading, unit }) => <th key={name} scope="col" role="columnheader" class={unit === "text" ? "" : "right"}>{heading}</th>)}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {table.rows.map((row, line) => (
              <tr key={line} role="row">
                {row.map((cell, at) => {
                  const column = table.columns[at];
                  if (!column) return null;
                  const text = shownIn(cell, column, table.name);
                  if (at < first) {
                    const again = at === 0 && table.rows[line - 1]?.[0] === cell;
                    return <th key={at} scope="row" role="rowheader" class={again ? "again" : ""} title={String(cell)}>{text}</th>;
                  }
                  if (column.name === "command") {
                    return (
                      <td key={at} role="cell" class="command">
                        {cell && (
                          <div>
                            <code>{text}</code>
                            <Copy text={text} say={say} of={`${String(row[0])}, ${String(row[1])}`} />
                          </div>
                        )}
                      </td>
                    );
                  }
                  return <td key={at} role="cell" data-label={column.heading} class={`number right${heat && column.unit !== "text" ? ` heat-${shade(cell, column)}` : ""}`}>{text}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {table.name === "gpus-for-users" && table.rows.some((row) => row.includes(null)) && <p class="caption">{told("noneServes")}</p>}
      {table.remarks.length > 0 && <ul class="reasons">{table.remarks.map((remark) => <li key={remark}>{remark}</li>)}</ul>}
    </>
  );
}

/** A figure in the unit that the title names. */
function shownIn(cell: Cell, column: Column, table: string): string {
  if (cell === null) return "–";
  if (typeof cell === "string") return column.name === "model" ? cell.replace(/^.*\//, "") : cell;
  if (column.unit === "bytes") return table === "params" ? (cell / GIGABYTE).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 }) : gib(cell);
  if (column.unit === "count" && cell >= 1e7) return `${rough(cell / 1e9)}B`;
  return whole(cell);
}

/** How dark a figure is, by its order of magnitude among those of its unit. */
function shadesOf(table: Table): (cell: Cell, column: Column) => number {
  const bounds = new Map<string, [number, number]>();
  table.columns.forEach(({ unit, name }, at) => {
    const group = groupOf(unit, name);
    for (const row of table.rows) {
      const cell = row[at];
      if (typeof cell !== "number" || cell <= 0) continue;
      const [low, high] = bounds.get(group) ?? [Infinity, -Infinity];
      bounds.set(group, [Math.min(low, Math.log(cell)), Math.max(high, Math.log(cell))]);
    }
  });
  return (cell, { unit, name }) => {
    const [low, high] = bounds.get(groupOf(unit, name)) ?? [0, 1];
    if (typeof cell !== "number" || cell <= 0) return 0;
    return 1 + Math.round(((SHADES - 1) * (Math.log(cell) - low)) / (high - low || 1));
  };
}

/** Columns that are compared with each other: those that are values share a scale, keys have theirs. */
const groupOf = (unit: string, name: string): string => (/^[\d,]+$/.test(name) ? unit : `${unit} ${name}`);

const csvOf = (table: Table): string => csvText([table.columns.map(({ name }) => name), ...table.rows]);

function markdownOf(table: Table): string {
  const line = (cells: string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "/")).join(" | ")} |`;
  return [
    table.title,
    "",
    line(table.columns.map(({ heading }) => heading)),
    line(table.columns.map(({ unit }) => (unit === "text" ? "---" : "---:"))),
    ...table.rows.map((row) => line(row.map((cell, at) => shownIn(cell, table.columns[at] as Column, table.name)))),
    "",
    ...table.remarks,
    "",
  ].join("\n");
}
