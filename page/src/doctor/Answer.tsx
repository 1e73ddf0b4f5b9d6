// A diagnosis: what happened, how sure that is, when, by which lines, and what helps.

import { download } from "../exporting";
import { languageOf, rough, whole } from "../format";
import type { Question } from "../question";
import type { Say } from "../words";
import type { Deployment } from "./corrected";
import { type Diagnosis, kindOf, PHASES } from "./diagnosis";
import { Evidence } from "./Evidence";
import { lineOf, type Log } from "./logs";
import { Remedies } from "./Remedies";
import { Snapshot } from "./Snapshot";
import { doctorNamed, type DoctorSay } from "./words";

interface Props {
  found: Diagnosis;
  log: Log;
  question: Question;
  say: Say;
  told: DoctorSay;
  onOpen: (deployment: Deployment) => void;
  onTellMore: () => void;
}

const LEVELS = { high: 3, medium: 2, low: 1 };
const SIGNS = { cause: "!", healthy: "✓", other: "≠", unknown: "?" };

export function Answer({ found, log, question, say, told, onOpen, onTellMore }: Props) {
  const kind = kindOf(found);
  const save = () => download(`${log.name.replace(/[^\w.-]+/g, "-")}.json`, new Blob([JSON.stringify(found, null, 2)], { type: "application/json" }));
  return (
    <article class="diagnosis">
      <div class={`finding finding-${kind}`}>
        <span class="sign" aria-hidden="true">{SIGNS[kind]}</span>
        <div>
          <h2 tabIndex={-1}>{found.verdict}</h2>
          {found.reason && <p>{found.reason}</p>}
          {found.served_after !== null && <p>{`${told("servedAfter")} ${whole(lineOf(log, found.served_after))} ${told("servedAfterEnd")}`}</p>}
          {kind !== "healthy" && kind !== "unknown" && <Confidence level={found.confidence} told={told} />}
        </div>
        <button type="button" class="quiet" onClick={save}>{told("save")}</button>
      </div>
      {log.left_out > 0 && <p class="caption">{`${whole(log.left_out)} ${told("leftOut")} ${whole(log.lines)} ${told("leftOutLines")}`}</p>}
      {log.damaged && <p class="kept">{told("damaged")}</p>}
      {found.phase && <PhaseTrack phase={found.phase} told={told} />}
      {found.alternatives.length > 0 && <Alternatives found={found} told={told} />}
      <Evidence found={found} log={log} say={told} />
      {found.snapshot?.map((held) => <Snapshot key={held.device} held={held} told={told} />)}
      <Remedies found={found} question={question} say={say} told={told} onOpen={onOpen} />
      {!found.snapshot && <Recovered found={found} say={say} told={told} onTellMore={onTellMore} />}
    </article>
  );
}

function Confidence({ level, told }: { level: Diagnosis["confidence"]; told: DoctorSay }) {
  return (
    <p class="confidence">
      {told("confidence")}:{" "}
      <span class="meter" aria-hidden="true">
        {[1, 2, 3].map((step) => <i key={step} class={step <= LEVELS[level] ? "full" : ""} />)}
      </span>{" "}
      {told(`confidence_${level}`)}
    </p>
  );
}

function PhaseTrack({ phase, told }: { phase: string; told: DoctorSay }) {
  return (
    <ol class="phases" aria-label={told("phase")}>
      {PHASES.map((one) => (
        <li key={one} aria-current={one === phase ? "step" : undefined}>{told(`phase_${one}`)}</li>
      ))}
    </ol>
  );
}

function Alternatives({ found, told }: { found: Diagnosis; told: DoctorSay }) {
  return (
    <section class="alternatives">
      <h3>{told("otherwise")}</h3>
      <ul>
        {found.alternatives.map(({ cause, phase, weight }) => (
          <li key={cause}>
            <svg class="weight" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
              <rect class="seg-free" width="100" height="8" />
              <rect class="seg-context" width={100 * weight} height="8" />
            </svg>
            <span class="number">{Math.round(100 * weight)}%</span> {doctorNamed(told, "cause", cause)} <small>({doctorNamed(told, "phase", phase)})</small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Recovered({ found, say, told, onTellMore }: Pick<Props, "found" | "say" | "told" | "onTellMore">) {
  const { engine, version, model, gpu, gpus, flags, figures } = found.recovered;
  const known: [string, string | null][] = [
    [say("engine"), engine && [engine, version].filter(Boolean).join(" ")],
    [say("model"), model],
    [say("gpu"), gpu && `${gpus ?? 1} × ${gpu}`],
  ];
  const isStart = version !== null || model !== null || Object.keys(flags).length > 0;
  const missing = [
    ...known.filter(([, value]) => !value).map(([name]) => name),
    ...(engine && !version ? [say("version")] : []),
    ...(isStart ? [] : [told("flags")]),
  ];
  const printed = Object.entries(figures).filter(([, value]) => typeof value === "number") as [string, number][];
  return (
    <section class="recovered">
      <h3>{told("recovered")}</h3>
      <dl>
        {known.filter(([, value]) => value).map(([name, value]) => (
          <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
        ))}
        {isStart && (
          <div>
            <dt>{told("flags")}</dt>
            <dd>{Object.keys(flags).length ? <code>{Object.entries(flags).map(([name, value]) => `${name}=${written(value)}`).join("  ")}</code> : told("noFlags")}</dd>
          </div>
        )}
        {printed.length > 0 && (
          <div>
            <dt>{told("figures")}</dt>
            <dd class="number">{printed.map(([name, value]) => `${figureNamed(told, name)} ${withUnit(name, value)}`).join(" · ")}</dd>
          </div>
        )}
        {missing.length > 0 && (
          <div class="missing"><dt>{told("missing")}</dt><dd>{missing.join(", ")}</dd></div>
        )}
      </dl>
      {!found.ledger && found.no_ledger && (
        <p class="no-ledger">
          {told("noLedger")} <span lang={languageOf(found.no_ledger)}>{found.no_ledger}</span>{" "}
          <button type="button" onClick={onTellMore}>{told("tellMore")}</button>
        </p>
      )}
    </section>
  );
}

/** What a printed figure is called, without its unit. */
const figureNamed = (told: DoctorSay, name: string): string => {
  const word = doctorNamed(told, "figure", name);
  return word === name ? name.replace(/_(gib|mib)$/, "").replaceAll("_", " ") : word;
};

const written = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

function withUnit(name: string, value: number): string {
  const unit = { gib: "GiB", mib: "MiB" }[name.slice(-3)] ?? "";
  return `${Number.isInteger(value) ? whole(value) : rough(value)}${unit && ` ${unit}`}`;
}
