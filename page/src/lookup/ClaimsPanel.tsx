// The Claims tab: what two articles claim, each figure beside the one that is computed here.

import { useMemo, useState } from "preact/hooks";
import { ask, fetched, Refusal } from "../api";
import { useAnswer } from "../ask";
import { csvText, download } from "../exporting";
import { fieldsOf, textOf } from "../fields";
import { whole } from "../format";
import { Menu } from "../Menu";
import type { Language, Question } from "../question";
import type { Say } from "../words";
import { type LookupSay, sayLookup } from "./words";

type Said = Record<Language, string>;

interface Claim {
  id: string;
  article: string;
  section: string;
  claim: Said;
  published: { text: Said } | null;
  ours: { text: Said };
  verdict: string;
  reason: Said | null;
  source: string;
  simulated: boolean;
  recorded: boolean;
}

interface Claims {
  articles: Record<string, Said>;
  verdicts: Record<string, Said & { count: number }>;
  reading: Said;
  claims: Claim[];
}

const BEGINNING = { words: "", verdict: "", article: "" };
type Fields = typeof BEGINNING;

interface Props {
  question: Question;
  say: Say;
  onChange: (change: Partial<Question>) => void;
}

export function ClaimsPanel({ question, say, onChange }: Props) {
  const { language } = question;
  const told = useMemo(() => sayLookup(language), [language]);
  const fields = useMemo(() => fieldsOf(question.claims, BEGINNING), [question.claims]);
  const change = (part: Partial<Fields>) => onChange({ claims: textOf({ ...fields, ...part }, BEGINNING) });
  const { answer, refusal } = useAnswer("claims", () => fetched<Claims>("claims"), { unreachable: say("unreachable") });
  if (!answer) return <p class={refusal ? "refusal" : ""}>{refusal || told("waiting")}</p>;
  const sought = answer.claims.filter((claim) => holds(claim, fields.words) && (!fields.article || claim.article === fields.article));
  const shown = sought.filter((claim) => !fields.verdict || claim.verdict === fields.verdict);
  const toggle = (verdict: string) => change({ verdict: verdict === fields.verdict ? "" : verdict });
  return (
    <div class="claims">
      <p class="caption">{told("claimsLead")}{language === "zh" ? "" : " "}{answer.reading[language]}</p>
      <form class="claims-asked" aria-label={say("tab_claims")} onSubmit={(event) => event.preventDefault()}>
        <div class="verdict-counts" role="group" aria-label={told("verdict")}>
          {Object.entries(answer.verdicts).map(([name, word]) => (
            <button key={name} type="button" class={`claim-${name}`} aria-pressed={fields.verdict === name} onClick={() => toggle(name)}>
              <b class="number">{whole(sought.filter((claim) => claim.verdict === name).length)}</b> {word[language]}
            </button>
          ))}
        </div>
        <label class="field">
          <span>{told("article")}</span>
          <select value={fields.article} onChange={(event) => change({ article: event.currentTarget.value })}>
            <option value="" selected={!fields.article}>{told("bothArticles")}</option>
            {Object.entries(answer.articles).map(([name, title]) => <option key={name} value={name} selected={name === fields.article}>{title[language]}</option>)}
          </select>
        </label>
        <label class="field">
          <span>{told("searchClaims")}</span>
          <input type="search" value={fields.words} onInput={(event) => change({ words: event.currentTarget.value })} />
        </label>
        <Menu label={told("download")} disabled={!shown.length}>
          <button type="button" onClick={() => download("claims.csv", new Blob([csvOf(shown, answer, language)], { type: "text/csv" }))}>{told("csv")}</button>
          <button type="button" onClick={() => download("claims.json", new Blob([JSON.stringify(shown, null, 2)], { type: "application/json" }))}>{told("json")}</button>
        </Menu>
      </form>
      <p class="caption number" role="status">{whole(shown.length)} / {whole(answer.claims.length)} {told("claimsShown")}</p>
      {shown.length > 0 && <ClaimTable claims={shown} all={answer} language={language} say={say} told={told} />}
    </div>
  );
}

