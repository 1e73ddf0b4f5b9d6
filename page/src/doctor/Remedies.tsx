// What helps, cheapest first: its flag, what it costs and changes, and the corrected deployment.

import { useState } from "preact/hooks";
import { ask, type Fit } from "../api";
import { useAnswer } from "../ask";
import { Copy } from "../Copy";
import { languageOf, size, whole } from "../format";
import { MemoryBar } from "../MemoryBar";
import type { Question } from "../question";
import { named, type Say } from "../words";
import { bodyOfDeployment, type Deployment } from "./corrected";
import { type Diagnosis, type Effect, kindOf, type Remedy } from "./diagnosis";
import type { DoctorSay } from "./words";

interface Props {
  found: Diagnosis;
  question: Question;
  say: Say;
  told: DoctorSay;
  onOpen: (deployment: Deployment) => void;
}

export function Remedies({ found, question, say, told, onOpen }: Props) {
  const { ledger, remedies } = found;
  const before = found.question;
  const after = remedies.map((remedy) => remedy.question ?? null);
  const [chosen, setChosen] = useState<number | null>(null);
  const first = after.findIndex((deployment) => deployment !== null);
  const shown = chosen ?? first;
  const deployment = after[shown];
  const remedy = remedies[shown];
  return (
    <>
      {remedies.length > 0 && (
        <section class="fixes">
          <h3>{told("fixes")}</h3>
          <ol>
            {remedies.map((one, index) => {
              const changed = after[index] ?? null;
              return (
                <li key={`${one.key} ${one.flag}`} class={changed && index === shown ? "fix chosen" : "fix"}>
                  <div class="fix-what">
                    <p><b>{one.what}</b></p>
                    {one.flag && (
                      <p class="fix-flag">
                        <code>{one.flag}</code>
                        <Copy text={one.flag} of={one.flag} say={say} />
                      </p>
                    )}
                  </div>
                  <div class="fix-effect">
                    <span class={`cost cost-${one.cost}`}>{told(`cost_${one.cost}`)}</span>
                    <EffectView effect={one.effect} startedBefore={ledger?.verdict !== "does_not_fit"} say={say} told={told} />
                  </div>
                  {changed && (
                    <div class="fix-do">
                      <button type="button" aria-pressed={index === shown} onClick={() => setChosen(index)}>{told(index === shown ? "shown" : "show")}</button>
                      <button type="button" class={index === shown ? "primary" : ""} onClick={() => onOpen(changed)}>{told("open")}</button>
                    </div>
                  )}
                </li>
              );
            })}
          </ol>
        </section>
      )}
      {ledger && before && (
        <section class="ledger">
          <header>
            <h3>{told("ledger")}</h3>
            <button type="button" class="quiet" onClick={() => onOpen(before)}>{told("openAsIs")}</button>
          </header>
          <p class={`ledger-verdict verdict-${ledger.verdict}`}>
            <b>{told("asItWas")}:</b> <strong>{named(say, ledger.verdict)}</strong> {told("byLedger")}{ledger.reason && ` · ${ledger.reason}`}
          </p>
          {ledger.verdict !== "does_not_fit" && kindOf(found) === "cause" && found.phase !== "prefill" && found.phase !== "decode" && found.phase !== "runtime" && <p class="caption">{told("ledgerDiffers")}</p>}
          <MemoryBar fit={ledger} say={say} />
          {remedy && deployment && <Corrected key={remedy.key} ledger={ledger} remedy={remedy} deployment={deployment} question={question} say={say} told={told} onOpen={onOpen} />}
        </section>
      )}
    </>
  );
}

const FELT = 0.01;

function EffectView({ effect, startedBefore, say, told }: { effect: Effect | null; startedBefore: boolean; say: Say; told: DoctorSay }) {
  if (!effect) return <span class="soft">{told("noEffect")}</span>;
  const lines: string[] = [];
  const changed = ([one, two]: [number, number], label: string, written: (value: number) => string) => {
    if (one !== two) lines.push(`${label} ${written(one)} → ${written(two)}`);
  };
  changed(effect.pool_tokens, say("pool"), (count) => whole(count));
  changed(effect.activation_bytes, told("activation"), size);
  changed(effect.weights_bytes, say("weights"), size);
  for (const [label, ratio] of [["TTFT", effect.ttft_ratio], ["TPOT", effect.tpot_ratio]] as const) {
    if (ratio !== null && Math.abs(ratio - 1) >= FELT) lines.push(`${label} ${ratio > 1 ? "+" : "−"}${Math.round(Math.abs(ratio - 1) * 100)}%`);
  }
  return (
    <>
      {!effect.starts && <span class="starts-not">{told("startsNot")}</span>}
      {effect.starts && !startedBefore && <span class="starts">{told("starts")}</span>}
      {lines.map((line) => <span key={line} class="number">{line}</span>)}
      {effect.starts && startedBefore && !lines.length && <span class="soft">{told("unchanged")}</span>}
    </>
  );
}

interface CorrectedProps extends Omit<Props, "found"> {
  ledger: Fit;
  remedy: Remedy;
  deployment: Deployment;
}

function Corrected({ ledger, remedy, deployment, question, say, told, onOpen }: CorrectedProps) {
  const body = bodyOfDeployment(question, deployment, ledger);
  const { answer, refusal, stale } = useAnswer(JSON.stringify(body), (signal) => ask<Fit>("fit", body, signal), { unreachable: say("unreachable") });
  if (refusal) return <p class="refusal" role="alert" lang={languageOf(refusal)}>{refusal}</p>;
  if (!answer) return <p>{say("working")}</p>;
  return (
    <div class={stale ? "corrected stale" : "corrected"} aria-live="polite">
      <p class={`ledger-verdict verdict-${answer.verdict}`}>
        <b>{told("correctedWith")} {remedy.flag ? <code>{remedy.flag}</code> : remedy.what}:</b> <strong>{named(say, answer.verdict)}</strong> {told("byLedger")}{answer.reason && ` · ${answer.reason}`}
      </p>
      <MemoryBar fit={answer} say={say} />
      {answer.command && (
        <div class="launch">
          <span class="label">{told("correctedCommand")}</span>
          <code tabIndex={0}>{answer.command}</code>
          <Copy text={answer.command} of={told("correctedCommand")} say={say} />
          <button type="button" class="primary" onClick={() => onOpen(deployment)}>{told("open")}</button>
        </div>
      )}
    </div>
  );
}
