// One plan: a replica's memory, its speed, the simulation that verified it, and what starts it.

import { useEffect, useState } from "preact/hooks";
import { ask, type Fit, Refusal, type Speed } from "../api";
import { useAnswer } from "../ask";
import { Copy } from "../Copy";
import { download } from "../exporting";
import { Figure, Figures } from "../Figures";
import { percent, rough, seconds, whole } from "../format";
import { MemoryBar } from "../MemoryBar";
import { deploymentOf } from "../opening";
import type { Language, Question } from "../question";
import { Switch } from "../Switch";
import { Results } from "../traffic/Results";
import { Running } from "../traffic/TrafficPanel";
import type { Distribution } from "../traffic/simulation";
import { useTraffic } from "../traffic/useTraffic";
import type { Say } from "../words";
import { type Demand, type Option } from "./plan";
import type { PlanSay, PlanWord } from "./words";

interface Props {
  option: Option;
  demand: Demand;
  language: Language;
  price: string;
  say: Say;
  told: PlanSay;
  onOpen: (deployment: Partial<Question>) => void;
}

/** Where a layout of weights has no published checkpoint, the command has a blank to fill in. */
const BLANK = /'<a checkpoint of (\S+) in (\S+)>'/;

/** The command with the model named, and the layout that is left over. */
function readable(option: Option): { command: string; weights?: string } {
  const command = option.launch.command ?? "";
  const [, model, weights] = BLANK.exec(command) ?? [];
  return model && weights ? { command: command.replace(BLANK, model), weights } : { command };
}

/** A replica as POST /v1/fit takes it: by the command that starts it. */
function replicaBody(option: Option, language: Language): Record<string, unknown> {
  return {
    ...readable(option),
    ...(option.engine.includes("@") ? { engine: option.engine } : {}),
    gpu: option.accelerator,
    gpus: option.gpus_per_replica,
    language,
  };
}

export function PlanDetail({ option, demand, language, price, say, told, onOpen }: Props) {
  // prompts and answers apart are started by a script of several servers, which is no deployment
  const starts = option.launch.command !== null && !option.split;
  const body = replicaBody(option, language);
  const concurrency = Math.max(1, Math.round(option.concurrency));
  const fitBody = { ...body, request_tokens: demand.input_tokens + demand.output_tokens, concurrency };
  const speedBody = { ...body, input: demand.input_tokens, output: demand.output_tokens, concurrency, ...(Number(price) > 0 ? { price: Number(price) } : {}) };
  const unreachable = say("unreachable");
  const { answer: fit, refusal } = useAnswer(starts ? JSON.stringify(fitBody) : "", (signal) => ask<Fit>("fit", fitBody, signal), { unreachable });
  const { answer: speed, stale, refusal: noSpeed } = useAnswer(starts ? JSON.stringify(speedBody) : "", (signal) => ask<Speed>("speed", speedBody, signal), { unreachable });
  const [trouble, setTrouble] = useState("");
  const open = async (more: Partial<Question>) => {
    try {
      onOpen({
        ...(await deploymentOf(readable(option).command, option.accelerator, language)),
        ...(readable(option).weights ? { weights: readable(option).weights } : {}),
        gpus: option.gpus_per_replica,
        input: demand.input_tokens,
        output: demand.output_tokens,
        concurrency,
        ttft: demand.ttft_seconds ? `${demand.ttft_seconds}s` : "",
        tpot: demand.tpot_seconds ? `${demand.tpot_seconds}s` : "",
        price,
        ...more,
      });
    } catch (error) {
      setTrouble(error instanceof Refusal ? error.message : unreachable);
    }
  };
  const { workload } = option.simulated;
  return (
    <section class="plan-detail" aria-label={option.name}>
      <header class="above">
        <h3>{option.name} <small>{option.model}{option.replicas > 1 && ` · ${told("replica")} ${whole(option.replicas)}`}</small></h3>
        {starts && (
          <span class="buttons">
            <button type="button" onClick={() => open({ tab: "growth" })}>{told("openCalculator")}</button>
            {workload && <button type="button" onClick={() => open({ tab: "traffic", workload, run: "" })}>{told("openTraffic")}</button>}
          </span>
        )}
      </header>
      {trouble && <p class="refusal" role="alert">{trouble}</p>}
      <ul class="remarks">{option.remarks.map((line) => <li key={line}>{line}</li>)}</ul>
      {refusal && <p class="refusal">{refusal}</p>}
      {fit && (
        <>
          <MemoryBar fit={fit} say={say} />
          <h4>{told("speed")}</h4>
          <Figures fit={fit} speed={speed} speedStale={stale} speedRefusal={noSpeed} say={say} />
        </>
      )}
      <Simulation option={option} demand={demand} fit={fit} body={body} say={say} told={told} />
      {option.launch.command !== null ? <Starting option={option} say={say} told={told} /> : <p class="caption">{told("noCommand")}</p>}
    </section>
  );
}

