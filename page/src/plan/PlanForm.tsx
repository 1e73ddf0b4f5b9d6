// What is to be served, what its clients are promised, and the GPUs to choose from.

import { useState } from "preact/hooks";
import { alone, fetched } from "../api";
import { useAnswer } from "../ask";
import { Chips } from "../Chips";
import { Combobox, type Option } from "../Combobox";
import { listOf } from "../fields";
import { Boxes, Switch } from "../Switch";
import { Text } from "../Text";
import { described, type Preset, valueOf } from "../traffic/workload";
import { named, type Say } from "../words";
import { BEGINNING, type Chosen, chosenOf, chosenText, modelsOf, type PlanAsked } from "./asked";
import type { PlanSay, PlanWord } from "./words";

const OWN = "own";
const ENGINES: [string, string][] = [
  ["vllm", "vLLM"],
  ["sglang", "SGLang"],
  ["tensorrt-llm", "TensorRT-LLM"],
];
const LAYOUTS = ["bf16", "fp8", "int8", "awq", "nvfp4"];
const CACHES = ["auto", "fp8"];
const KEEPS = ["mean", "p50", "p90", "p95", "p99"] as const;
const REPLICA_GPUS = ["1", "2", "4", "8", "16", "32"];

interface Props {
  asked: PlanAsked;
  model: string;
  say: Say;
  told: PlanSay;
  options: { models: Option[] | undefined; gpus: Option[] | undefined };
  wantLists: () => void;
  running: boolean;
  /** The server's sentence by the field that it is about. */
  refused: (field: keyof PlanAsked) => string;
  onChange: (part: Partial<PlanAsked>) => void;
  onRun: () => void;
  onStop: () => void;
}

export function PlanForm(props: Props) {
  const { asked, say, told, refused, onChange } = props;
  const text = (field: keyof PlanAsked, label: string, hint?: string) => (
    <Text label={label} value={asked[field] ?? ""} hint={hint} invalid={refused(field)} onChange={(value) => onChange({ [field]: value })} />
  );
  return (
    <form
      class="plan-asked"
      aria-label={told("question")}
      onSubmit={(event) => {
        event.preventDefault();
        props.onRun();
      }}
    >
      <Chips label={told("models")} hint={told("addModel")} chosen={modelsOf(asked, props.model)} options={props.options.models} say={say} invalid={refused("models")} onOpen={props.wantLists} onChange={(models) => onChange({ models: models.join(",") })} />
      <Switch name="load" legend={told("load")} values={["users", "clients", "rate"]} chosen={asked.load} shown={(load) => told(`load_${load}` as PlanWord)} onChange={(load) => onChange({ load })} />
      <div class="row">
        {asked.load === "users" && text("users", told("users"))}
        {asked.load === "users" && text("think", told("think"), "10s")}
        {asked.load === "rate" && text("rate", told("rate"), "5/s")}
        {asked.load === "rate" && text("burst", told("burst"), "1")}
      </div>
      {asked.load === "clients" && text("clients", told("clients"))}
      <LengthPresets asked={asked} say={say} told={told} onChange={onChange} />
      <div class="row">
        {text("input", told("input"), told("lengthHint"))}
        {text("output", told("output"), told("lengthHint"))}
      </div>
      <div class="row">
        {text("ttft", told("ttft"), "2s")}
        {text("tpot", told("tpot"), "50ms")}
      </div>
      <label class="field">
        <span>{told("keep")}</span>
        <select value={asked.keep} onChange={(event) => onChange({ keep: event.currentTarget.value })}>
          {KEEPS.map((keep) => <option key={keep} value={keep} selected={keep === asked.keep}>{told(`keep_${keep}`)}</option>)}
        </select>
      </label>
      <Gpus {...props} />
      <Boxes legend={told("engines")} values={ENGINES.map(([name]) => name)} chosen={listOf(asked.engines)} shown={(name) => ENGINES.find(([one]) => one === name)?.[1] ?? name} invalid={refused("engines")} onChange={(engines) => onChange({ engines: engines.join(",") || "vllm" })} />
      <details>
        <summary>{told("limits")}</summary>
        <Boxes legend={`${told("weights")} (${told("asStored")})`} values={LAYOUTS} chosen={listOf(asked.weights)} shown={(name) => name} invalid={refused("weights")} onChange={(weights) => onChange({ weights: weights.join(",") })} />
        <Boxes legend={told("kv")} values={CACHES} chosen={listOf(asked.kv)} shown={(name) => (name === "auto" ? told("kv_auto") : name)} invalid={refused("kv")} onChange={(kv) => onChange({ kv: kv.join(",") || "auto" })} />
        <div class="row">
          {text("context", told("context"), told("automatic"))}
          <label class="field">
            <span>{told("most")}</span>
            <select value={asked.most} onChange={(event) => onChange({ most: event.currentTarget.value })}>
              {REPLICA_GPUS.map((count) => <option key={count} value={count} selected={count === asked.most}>{count}</option>)}
            </select>
          </label>
        </div>
        <div class="row">
          {text("budget", told("budget"))}
          {text("top", told("top"))}
        </div>
      </details>
      <details>
        <summary>{told("settings")}</summary>
        <Box label={told("tune")} checked={asked.tune === "yes"} onChange={(on) => onChange({ tune: on ? "yes" : "no" })} />
        <Box label={told("apart")} checked={asked.apart === "yes"} onChange={(on) => onChange({ apart: on ? "yes" : "no" })} />
        <div class="row">
          {text("tokens", told("tokens"), "auto, 2048, 8192")}
          {text("seqs", told("seqs"), "auto, 64")}
        </div>
        <div class="row">
          {text("share", told("share"), "auto, 0.95")}
          {text("offload", told("offload"), "none, 64GiB")}
        </div>
        {text("draft", told("draft"), "none, ngram:3, mtp")}
      </details>
      <div class="run-row">
        {/* with keys: else a click on one ends as a click on what took its place */}
        {props.running ? (
          <button key="stop" type="button" onClick={props.onStop}>{told("stop")}</button>
        ) : (
          <button key="search" type="submit" class="primary">{told("search")}</button>
        )}
      </div>
      {alone && <p class="caption">{told("alone")}</p>}
    </form>
  );
}

