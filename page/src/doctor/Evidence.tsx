// The lines that say so, marked in the log with what stands around them.

import { useMemo, useState } from "preact/hooks";
import type { Diagnosis } from "./diagnosis";
import { lineOf, type Log } from "./logs";
import type { DoctorSay } from "./words";

const NEAR = 2;
const FAR = 25;
const LONGEST = 1200; // characters of a line that is shown
const STEERING = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;

interface Shown {
  line: number;
  text: string;
  marked: boolean;
  /** Lines of the log between this one and the one before that are not shown. */
  gap: number;
}

/** A line as it was on the terminal: colours gone, of a progress bar its last state. */
function plain(text: string): string {
  const last = text.replace(STEERING, "").replace(/\r+$/, "").split("\r").pop() ?? "";
  return last.length > LONGEST ? `${last.slice(0, LONGEST)} …` : last;
}

/** Marked lines and those around them, in the order of the log. */
function around(log: Log, evidence: Diagnosis["evidence"], reach: number): Shown[] {
  if (log.base64) return evidence.map(({ line, text }) => ({ line, text: plain(text), marked: true, gap: 0 })); // only the server has read it
  const lines = log.text.split("\n");
  const marked = new Map(evidence.map(({ line, text }) => [line, text]));
  const wanted = new Set<number>();
  for (const { line } of evidence) {
    for (let at = Math.max(1, line - reach); at <= Math.min(lines.length, line + reach); at++) wanted.add(at);
  }
  let before = 0;
  return [...wanted]
    .sort((one, two) => one - two)
    .filter((sent) => marked.has(sent) || (lines[sent - 1] ?? "").trim())
    .map((sent) => {
      const raw = plain(lines[sent - 1] ?? "");
      const told = marked.get(sent);
      const line = lineOf(log, sent);
      const gap = line - before - 1;
      before = line;
      // what the server tells has keys and tokens hidden
      const text = told === undefined || raw.includes(told.trim().slice(0, LONGEST)) ? raw : plain(told);
      return { line, text, marked: told !== undefined, gap };
    });
}

export function Evidence({ found, log, say }: { found: Diagnosis; log: Log; say: DoctorSay }) {
  const [reach, setReach] = useState(NEAR);
  const lines = useMemo(() => around(log, found.evidence, reach), [log, found, reach]);
  if (!found.evidence.length) return null;
  return (
    <section class="evidence">
      <header>
        <h3>{say("evidence")}</h3>
        {!log.base64 && <button type="button" class="quiet" onClick={() => setReach(reach === NEAR ? FAR : NEAR)}>
          {say(reach === NEAR ? "moreLines" : "fewerLines")}
        </button>}
      </header>
      <ol class="log" tabIndex={0} aria-label={say("evidence")} lang="en">
        {lines.map(({ line, text, marked, gap }) => (
          <li key={`${line} ${text}`} class={`${marked ? "marked" : ""}${gap > 0 && line > 1 ? " after-gap" : ""}`}>
            <span class="line-number number">{line || ""}</span>
            {marked ? (
              <mark>
                <span class="sr-only">{`${say("evidenceLine")}: `}</span>
                {text}
              </mark>
            ) : (
              <span>{text}</span>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}
