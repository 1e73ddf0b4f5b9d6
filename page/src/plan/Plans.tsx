// The plans that hold as a table, and what was tried beside them.

import { useState } from "preact/hooks";
import { rough, seconds, whole } from "../format";
import { named, type Say } from "../words";
import { keyOf, type Plan, promisedOf, type Proposal, type Rejection } from "./plan";
import { planNamed, type PlanSay } from "./words";

interface Props {
  plan: Plan;
  chosen: string;
  say: Say;
  told: PlanSay;
  onChoose: (key: string) => void;
}

const dollars = (value: number | null): string => (value === null ? "—" : `$${value < 100 ? value.toFixed(2) : whole(value)}`);
const time = (value: number | null): string => (value === null ? "—" : seconds(value));

export function Plans({ plan, chosen, say, told, onChoose }: Props) {
  const { demand } = plan;
  const priced = plan.plans.some((one) => one.usd_per_hour !== null);
  const several = new Set(plan.plans.map(({ model }) => model)).size > 1;
  const of = (name: string) => `${name} ${demand.statistic === "mean" ? told("mean") : demand.statistic}`;
  return (
    <div class="scroll" tabIndex={0}>
      <table class="plans stacked" role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader"><span class="sr-only">#</span></th>
            <th scope="col" role="columnheader">{told("deployment")}</th>
            <th scope="col" role="columnheader" class="right">{told("gpuCount")}</th>
            {priced && <th scope="col" role="columnheader" class="right">{told("cost")}</th>}
            <th scope="col" role="columnheader" class="right">{of("TTFT")}</th>
            <th scope="col" role="columnheader" class="right">{of("TPOT")}</th>
            <th scope="col" role="columnheader" class="right">{told("throughput")}</th>
            <th scope="col" role="columnheader" class="right" title={told("roomHint")}>{told("room")}</th>
            <th scope="col" role="columnheader">{told("limiter")}</th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {plan.plans.map((one, index) => {
            const key = keyOf(one);
            return (
              <tr key={key} role="row" class={key === chosen ? "chosen" : ""} onClick={() => onChoose(key)}>
                <td role="cell" class="number place">{index + 1}</td>
                <th scope="row" role="rowheader">
                  <button type="button" class="link" aria-pressed={key === chosen} onClick={() => onChoose(key)}>{one.name}</button>
                  {several && <small> {one.model.replace(/^.*\//, "")}</small>}
                </th>
                <td role="cell" class="number right" data-label={told("gpuCount")}>{whole(one.gpus)}</td>
                {priced && <td role="cell" class="number right" data-label={told("cost")}>{dollars(one.usd_per_hour)}</td>}
                <td role="cell" class="number right" data-label={of("TTFT")}>{time(promisedOf(one.simulated.ttft, demand))}</td>
                <td role="cell" class="number right" data-label={of("TPOT")}>{time(promisedOf(one.simulated.tpot, demand))}</td>
                <td role="cell" class="number right" data-label={told("throughput")}>{rough(one.output_tokens_per_second)}</td>
                <td role="cell" class="number right" data-label={told("room")}>{one.headroom.toFixed(2)}×</td>
                <td role="cell" data-label={told("limiter")}>{named(say, one.limiter)}{one.extrapolated && <abbr title={told("extrapolated")}> *</abbr>}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {plan.plans.some((one) => one.extrapolated) && <p class="caption">* {told("extrapolated")}</p>}
    </div>
  );
}

const SHOWN = 12;

export function Rejected({ plan, told }: { plan: Plan; told: PlanSay }) {
  const [text, setText] = useState("");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = plan.rejected.filter((one) => {
    const said = `${one.name} ${one.model} ${one.text}`.toLowerCase();
    return words.every((word) => said.includes(word));
  });
  const groups = new Map<string, Rejection[]>();
  for (const one of found) groups.set(one.reason, [...(groups.get(one.reason) ?? []), one]);
  if (!plan.rejected.length) return null;
  return (
    <section class="rejected">
      <header class="above">
        <h3>{told("rejected")} <small class="number">({whole(plan.rejected.length)})</small></h3>
        <label class="filter"><span>{told("filter")}</span> <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
      </header>
      {[...groups].map(([reason, all]) => <Group key={reason} reason={reason} all={all} told={told} open={words.length > 0 || (plan.complete && !plan.plans.length)} />)}
    </section>
  );
}

function Group({ reason, all, told, open }: { reason: string; all: Rejection[]; told: PlanSay; open: boolean }) {
  const [entire, setEntire] = useState(false);
  const shown = entire ? all : all.slice(0, SHOWN);
  return (
    <details open={open}>
      <summary>{planNamed(told, "reason", reason).replace(/^reason_/, "")} <span class="number">({whole(all.length)})</span></summary>
      <ul class="reasons">
        {shown.map((one, index) => <li key={index}><b>{one.name}</b> {one.text}</li>)}
      </ul>
      {shown.length < all.length && <button type="button" class="quiet" onClick={() => setEntire(true)}>{told("showAll")} ({whole(all.length)})</button>}
    </details>
  );
}

export function Untried({ plan, told }: { plan: Plan; told: PlanSay }) {
  if (!plan.complete || !plan.untried.length) return null;
  const line = (one: Proposal) => `${one.gpus} GPU · TPOT ${time(one.mean_tpot_seconds)} · ${dollars(one.usd_per_hour)} · ${one.headroom.toFixed(2)}×`;
  return (
    <details class="rejected">
      <summary>{told("untried")} <span class="number">({whole(plan.untried.length)})</span></summary>
      <ul class="reasons">
        {plan.untried.slice(0, 60).map((one) => <li key={keyOf(one)}><b>{one.name}</b> <span class="number">{line(one)}</span></li>)}
      </ul>
    </details>
  );
}