function Box({ label, checked, onChange }: { label: string; checked: boolean; onChange: (on: boolean) => void }) {
  return (
    <label class="box">
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.currentTarget.checked)} /> {label}
    </label>
  );
}

/** Lengths of a known workload, written into the fields, where they may be changed. */
function LengthPresets({ asked, say, told, onChange }: Pick<Props, "asked" | "say" | "told" | "onChange">) {
  const { answer } = useAnswer("workloads", () => fetched<{ workloads: Preset[] }>("workloads"), { unreachable: say("unreachable") });
  const presets = (answer?.workloads ?? []).filter(({ workload }) => valueOf(workload, "input") && valueOf(workload, "output"));
  const same = (preset: Preset) => valueOf(preset.workload, "input") === asked.input && valueOf(preset.workload, "output") === asked.output;
  const chosen = presets.find(same);
  return (
    <label class="field">
      <span>{told("lengths")}</span>
      <select
        value={chosen?.name ?? OWN}
        onChange={(event) => {
          const preset = presets.find(({ name }) => name === event.currentTarget.value);
          onChange(preset ? { input: valueOf(preset.workload, "input"), output: valueOf(preset.workload, "output") } : { input: BEGINNING.input, output: BEGINNING.output });
        }}
      >
        <option value={OWN} selected={!chosen}>{told("lengthsOwn")}</option>
        {presets.map(({ name }) => (
          <option key={name} value={name} selected={name === chosen?.name}>{named(say, `workload_${described(name).name}`).replace(/^workload_/, "")}</option>
        ))}
      </select>
    </label>
  );
}

function Gpus({ asked, say, told, options, wantLists, refused, onChange }: Props) {
  const chosen = chosenOf(asked.gpus);
  const set = (next: Chosen[]) => onChange({ gpus: chosenText(next) });
  const change = (key: string, part: Partial<Chosen>) => set(chosen.map((one) => (one.key === key ? { ...one, ...part } : one)));
  const add = (key: string) => chosen.some((one) => one.key === key) || set([...chosen, { key, count: "", price: "" }]);
  const shown = (key: string) => options.gpus?.find((option) => option.value === key)?.label ?? key;
  const have = asked.choose === "have";
  return (
    <fieldset class="plan-gpus">
      <legend class="sr-only">{told("gpus")}</legend>
      <Switch name="choose" legend={told("gpus")} values={["from", "have"]} chosen={asked.choose} shown={(value) => told(`choose_${value}` as PlanWord)} onChange={(choose) => onChange({ choose })} />
      {chosen.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col"><span class="sr-only">{told("gpus")}</span></th>
              {have && <th scope="col">{told("count")}</th>}
              <th scope="col">{told("price")}</th>
              <th><span class="sr-only">{say("drop")}</span></th>
            </tr>
          </thead>
          <tbody>
            {chosen.map(({ key, count, price }) => (
              <tr key={key}>
                <th scope="row">{shown(key)}</th>
                {have && <td><Small label={`${told("count")}, ${shown(key)}`} value={count || "1"} onChange={(value) => change(key, { count: value })} /></td>}
                <td><Small label={`${told("price")}, ${shown(key)}`} value={price} hint="—" onChange={(value) => change(key, { price: value })} /></td>
                <td><button type="button" class="quiet" aria-label={`${say("drop")} ${shown(key)}`} onClick={() => set(chosen.filter((one) => one.key !== key))}>×</button></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {chosen.length === 0 && <p class="caption">{told("allGpus")}</p>}
      <Combobox label={told("addGpu")} value="" shown="" options={options.gpus?.filter(({ value }) => !chosen.some((one) => one.key === value))} nothing={say("none")} onOpen={wantLists} onChoose={add} onType={(text) => add(text.trim())} />
      {refused("gpus") && <p class="refusal" role="alert">{refused("gpus")}</p>}
    </fieldset>
  );
}

/** A field of a table, taken when one leaves it. */
function Small({ label, value, hint, onChange }: { label: string; value: string; hint?: string; onChange: (value: string) => void }) {
  const [draft, setDraft] = useState<string | null>(null);
  const commit = () => {
    if (draft === null) return;
    setDraft(null);
    if (draft.trim() !== value) onChange(draft.trim());
  };
  return <input type="text" class="number" inputMode="decimal" aria-label={label} placeholder={hint} value={draft ?? value} onInput={(event) => setDraft(event.currentTarget.value)} onBlur={commit} onKeyDown={(event) => event.key === "Enter" && commit()} />;
}