/** Whether a claim has every word, in either language. */
function holds(claim: Claim, words: string): boolean {
  const said = [claim.id, claim.section, claim.source, claim.claim, claim.published?.text, claim.ours.text, claim.reason]
    .map((part) => (typeof part === "object" && part ? `${part.en} ${part.zh}` : (part ?? "")))
    .join(" ")
    .toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => said.includes(word));
}

interface TableProps {
  claims: Claim[];
  all: Claims;
  language: Language;
  say: Say;
  told: LookupSay;
}

function ClaimTable({ claims, all, language, say, told }: TableProps) {
  let before = "";
  return (
    <table class="claim-rows stacked" role="table">
      <thead role="rowgroup">
        <tr role="row">
          <th scope="col" role="columnheader">{told("claim")}</th>
          <th scope="col" role="columnheader">{told("published")}</th>
          <th scope="col" role="columnheader">{told("here")}</th>
          <th scope="col" role="columnheader">{told("verdict")}</th>
          <th scope="col" role="columnheader">{told("why")}</th>
        </tr>
      </thead>
      <tbody role="rowgroup">
        {claims.flatMap((claim) => {
          const section = `${all.articles[claim.article]?.[language] ?? claim.article} · ${claim.section}`;
          const heading = section === before ? [] : [
            <tr key={section} role="row" class="claim-section"><th role="rowheader" scope="rowgroup" colSpan={5}>{section}</th></tr>,
          ];
          before = section;
          return [...heading, <Row key={claim.id} claim={claim} verdicts={all.verdicts} language={language} say={say} told={told} />];
        })}
      </tbody>
    </table>
  );
}

interface RowProps extends Omit<TableProps, "claims" | "all"> {
  claim: Claim;
  verdicts: Claims["verdicts"];
}

function Row({ claim: written, verdicts, language, say, told }: RowProps) {
  const [anew, setAnew] = useState<Claim | null>(null);
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const claim = anew ?? written;
  const run = async () => {
    setBusy(true);
    setTrouble("");
    try {
      const { claims } = await ask<Claims>("claims", { names: [claim.id], recorded: false, language });
      setAnew(claims.find(({ id }) => id === claim.id) ?? null);
    } catch (error) {
      setTrouble(error instanceof Refusal ? error.message : say("unreachable"));
    }
    setBusy(false);
  };
  return (
    <tr role="row" class={busy ? "stale" : ""} aria-busy={busy}>
      <th scope="row" role="rowheader">
        {claim.claim[language]}
        <small lang="en">{claim.id}</small>
      </th>
      <td role="cell" data-label={told("published")}>{claim.published?.text[language] ?? "–"}</td>
      <td role="cell" data-label={told("here")}>
        {claim.ours.text[language]}
        {claim.recorded && (
          <small>
            {told("recorded")} <button type="button" class="link" aria-label={`${told("simulateAnew")}: ${claim.id}`} disabled={busy} onClick={run}>{told("simulateAnew")}</button>
          </small>
        )}
        {anew && <small>{told("simulatedNow")}</small>}
        {trouble && <small class="refusal" role="alert">{trouble}</small>}
      </td>
      <td role="cell" data-label={told("verdict")}><span class={`claim-verdict claim-${claim.verdict}`}>{verdicts[claim.verdict]?.[language] ?? claim.verdict}</span></td>
      <td role="cell" class="why">
        {claim.reason?.[language]}
        <small class="source" lang="en">{claim.source}</small>
      </td>
    </tr>
  );
}

const csvOf = (claims: Claim[], all: Claims, language: Language): string =>
  csvText([
    ["id", "article", "section", "claim", "published", "ours", "verdict", "reason", "source"],
    ...claims.map(({ id, article, section, claim, published, ours, verdict, reason, source }) => [
      id, all.articles[article]?.[language], section, claim[language], published?.text[language], ours.text[language], all.verdicts[verdict]?.[language], reason?.[language], source,
    ]),
  ]);