interface SimulationProps extends Pick<Props, "option" | "demand" | "say" | "told"> {
  fit: Fit | null;
  body: Record<string, unknown>;
}

function Simulation({ option, demand, fit, body, say, told }: SimulationProps) {
  const traffic = useTraffic(say("unreachable"));
  const { simulated } = option;
  const key = JSON.stringify(body);
  const time = (value: number | null) => (value === null ? "—" : seconds(value));
  const spread = ({ p50_seconds, p99_seconds }: Distribution) => `p50 ${time(p50_seconds)} · p99 ${time(p99_seconds)}`;
  const load = demand.users === null
    ? `${rough(simulated.load_per_replica)} ${say("requestsPerSecond")}`
    : `${whole(simulated.load_per_replica)} ${told(demand.think_seconds ? "usersUnit" : "clientsUnit")}`;
  useEffect(() => traffic.cancel, [key]);
  const shown = traffic.result?.key === key ? traffic.result : null;
  const { ttft_seconds, tpot_seconds } = demand;
  const watch = () =>
    fit &&
    traffic.start(
      {
        ...body,
        workload: simulated.workload,
        ...(ttft_seconds ? { ttft: `${ttft_seconds}s` } : {}),
        ...(tpot_seconds ? { tpot: `${tpot_seconds}s` } : {}),
      },
      key,
      fit,
    );
  return (
    <>
      <h4>{told("traffic")} <small>{load} · {whole(simulated.requests)} {told("requestsCounted")}</small></h4>
      <div class="figures">
        <Figure label="TTFT p95" value={time(simulated.ttft.p95_seconds)} note={spread(simulated.ttft)} />
        <Figure label="TPOT p95" value={time(simulated.tpot.p95_seconds)} note={spread(simulated.tpot)} />
        <Figure label={told("runningAtOnce")} value={rough(simulated.running.mean)} note={`${told("atMost")} ${whole(simulated.running.max)}`} />
        <Figure label={told("waiting")} value={rough(simulated.waiting.mean)} note={`${told("atMost")} ${whole(simulated.waiting.max)}`} />
        <Figure label={say("pool")} value={percent(simulated.kv_pool_usage_max)} note={told("atMost")} />
        <Figure label={say("preemptions")} value={whole(simulated.preemptions)} />
      </div>
      {simulated.workload && fit && !shown && (
        <div class="run-row">
          {traffic.running ? <button type="button" onClick={traffic.cancel}>{say("cancel")}</button> : <button type="button" onClick={watch}>{told("watch")}</button>}
          {traffic.running && <Running progress={traffic.progress} say={say} />}
        </div>
      )}
      {traffic.refusal && <p class="refusal" role="alert">{traffic.refusal}</p>}
      {shown && <div class="traffic"><Results served={shown.served} fit={shown.fit} say={say} /></div>}
    </>
  );
}

const FORMS = { command: "sh", docker: "docker.sh", kubernetes: "k8s.yaml" } as const;

function Starting({ option, say, told }: Pick<Props, "option" | "say" | "told">) {
  const names = (Object.keys(FORMS) as (keyof typeof FORMS)[]).filter((name) => option.launch[name]);
  const [wanted, setForm] = useState<string>("command");
  const form = names.find((name) => name === wanted) ?? "command";
  const text = option.launch[form] ?? "";
  const title = told(`form_${form}` as PlanWord);
  return (
    <div class="starting">
      <div class="above">
        <h4>{told("start")}</h4>
        <Switch name="form" legend="" values={names} chosen={form} shown={(name) => told(`form_${name}` as PlanWord)} onChange={setForm} />
        <span class="buttons">
          <Copy text={text} say={say} of={title} />
          <button type="button" aria-label={`${told("save")}: ${title}`} onClick={() => download(`${option.accelerator}.${FORMS[form]}`, new Blob([`${text.trimEnd()}\n`], { type: "text/plain" }))}>{told("save")}</button>
        </span>
      </div>
      <pre tabIndex={0}><code>{text}</code></pre>
    </div>
  );
}
