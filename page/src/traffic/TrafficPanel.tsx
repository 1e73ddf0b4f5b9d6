// The Traffic tab: a workload chosen or dropped, served by the deployment that is asked about.

import { useEffect, useState } from "preact/hooks";
import { alone, fetched, type Fit } from "../api";
import { useAnswer } from "../ask";
import { base64Of } from "../files";
import { clock, languageOf, percent, rough, seconds, whole } from "../format";
import type { Progress } from "../job";
import { bodyOf, type Question } from "../question";
import { Text } from "../Text";
import { named, type Say } from "../words";
import { Results } from "./Results";
import type { Traffic } from "./useTraffic";
import { BEGINNINGS, described, type Preset, PROCESSES, TRACE, valueOf, withValue } from "./workload";

const MAX_TRACE_BYTES = 11 * 2 ** 20;
const MOST_ALONE = 2000; // Python in the browser is several times slower
const OWN = "own";

export interface TraceFile {
  name: string;
  base64: string;
}

interface Props {
  question: Question;
  fit: Fit;
  say: Say;
  traffic: Traffic;
  trace: TraceFile | null;
  onTrace: (trace: TraceFile | null) => void;
  onChange: (change: Partial<Question>) => void;
}

/** The body of POST /v1/simulate; null where there is nothing to serve yet. */
function simulateBody(question: Question, trace: TraceFile | null): Record<string, unknown> | null {
  const { request_tokens: _, concurrency: __, ...body } = bodyOf(question);
  const { workload, price, tpot, ttft } = question;
  if (workload === TRACE ? !trace : !workload.trim()) return null;
  return {
    ...body,
    ...(workload === TRACE ? { trace_base64: trace?.base64, trace_name: trace?.name } : { workload }),
    ...(Number(price) > 0 ? { price: Number(price) } : {}),
    ...(tpot ? { tpot } : {}),
    ...(ttft ? { ttft } : {}),
    ...(alone ? { limit: MOST_ALONE } : {}),
  };
}

export function TrafficPanel({ question, fit, say, traffic, trace, onTrace, onChange }: Props) {
  const { answer } = useAnswer("workloads", () => fetched<{ workloads: Preset[] }>("workloads"), { unreachable: say("unreachable") });
  const presets = answer?.workloads ?? [];
  const body = simulateBody(question, trace);
  const key = JSON.stringify({ ...body, language: null }); // the figures are the same in any
  const { result, running, progress, refusal } = traffic;
  const starts = fit.verdict !== "does_not_fit";
  const run = () => {
    if (!body) return;
    onChange({ run: "yes" });
    traffic.start(body, key, fit);
  };
  const cancel = () => {
    traffic.cancel();
    if (!result) onChange({ run: "" });
  };
  useEffect(() => {
    if (question.run && !result && !running && !refusal && starts) run(); // a link to a run
  }, [starts]);
  return (
    <>
      <WorkloadForm question={question} presets={presets} say={say} trace={trace} onTrace={onTrace} onChange={onChange} onRun={run} />
      <div class="run-row">
        {running ? (
          <button type="button" onClick={cancel}>{say("cancel")}</button>
        ) : (
          <button type="button" class="primary" disabled={!body || !starts} onClick={run}>{say("runIt")}</button>
        )}
        {running && <Running progress={progress} say={say} />}
        {!running && !starts && <span class="refusal">{say("nothingServed")}</span>}
        {!running && result && result.key !== key && <span class="kept" role="status">{say("ofEarlier")}</span>}
      </div>
      {alone && <p class="caption">{say("aloneLimit")}</p>}
      {refusal && !running && <p class="refusal" role="alert" lang={languageOf(refusal)}>{refusal}</p>}
      <p class="sr-only" role="status">{!running && result ? `${say(result.served.falls_behind ? "fallsBehind" : result.served.falls_behind === null ? "adapts" : "keepsUp")}: ${whole(result.served.requests.served)} ${say("requestsServed")} ${clock(result.served.duration_seconds)}` : ""}</p>
      {result && (
        <div class={running || result.key !== key || refusal ? "traffic stale" : "traffic"}>
          <Results served={result.served} fit={result.fit} say={say} />
        </div>
      )}
    </>
  );
}

export function Running({ progress, say }: { progress: Progress | null; say: Say }) {
  const figures = progress?.figures;
  const told = figures
    ? [
        `${whole(progress.done)}${progress.total ? ` / ${whole(progress.total)}` : ""} ${say("requestsUnit")}`,
        `${clock(figures.simulated_seconds ?? 0)} ${say("simulated")}`,
        `${whole(figures.running ?? 0)} ${say("running")}`,
        `${whole(figures.waiting ?? 0)} ${say("waiting")}`,
        `${say("pool")} ${percent(figures.kv_pool_usage ?? 0)}`,
        `${rough(figures.computed_tokens_per_second ?? 0)} ${say("perSecond")}`,
        ...(figures.ttft_mean_seconds === undefined ? [] : [`TTFT ${seconds(figures.ttft_mean_seconds)}`]),
        ...(figures.tpot_mean_seconds === undefined ? [] : [`TPOT ${seconds(figures.tpot_mean_seconds)}`]),
      ].join(" · ")
    : say(alone ? "starting" : "working");
  const known = progress && progress.total > 0;
  return (
    <div class="running">
      <progress aria-label={say("progress")} max={known ? progress.total : undefined} value={known ? progress.done : undefined} />
      <span class="number">{told}</span>
    </div>
  );
}

