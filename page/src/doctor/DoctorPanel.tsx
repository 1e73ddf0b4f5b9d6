// The Doctor tab: a log on the left, why its server ran out of memory on the right.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { alone } from "../api";
import { Combobox, type Option } from "../Combobox";
import { languageOf, percent } from "../format";
import type { Question } from "../question";
import { Text } from "../Text";
import type { Say } from "../words";
import { Answer } from "./Answer";
import type { Deployment } from "./corrected";
import { kindOf } from "./diagnosis";
import { logOf } from "./logs";
import { SAMPLES } from "./samples";
import { type Answered, type Doctor, NOTHING } from "./useDoctor";
import { type DoctorSay, sayDoctor } from "./words";

interface Props {
  question: Question;
  say: Say;
  doctor: Doctor;
  options: { models: Option[] | undefined; gpus: Option[] | undefined };
  wantLists: () => void;
  onOpen: (deployment: Deployment) => void;
}

export function DoctorPanel({ question, say, doctor, options, wantLists, onOpen }: Props) {
  const { language } = question;
  const told = useMemo(() => sayDoctor(language), [language]);
  const left = useRef<HTMLDetailsElement>(null);
  const place = useRef<HTMLDivElement>(null);
  const { answers, shown, asking, reading } = doctor;
  const seen = useRef(answers); // who comes back to the tab is left where the keyboard is
  const answer = answers[shown];
  useDropped((files) => doctor.take(files, language));
  useEffect(() => {
    if (answers.length && doctor.language !== language) doctor.explain(answers.map(({ log }) => log), language);
  }, [language]);
  useEffect(() => {
    const heading = place.current?.querySelector<HTMLElement>("h2, .refusal");
    if (!answer || !heading || seen.current === answers) return;
    seen.current = answers;
    heading.focus({ preventScroll: true });
    if (heading.getBoundingClientRect().bottom > innerHeight) heading.scrollIntoView({ block: "start" });
  }, [answers]);
  const tellMore = () => {
    if (!left.current) return;
    left.current.open = true;
    left.current.querySelector("input")?.focus();
  };
  return (
    <div class="doctor">
      <Asked say={say} told={told} doctor={doctor} question={question} options={options} wantLists={wantLists} left={left} />
      <div class="doctor-answer" ref={place} aria-busy={asking || reading !== null}>
        {doctor.unread.map(({ name, reason }) => (
          <p key={name} class="refusal" role="alert">{`${name} ${told(reason.word)} ${reason.detail}`}</p>
        ))}
        {answers.length > 1 && <Which answers={answers} shown={shown} told={told} onShow={doctor.show} />}
        {answer ? (
          <div class={asking ? "stale" : ""}>
            {answer.found ? (
              <Answer key={answer.log.name} found={answer.found} log={answer.log} question={question} say={say} told={told} onOpen={onOpen} onTellMore={tellMore} />
            ) : (
              <p class="refusal" role="alert" tabIndex={-1} lang={languageOf(answer.refusal)}>{answer.refusal}</p>
            )}
          </div>
        ) : (
          <div class="invitation">
            <p>{told("invitation")}</p>
            <p>{told("invitationHonest")}</p>
          </div>
        )}
      </div>
    </div>
  );
}

interface AskedProps extends Omit<Props, "onOpen"> {
  told: DoctorSay;
  left: { current: HTMLDetailsElement | null };
}

