// The Plan tab: a load and its promises on the left, the deployments that hold it on the right.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Option as Listed } from "../Combobox";
import { download } from "../exporting";
import { fieldsOf, textOf } from "../fields";
import { languageOf, whole } from "../format";
import { Menu } from "../Menu";
import type { Question } from "../question";
import type { Say } from "../words";
import { BEGINNING, chosenOf, fieldOf, planBody, type PlanAsked } from "./asked";
import { Front } from "./Front";
import { csvOf, keyOf, type Plan } from "./plan";
import { PlanDetail } from "./PlanDetail";
import { PlanForm } from "./PlanForm";
import { Plans, Rejected, Untried } from "./Plans";
import type { Planning } from "./usePlan";
import { type PlanSay, sayPlan } from "./words";

/** How far down the window what is found begins, from which on it is scrolled to. */
const OUT_OF_SIGHT = 0.7;

interface Props {
  question: Question;
  say: Say;
  planning: Planning;
  options: { models: Listed[] | undefined; gpus: Listed[] | undefined };
  wantLists: () => void;
  onChange: (change: Partial<Question>) => void;
  onOpen: (deployment: Partial<Question>) => void;
}

export function PlanPanel({ question, say, planning, options, wantLists, onChange, onOpen }: Props) {
  const { language, model } = question;
  const told = useMemo(() => sayPlan(language), [language]);
  const asked = useMemo(() => fieldsOf(question.plan, BEGINNING), [question.plan]);
  const body = planBody(asked, model, language);
  const key = JSON.stringify(body);
  const { found, running, refusal } = planning;
  const [chosen, setChosen] = useState("");
  const place = useRef<HTMLDivElement>(null);
  const plan = found?.plan;
  const option = plan?.plans.find((one) => keyOf(one) === chosen) ?? plan?.plans[0];
  const about = refusal && !running ? fieldOf(refusal) : "";
  const change = (part: Partial<PlanAsked>) => onChange({ plan: textOf({ ...asked, ...part } as PlanAsked, BEGINNING) });
  const run = () => {
    change({ run: "yes" });
    planning.start(body, key);
    const top = place.current?.getBoundingClientRect().top ?? 0;
    if (top > innerHeight * OUT_OF_SIGHT) place.current?.scrollIntoView({ block: "start" }); // below the form, on a phone
  };
  useEffect(wantLists, []);
  useEffect(() => {
    if (asked.run && !found && !running && !refusal) run(); // a link to a search
  }, []);
  useEffect(() => {
    // what a plan says comes from the server, in the language it was asked in
    if (found && found.key !== key && inEnglish(found.key) === inEnglish(key)) planning.start(body, key);
  }, [language]);
  return (
    <div class="plan">
      <PlanForm asked={asked} model={model} say={say} told={told} options={options} wantLists={wantLists} running={running} refused={(field) => (field === about ? refusal : "")} onChange={change} onRun={run} onStop={planning.cancel} />
      <div class="plan-answer" aria-busy={running} ref={place}>
        <p class="sr-only" role="status">{!running && plan && found.key === key ? summary(plan, told) : ""}</p>
        {running && <Searching planning={planning} told={told} say={say} />}
        {!running && refusal && !about && <p class="refusal" role="alert" lang={languageOf(refusal)}>{refusal}</p>}
        {!running && found && found.key !== key && !refusal && <p class="kept" role="status">{told("earlier")}</p>}
        {plan ? (
          <div class={found?.key !== key ? "plan-found stale" : "plan-found"}>
            <Head plan={plan} running={running} told={told} />
            {plan.plans.length + plan.untried.length > 0 && <Front plan={plan} chosen={option ? keyOf(option) : ""} told={told} onChoose={setChosen} />}
            {plan.plans.length > 0 && <Plans plan={plan} chosen={option ? keyOf(option) : ""} say={say} told={told} onChoose={setChosen} />}
            {option && <PlanDetail key={keyOf(option)} option={option} demand={plan.demand} language={language} price={chosenOf(asked.gpus).find((gpu) => gpu.key === option.accelerator)?.price ?? ""} say={say} told={told} onOpen={onOpen} />}
            <Untried plan={plan} told={told} />
            <Rejected plan={plan} told={told} />
          </div>
        ) : (
          !running && !refusal && <p class="invitation">{told("invitation")}</p>
        )}
      </div>
    </div>
  );
}

const summary = ({ plans }: Plan, told: PlanSay): string =>
  plans.length ? `${plans.length} ${told(plans.length === 1 ? "foundOne" : "found")}` : told("foundNone");

/** A question without the language of its answer. */
const inEnglish = (key: string): string => JSON.stringify({ ...(JSON.parse(key) as object), language: "" });

function Head({ plan, running, told }: { plan: Plan; running: boolean; told: PlanSay }) {
  const count = plan.plans.length;
  const settings = plan.deployments ? plan.deployments.judged + plan.deployments.ruled_out_by_bounds : 0;
  const file = (ending: string) => `plan-${(plan.plans[0]?.model ?? "").replace(/.*\//, "") || "tokenroom"}.${ending}`;
  return (
    <header class="above plan-head">
      <h2 class={count || running ? "" : "none"}>
        {count > 0 && <><b class="number">{count}</b> {told(count === 1 ? "foundOne" : "found")}</>}
        {count === 0 && !running && told("foundNone")}
        {running && <small> {told("soFar")}</small>}
        <small class="number"> {whole(plan.judged)} {told("of")} {whole(plan.candidates)} {told("judgedOf")}{settings > plan.judged && `, ${whole(settings)} ${told("withSettings")}`}</small>
      </h2>
      <Menu label={told("download")} disabled={false}>
        <button type="button" onClick={() => download(file("md"), new Blob([plan.markdown], { type: "text/markdown" }))}>{told("report")}</button>
        <button type="button" onClick={() => download(file("csv"), new Blob([csvOf(plan)], { type: "text/csv" }))}>{told("csv")}</button>
        <button type="button" onClick={() => download(file("json"), new Blob([JSON.stringify(plan, null, 2)], { type: "application/json" }))}>{told("json")}</button>
      </Menu>
      {!running && !plan.complete && <p class="kept">{told("ended")}</p>}
    </header>
  );
}

function Searching({ planning, told, say }: { planning: Planning; told: PlanSay; say: Say }) {
  const { progress } = planning;
  const { judged = 0, found } = progress?.figures ?? {};
  return (
    <div class="running" role="status">
      <progress aria-label={say("progress")} max={progress?.total || undefined} value={progress?.total ? progress.done : undefined} />
      <span class="number">
        {progress ? `${whole(judged)} ${told("judging")}${found === undefined ? "" : ` · ${whole(found)} ${told("simulating")}`}` : say("working")}
      </span>
    </div>
  );
}