interface FormProps extends Omit<Props, "fit" | "traffic"> {
  presets: Preset[];
  onRun: () => void;
}

function WorkloadForm({ question, presets, say, trace, onTrace, onChange, onRun }: FormProps) {
  const text = question.workload;
  const { name } = described(text);
  const preset = presets.find((one) => one.name === name);
  const known = preset !== undefined || (PROCESSES as readonly string[]).includes(name) || text === TRACE;
  const [writing, setWriting] = useState(false);
  const kind = writing || (!known && presets.length > 0) ? OWN : name;
  const set = (workload: string) => onChange({ workload });
  const choose = (chosen: string) => {
    setWriting(chosen === OWN);
    if (chosen !== OWN) set(BEGINNINGS[chosen] ?? chosen);
    else if (text === TRACE) set(BEGINNINGS.poisson ?? "");
  };
  const kinds = [...presets.map((one) => one.name), ...PROCESSES, OWN, TRACE];
  const base = described(preset?.workload ?? text);
  const fields = fieldsOf(base.name);
  return (
    <form
      class="workload"
      aria-label={say("tab_traffic")}
      onSubmit={(event) => {
        event.preventDefault();
        onRun();
      }}
    >
      <label class="field">
        <span>{say("workload")}</span>
        <select value={kind} onChange={(event) => choose(event.currentTarget.value)}>
          {(kinds.includes(kind) ? kinds : [kind, ...kinds]).map((one) => (
            <option key={one} value={one} selected={one === kind}>{named(say, `workload_${one}`).replace(/^workload_/, "")}</option>
          ))}
        </select>
      </label>
      {kind === TRACE ? (
        <TraceField say={say} trace={trace} onTrace={onTrace} />
      ) : kind === OWN ? (
        <div class="wide">
          <Text label={say("description")} value={text} hint="gamma:rate=5,cv=2,input=lognormal(1024,0.8),output=256" onChange={set} />
        </div>
      ) : (
        fields.map((field) => (
          <Text key={field} label={say(`part_${field}`)} value={valueOf(text, field)} hint={valueOf(preset?.workload ?? "", field) || HINTS[field]} onChange={(value) => set(withValue(text, field, value))} />
        ))
      )}
      <Text label={say("ttftObjective")} value={question.ttft} hint="2s" onChange={(ttft) => onChange({ ttft })} />
      <Text label={say("tpotObjective")} value={question.tpot} hint="50ms" onChange={(tpot) => onChange({ tpot })} />
      {preset && kind !== OWN && (
        <details class="wide">
          <summary>{say("workloadSources")}</summary>
          <p class="caption" lang="en"><code>{preset.workload}</code></p>
          {(question.language === "zh" ? preset.sources_chinese : preset.sources).map((source) => <p key={source} class="caption">{source}</p>)}
        </details>
      )}
    </form>
  );
}

const HINTS: Record<string, string> = { requests: "1000", think: "0s" };

type Field = "rate" | "count" | "think" | "input" | "output" | "requests";

/** What is edited of each process. */
function fieldsOf(process: string): Field[] {
  if (process === "users") return ["count", "think", "input", "output", "requests"];
  return process === "batch" ? ["input", "output", "requests"] : ["rate", "input", "output", "requests"];
}

function TraceField({ say, trace, onTrace }: { say: Say; trace: TraceFile | null; onTrace: (trace: TraceFile | null) => void }) {
  const [refusal, setRefusal] = useState("");
  const take = async (file: File | undefined) => {
    if (!file) return;
    setRefusal(file.size > MAX_TRACE_BYTES ? say("traceTooLarge") : "");
    onTrace(file.size > MAX_TRACE_BYTES ? null : { name: file.name, base64: await base64Of(file) });
  };
  return (
    <div
      class="wide drop"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        event.stopPropagation(); // elsewhere a file is a configuration, a command or a log
        document.body.classList.remove("dropping");
        take(event.dataTransfer?.files[0]);
      }}
    >
      <label class="field">
        <span>{say("traceHint")}</span>
        <input type="file" accept=".csv,.tsv,.jsonl,.json,.txt,.gz,.bz2,.xz" onChange={(event) => take(event.currentTarget.files?.[0])} />
      </label>
      {trace && <p class="number">{say("traceTaken")}: {trace.name}</p>}
      {refusal && <p class="refusal" role="alert">{refusal}</p>}
    </div>
  );
}