function Asked({ question, say, told, doctor, options, wantLists, left }: AskedProps) {
  const { language } = question;
  const { pasted, beside, answers, asking, reading } = doctor;
  const busy = asking || reading !== null;
  const again = () => {
    if (pasted.trim()) doctor.explain([logOf(told("pasted"), pasted)], language);
    else doctor.explain(answers.map(({ log }) => log), language);
  };
  const labelled = (known: Option[] | undefined, value: string) => known?.find((option) => option.value === value)?.label ?? value;
  return (
    <form
      class="doctor-asked"
      aria-label={told("log")}
      onSubmit={(event) => {
        event.preventDefault();
        again();
      }}
    >
      <label class="field">
        <span>{told("log")}</span>
        <textarea
          rows={answers.length ? 6 : 11}
          spellcheck={false}
          placeholder={told("logHint")}
          value={pasted}
          onInput={(event) => doctor.paste(event.currentTarget.value)}
          onPaste={(event) => {
            const text = event.clipboardData?.getData("text") ?? "";
            if (pasted || !text.trim()) return; // what is put into other text is sent when one is done
            event.preventDefault();
            doctor.paste(text);
            doctor.explain([logOf(told("pasted"), text)], language);
          }}
        />
      </label>
      <label class="field drop">
        <span>{told("files")}</span>
        <input
          type="file"
          multiple
          onChange={(event) => {
            const files = [...(event.currentTarget.files ?? [])];
            event.currentTarget.value = ""; // the same file may be chosen again
            if (!files.length) return;
            doctor.paste("");
            doctor.take(files, language);
          }}
        />
      </label>
      <details ref={left} open={Object.values(beside).some(Boolean)}>
        <summary>{told("beside")}</summary>
        <Combobox label={say("model")} value={beside.model} shown={labelled(options.models, beside.model)} options={options.models} nothing={say("none")} onOpen={wantLists} onChoose={(model) => doctor.know({ model })} onType={(model) => doctor.know({ model })} />
        <Combobox label={say("gpu")} value={beside.gpu} shown={labelled(options.gpus, beside.gpu)} options={options.gpus} nothing={say("none")} onOpen={wantLists} onChoose={(gpu) => doctor.know({ gpu })} onType={(gpu) => doctor.know({ gpu })} />
        <Text label={told("command")} rows={3} value={beside.command} hint="vllm serve …" onChange={(command) => doctor.know({ command })} />
        {Object.values(beside).some(Boolean) && (
          <button type="button" class="quiet" onClick={() => doctor.know(NOTHING)}>{say("drop")}</button>
        )}
      </details>
      <div class="run-row">
        {busy ? (
          <button type="button" onClick={doctor.cancel}>{told("cancel")}</button>
        ) : (
          <button type="submit" class="primary" disabled={!pasted.trim() && !answers.length}>{told("explain")}</button>
        )}
        {reading !== null && (
          <span class="running">
            <progress aria-label={told("reading")} max={1} value={reading} />
            <span class="number">{`${told("reading")} ${percent(reading)}`}</span>
          </span>
        )}
        {asking && <span role="status">{alone && !answers.length ? say("starting") : told("asking")}</span>}
      </div>
      <p class="caption">{told(alone ? "privateAlone" : "private")}</p>
      <p class="caption">{told("limits")}</p>
      <details class="samples" open={!answers.length}>
        <summary>{told("samples")}</summary>
        <ul>
          {SAMPLES.map(({ name, text, beside: left_out }) => (
            <li key={name}>
              <button
                type="button"
                class="quiet"
                onClick={() => {
                  doctor.paste(text);
                  doctor.explain([logOf(`${name}.log`, text)], language, { ...NOTHING, ...left_out });
                }}
              >
                {told(`sample_${name}`)}
              </button>
            </li>
          ))}
        </ul>
      </details>
    </form>
  );
}

/** Which of several logs is shown. */
function Which({ answers, shown, told, onShow }: { answers: Answered[]; shown: number; told: DoctorSay; onShow: (index: number) => void }) {
  return (
    <ul class="which" aria-label={told("logs")}>
      {answers.map(({ log, found }, index) => {
        const kind = found ? kindOf(found) : "refused";
        return (
          <li key={log.name}>
            <button type="button" class={`which-${kind}`} aria-pressed={index === shown} onClick={() => onShow(index)}>
              {log.name} <small>{told(`short_${kind}`)}</small>
            </button>
          </li>
        );
      })}
    </ul>
  );
}

/** Files that are dropped anywhere are logs here: elsewhere they are a configuration or a command. */
function useDropped(onFiles: (files: File[]) => void): void {
  const latest = useRef(onFiles);
  latest.current = onFiles;
  useEffect(() => {
    const drop = (event: DragEvent) => {
      const files = [...(event.dataTransfer?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      document.body.classList.remove("dropping");
      latest.current(files);
    };
    addEventListener("drop", drop, { capture: true });
    return () => removeEventListener("drop", drop, { capture: true });
  }, []);
}
