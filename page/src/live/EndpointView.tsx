// One server that is watched: its engines, and the memory that was predicted for it.

import { languageOf, percent, rough, seconds, size, whole } from "../format";
import { type Endpoint, type Gpu, type Latency, LATENCIES, type Moment, type Planned, type Point, type Replica, seriesOf, WATERLINE } from "./observation";
import { Sparkline } from "./Sparkline";
import { timeOf } from "./times";
import type { LiveSay } from "./words";

interface Props {
  endpoint: Endpoint;
  gpus: Gpu[];
  history: Moment[];
  say: LiveSay;
}

const NONE = "—";
const told = (value: number | null, written: (value: number) => string): string => (value === null ? NONE : written(value));

export function EndpointView({ endpoint, gpus, history, say }: Props) {
  const { url, status, since, error, restarts, facts, replicas, torch } = endpoint;
  return (
    <section class={`endpoint endpoint-${status}`} aria-label={url}>
      <header>
        <h2>{url}</h2>
        <span class={`status status-${status}`}>
          {status === "waiting" ? say("status_waiting") : `${say(`status_${status}`)} ${timeOf(since)}`}
          {restarts > 0 && ` · ${say("restarts")}: ${whole(restarts)}`}
        </span>
        {facts && <span class="soft">{[facts.model, [facts.engine, facts.version].filter(Boolean).join(" ")].filter(Boolean).join(" · ")}</span>}
      </header>
      {status === "down" && (
        <>
          <p class="refusal" lang={languageOf(error ?? "")}>{error}</p>
          <p class="soft">{say("downNote")}</p>
        </>
      )}
      {replicas.map((replica) => (
        <ReplicaView key={`${replica.model} ${replica.rank}`} replica={replica} url={url} alone={replicas.length === 1} history={history} say={say} />
      ))}
      <Memory endpoint={endpoint} gpus={gpus} say={say} />
      {torch.length > 0 && (
        <p class="number">
          {say("torch")}: {torch.map(({ gpu, allocated_bytes, reserved_bytes }) => `GPU ${gpu} ${say("allocated")} ${size(allocated_bytes)}, ${say("reserved")} ${size(reserved_bytes)}`).join(" · ")}
        </p>
      )}
      {endpoint.host_bytes !== null && <p class="caption number">{say("host")}: {size(endpoint.host_bytes)}</p>}
    </section>
  );
}

interface ReplicaProps extends Pick<Props, "history" | "say"> {
  replica: Replica;
  url: string;
  /** It is the only one of its server. */
  alone: boolean;
}

function ReplicaView({ replica, url, alone, history, say }: ReplicaProps) {
  const { kv_share: share, running, waiting, totals } = replica;
  const level = share === null ? "none" : share >= 0.95 ? "full" : share >= WATERLINE ? "high" : "fine";
  const name = alone && replica.rank === null ? "" : [replica.rank !== null && `${say("rank")} ${replica.rank}`, replica.model].filter(Boolean).join(" · ");
  const spark = (points: Point[], label: string, written: (value: number) => string): string => {
    const values = points.flatMap(([, value]) => (value === null ? [] : [value]));
    const last = values.at(-1);
    const minutes = Math.max(1, Math.round(((points.at(-1)?.[0] ?? 0) - (points[0]?.[0] ?? 0)) / 60));
    return `${label}, ${say("over")} ${minutes} min: ${say("now")} ${last === undefined ? NONE : written(last)}, ${say("most")} ${values.length ? written(Math.max(...values)) : NONE}`;
  };
  const kv = seriesOf(history, url, replica, "kv_share");
  const runs = seriesOf(history, url, replica, "running");
  const waits = seriesOf(history, url, replica, "waiting");
  const output = seriesOf(history, url, replica, "generation_tokens_per_second");
  const most = Math.max(1, ...[...runs, ...waits].map(([, value]) => value ?? 0));
  return (
    <div class="replica">
      {name && <h3>{name}</h3>}
      <div class="tiles">
        <div class="tile">
          <span class="label">{say("kv")} <span class="soft">{`(${say("waterline")} ${percent(WATERLINE)})`}</span></span>
          <b class={`value number kv-${level}`}>{told(share, percent)}</b>
          <svg class="gauge" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">

            <rect class="seg-free" width="100" height="8" />
            <rect class={`gauge-${level}`} width={100 * Math.min(1, share ?? 0)} height="8" />
            <line class="edge" x1={100 * WATERLINE} x2={100 * WATERLINE} y1="0" y2="8" />
          </svg>
          {replica.kv_used_tokens !== null && replica.kv_pool_tokens !== null && (
            <span class="note number">{`${whole(replica.kv_used_tokens)} / ${whole(replica.kv_pool_tokens)} ${say("tokens")}`}</span>
          )}
          <Sparkline points={kv} top={1} mark={WATERLINE} label={spark(kv, say("kv"), percent)} />
        </div>
        <div class="tile">
          <span class="label">{say("requests")}</span>
          <span><b class="value number">{told(running, whole)}</b> {say("running")}</span>
          <Sparkline points={runs} top={most} label={spark(runs, say("running"), whole)} />
          <span><b class={waiting ? "value number waits" : "value number"}>{told(waiting, whole)}</b> {say("waiting")}</span>
          <Sparkline points={waits} top={most} label={spark(waits, say("waiting"), whole)} />
        </div>
        <div class="tile">
          <span class="label">{say("output")}</span>
          <span><b class="value number">{told(replica.generation_tokens_per_second, rough)}</b> tok/s</span>
          <Sparkline points={output} top={1} label={spark(output, say("output"), (value) => `${rough(value)} tok/s`)} />
          <span class="note number">{say("prompts")} {told(replica.prompt_tokens_per_second, rough)} tok/s</span>
          <span class="note number">{told(totals.requests, whole)} {say("served")}</span>
        </div>
        <div class="tile">
          <span class="label">{say("preempted")}</span>
          <b class={replica.preemptions ? "value number kv-full" : "value number"}>{told(totals.preemptions, whole)}</b>
          <span class="note">{say("sinceBegan")}{replica.preemptions ? <> · <b class="number">{whole(replica.preemptions)}</b> {say("preemptedNow")}</> : ""}</span>
          <span class="label">{say("hits")}</span>
          <b class="value number">{told(replica.prefix_hit_share, percent)}</b>
        </div>
        <Latencies replica={replica} say={say} />
      </div>
    </div>
  );
}

