// The Live tab: what the watched servers and this machine's GPUs hold now.

import { useMemo } from "preact/hooks";
import { alone } from "../api";
import { Copy } from "../Copy";
import { gib, languageOf, percent, size, whole } from "../format";
import type { Language } from "../question";
import type { Say } from "../words";
import { EndpointView } from "./EndpointView";
import type { Alert, Gpu, Moment, Observation, Point } from "./observation";
import { Sparkline } from "./Sparkline";
import { timeOf } from "./times";
import type { Live } from "./useLive";
import { gpusError, type LiveSay, sayLive } from "./words";

interface Props {
  live: Live;
  language: Language;
  say: Say;
}

export function LivePanel({ live, language, say }: Props) {
  const told = useMemo(() => sayLive(language), [language]);
  const { seen, history, lost, stale, watching } = live;
  if (!seen && lost) return <p class="refusal" role="alert">{told("lostFirst")}</p>;
  if (!seen && !alone) return <p>{say("working")}</p>;
  if (!seen || !watching) return <p>{told(alone ? "nothingAlone" : "nothing")}</p>;
  return (
    <div class={lost || stale ? "live old" : "live"}>
      <Head live={live} seen={seen} told={told} />
      <Alerts alerts={seen.alerts} told={told} say={say} />
      {seen.endpoints.map((endpoint) => (
        <EndpointView key={endpoint.url} endpoint={endpoint} gpus={seen.gpus} history={history} say={told} />
      ))}
      <Gpus seen={seen} history={history} told={told} />
    </div>
  );
}

/** Whether what is shown is how it is now. */
function Head({ live, seen, told }: { live: Live; seen: Observation; told: LiveSay }) {
  const { lost, stale, paused, pause } = live;
  const word = lost ? "lost" : stale ? "stale" : paused ? "paused" : null;
  const told_at = live.history.at(-1)?.time ?? seen.time;
  return (
    <div class="live-head">
      <p role="status" class={word ? "kept" : "soft"}>{word ? `${told(word)} ${timeOf(told_at)}` : told("fine")}</p>
      <span class="soft number">{`${told("every")} ${seen.interval_seconds} s · ${told("window")} ${Math.round(seen.window_seconds)} s`}</span>
      <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>{told(paused ? "resume" : "pause")}</button>
    </div>
  );
}

const SIGNS = { critical: "!", warning: "▲", notice: "i" };

function Alerts({ alerts, told, say }: { alerts: Alert[]; told: LiveSay; say: Say }) {
  return (
    <section class="alerts" aria-label={told("alerts")}>
      <p class="sr-only" role="status">{alerts.map(({ severity, text }) => `${told(`severity_${severity}`)}: ${text}`).join("; ")}</p>
      {alerts.length === 0 && <p class="calm"><span aria-hidden="true">✓</span> {told("noAlerts")}</p>}
      <ul>
        {alerts.map((alert) => (
          <li key={`${alert.key} ${alert.subject}`} class={`alert alert-${alert.severity}`}>
            <span class="sign" aria-hidden="true">{SIGNS[alert.severity]}</span>
            <div>
              <p>
                <b>{told(`severity_${alert.severity}`)}</b> <span lang={languageOf(alert.text)}>{alert.text}</span>
              </p>
              <p class="caption number">{alert.subject} · {told("sinceTime")} {timeOf(alert.since)}</p>
              {alert.helps.length > 0 && (
                <details>
                  <summary>{told("helps")} ({alert.helps.length})</summary>
                  <ul>
                    {alert.helps.map(({ key, flag, text }) => (
                      <li key={key} class="fix-flag">
                        {text} {flag && !text.includes(flag) && <code>{flag}</code>} {flag && <Copy text={flag} of={flag} say={say} />}
                      </li>
                    ))}
                  </ul>
                </details>
              )}
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Gpus({ seen, history, told }: { seen: Observation; history: Moment[]; told: LiveSay }) {
  const { gpus, gpus_error: error } = seen;
  if (!gpus.length) return error ? <p class="caption">{gpusError(told, error)}</p> : null;
  const peaks = seen.endpoints.flatMap(({ planned }) => (planned ? [planned.peak_bytes] : []));
  return (
    <section class="gpus">
      <h2>{told("gpus")}</h2>
      <div class="tiles">
        {gpus.map((gpu) => <GpuView key={gpu.index} gpu={gpu} peak={peaks.length === 1 ? (peaks[0] ?? null) : null} history={history} told={told} />)}
      </div>
    </section>
  );
}

function GpuView({ gpu, peak, history, told }: { gpu: Gpu; peak: number | null; history: Moment[]; told: LiveSay }) {
  const points: Point[] = history.map(({ time, gpus }) => [time, gpus.find((one) => one.index === gpu.index)?.used_bytes ?? null]);
  const share = (100 * gpu.used_bytes) / gpu.total_bytes;
  return (
    <div class="tile gpu">
      <span class="label">{`GPU ${gpu.index} · ${gpu.name}`}</span>
      <span><b class="value number">{gib(gpu.used_bytes)}</b> / {gib(gpu.total_bytes)} GiB {told("used")}</span>
      <svg class="gauge" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={`${percent(share / 100)}${peak === null ? "" : `, ${told("predictedPeak")} ${gib(peak)} GiB`}`}>
        <rect class="seg-free" width="100" height="8" />
        <rect class="seg-weights" width={share} height="8" />
        {peak !== null && <line class="edge" x1={(100 * peak) / gpu.total_bytes} x2={(100 * peak) / gpu.total_bytes} y1="0" y2="8" />}
      </svg>
      {peak !== null && <span class="note number">{`${told("predictedPeak")} ${gib(peak)} GiB`}</span>}
      <Sparkline points={points} top={gpu.total_bytes} mark={peak ?? undefined} label={`GPU ${gpu.index}: ${gib(gpu.used_bytes)} GiB ${told("used")}`} />
      <span class="note number">{gpu.busy_share !== null && `${told("busy")} ${percent(gpu.busy_share)}`}</span>
      {gpu.processes && gpu.processes.length > 0 && (
        <details>
          <summary>{`${whole(gpu.processes.length)} ${told("processes")}`}</summary>
          <ul>
            {gpu.processes.map(({ pid, name, used_bytes }) => (
              <li key={pid} class="number">{pid} {name} {used_bytes !== null && size(used_bytes)}</li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}
