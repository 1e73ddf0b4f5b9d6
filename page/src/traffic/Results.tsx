// What became of a workload: the verdict, figures, distributions, and the run over time.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Fit } from "../api";
import { Figure } from "../Figures";
import { clock, percent, rough, seconds, whole } from "../format";
import type { Say } from "../words";
import { Latencies, RequestsOverTime, UsageOverTime } from "./charts";
import { Highway } from "./Highway";
import { type Distribution, LATENCIES, type Served } from "./simulation";

interface Props {
  served: Served;
  fit: Fit;
  say: Say;
}

const told = (value: number | null): string => (value === null ? "—" : seconds(value));

export function Results({ served, fit, say }: Props) {
  const [now, setNow] = useState(0);
  return (
    <>
      <Verdict served={served} say={say} />
      <Headline served={served} say={say} />
      <Highway served={served} fit={fit} say={say} onMoment={setNow} />
      <div class="charts">
        <UsageOverTime served={served} say={say} now={now} />
        <RequestsOverTime served={served} say={say} now={now} />
        <Latencies served={served} say={say} />
        <LatencyTable served={served} say={say} />
      </div>
    </>
  );
}

function Verdict({ served, say }: { served: Served; say: Say }) {
  const { falls_behind: behind, requests, goodput } = served;
  const refused = Object.values(requests.refused).reduce((sum, count) => sum + count, 0);
  const word = behind ? "fallsBehind" : behind === null ? "adapts" : "keepsUp";
  return (
    <div class={`verdict traffic-verdict verdict-${behind ? "does_not_fit" : "fits"}`}>
      <strong tabIndex={-1}>{say(word)}</strong>
      <p>
        <b class="number">{whole(requests.served)}</b> {say("requestsServed")} <span class="number">{clock(served.duration_seconds)}</span>
        {refused > 0 && <span class="refusal">{` · ${whole(refused)} ${say("refused")}`}</span>}
      </p>
      {goodput && (
        <p class="subject">
          {say("goodput")} <b class="number">{percent(goodput.share)}</b> ({promised(goodput)}), {rough(goodput.requests_per_second)} {say("requestsPerSecond")}
        </p>
      )}
      {behind && <p class="subject">{say("behindMeans")}</p>}
      {behind === null && <p class="subject">{say("adaptsMeans")}</p>}
      {refused > 0 && <p class="subject">{Object.entries(served.requests.refused).map(([why, count]) => `${whole(count)} ${say(why === "too_long" ? "refusedTooLong" : "refusedBeyond")}`).join(" · ")}</p>}
    </div>
  );
}

function promised(goodput: NonNullable<Served["goodput"]>): string {
  const parts = [
    ["TTFT", goodput.ttft_seconds],
    ["TPOT", goodput.tpot_seconds],
  ] as const;
  return parts.flatMap(([name, value]) => (value === null ? [] : [`${name} ≤ ${seconds(value)}`])).join(", ");
}

function Headline({ served, say }: { served: Served; say: Say }) {
  const { latency, throughput } = served;
  const spread = (of: Distribution) => `p95 ${told(of.p95_seconds)} · p99 ${told(of.p99_seconds)}`;
  const figures: [string, ComponentChildren, string][] = [
    [`${say("ttft")} p50`, told(latency.ttft.p50_seconds), spread(latency.ttft)],
    [`${say("tpot")} p50`, told(latency.tpot.p50_seconds), spread(latency.tpot)],
    [`${say("endToEnd")} p50`, told(latency.e2e.p50_seconds), spread(latency.e2e)],
    [
      say("total"),
      <>
        {rough(throughput.output_tokens_per_second)} <small>{say("perSecond")}</small>
      </>,
      `${rough(throughput.requests_per_second)} ${say("requestsPerSecond")}`,
    ],
    [say("pool"), percent(served.kv_pool_usage.max), `${say("onAverage")} ${percent(served.kv_pool_usage.mean)}`],
    [say("runningMost"), whole(served.running.max), `${say("waitingMost")} ${whole(served.waiting.max)}`],
    [say("preemptions"), whole(served.preemptions), ""],
  ];
  if (served.prefix_hit_rate) figures.push([say("prefixHits"), percent(served.prefix_hit_rate), say("ofPrompts")]);
  if (served.usd_per_million_output_tokens !== null) figures.push([say("cost"), `$${rough(served.usd_per_million_output_tokens)}`, ""]);
  return (
    <div class="figures">
      {figures.map(([label, value, note]) => (
        <Figure key={label} label={label} value={value} note={note} />
      ))}
    </div>
  );
}

const COLUMNS = ["mean", "p50", "p90", "p95", "p99", "max"] as const;

function LatencyTable({ served, say }: { served: Served; say: Say }) {
  return (
    <div class="scroll" tabIndex={0}>
      <table class="latencies">
        <thead>
          <tr>
            <th scope="col">{say("latency")}</th>
            {COLUMNS.map((name) => (
              <th scope="col" key={name}>{name === "mean" || name === "max" ? say(name === "mean" ? "mean" : "longestTime") : name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {LATENCIES.map((name) => (
            <tr key={name}>
              <th scope="row">{say(`latency_${name}`)}</th>
              {COLUMNS.map((column) => (
                <td key={column} class="number">{told(served.latency[name][`${column}_seconds`])}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