function Latencies({ replica, say }: { replica: Replica; say: LiveSay }) {
  const found = LATENCIES.map((name) => [name, replica[name]] as const).filter((pair): pair is [(typeof LATENCIES)[number], Latency] => pair[1] !== null);
  if (!found.length) return <p class="tile soft">{`${say("latency")}: ${say("noLatency")}`}</p>;
  return (
    <div class="tile scroll latencies" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">{say("latency")}</th>
            <th scope="col">p50</th>
            <th scope="col">p90</th>
            <th scope="col">p99</th>
            <th scope="col">{say("mean")}</th>
            <th scope="col">{say("count")}</th>
          </tr>
        </thead>
        <tbody>
          {found.map(([name, latency]) => (
            <tr key={name}>
              <th scope="row">{say(`latency_${name}`)}</th>
              <td class="number">{seconds(latency.p50_seconds)}</td>
              <td class="number">{seconds(latency.p90_seconds)}</td>
              <td class="number">{latency.beyond ? `${say("beyond")} ` : ""}{seconds(latency.p99_seconds)}</td>
              <td class="number">{seconds(latency.mean_seconds)}</td>
              <td class="number">{whole(latency.count)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What was predicted beside what the server and its GPUs tell. */
function Memory({ endpoint, gpus, say }: Pick<Props, "endpoint" | "gpus" | "say">) {
  const { planned, no_plan: noPlan, facts, replicas } = endpoint;
  if (!planned) {
    return noPlan ? <p class="caption">{say("noPlan")} <span lang={languageOf(noPlan)}>{noPlan}</span></p> : null;
  }
  const fullest = gpus.length ? Math.max(...gpus.map((gpu) => gpu.used_bytes)) : null;
  const tokens = facts?.kv_pool_tokens ?? replicas[0]?.kv_pool_tokens ?? null;
  const rows: [string, number, number | null, (value: number) => string][] = [
    [say("part_weights"), planned.weights_bytes, facts?.weights_bytes ?? null, size],
    [say("part_activation"), planned.activation_bytes, null, size],
    [say("part_graphs"), planned.graphs_bytes, facts?.graphs_bytes ?? null, size],
    [say("part_other"), planned.other_bytes, null, size],
    [say("part_pool"), planned.kv_pool_bytes, facts?.kv_bytes ?? null, size],
    [say("part_peak"), planned.peak_bytes, fullest, size],
    [say("part_tokens"), planned.kv_pool_tokens, tokens, whole],
  ];
  return (
    <div class="planned">
      <h3>{say("memory")}</h3>
      {!planned.starts && <p class="refusal">{say("plannedNot")}</p>}
      <PlannedBar planned={planned} say={say} />
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <td />
              <th scope="col">{say("predicted")}</th>
              <th scope="col">{say("observed")}</th>
              <th scope="col">{say("difference")}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, predicted, observed, written]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td class="number">{written(predicted)}</td>
                <td class="number">{observed === null ? <span class="soft">{say("notTold")}</span> : written(observed)}</td>
                <td class="number">{observed === null || predicted === 0 ? "" : signed(observed / predicted - 1)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="caption">
        {planned.gpus} × {planned.gpu} · {say(planned.told_by === "command" ? "byCommand" : "byEndpoint")}
        {planned.assumed.length > 0 && <>{` · ${say("assumed")}: `}<code>{planned.assumed.join(", ")}</code></>}
      </p>
    </div>
  );
}

function PlannedBar({ planned, say }: { planned: Planned; say: LiveSay }) {
  const parts: [string, string, number][] = [
    ["context", say("part_other"), planned.other_bytes],
    ["weights", say("part_weights"), planned.weights_bytes],
    ["activation", say("part_activation"), planned.activation_bytes],
    ["graphs", say("part_graphs"), planned.graphs_bytes],
    ["kv", say("part_pool"), planned.kv_pool_bytes],
  ];
  let at = 0;
  return (
    <svg class="bar thin" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label={`${say("predicted")}: ${parts.map(([, name, bytes]) => `${name} ${size(bytes)}`).join(", ")}`}>
      {parts.map(([key, name, bytes]) => {
        const width = (1000 * bytes) / (planned.peak_bytes || 1);
        const x = at;
        at += width;
        return (
          <rect key={key} class={`seg-${key}`} x={x} width={width} height="20">
            <title>{`${name}: ${size(bytes)}`}</title>
          </rect>
        );
      })}
    </svg>
  );
}

const signed = (share: number): string => {
  const whole = (Math.abs(share) * 100).toFixed(1);
  return whole === "0.0" ? "0%" : `${share < 0 ? "−" : "+"}${whole}%`;
};
