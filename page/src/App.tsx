// The page: what is asked on the left, the answer on the right; the address holds the question.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { alone, ask, type Catalogues, catalogues, type Change, type Fit, Refusal, type Speed } from "./api";
import { useAnswer } from "./ask";
import { copyText } from "./clipboard";
import { Combobox, type Option } from "./Combobox";
import { DoctorPanel } from "./doctor/DoctorPanel";
import { logOf } from "./doctor/logs";
import { useDoctor } from "./doctor/useDoctor";
import { Explain } from "./Explain";
import { download, fileName, markdown, png, svgText } from "./exporting";
import { Figures } from "./Figures";
import { gib, languageOf, parameters, tokens, whole } from "./format";
import { LivePanel } from "./live/LivePanel";
import { useLive } from "./live/useLive";
import { MemoryBar } from "./MemoryBar";
import { ClaimsPanel } from "./lookup/ClaimsPanel";
import { RecipePanel } from "./lookup/RecipePanel";
import { TablesPanel } from "./lookup/TablesPanel";
import { Menu } from "./Menu";
import type { OperatorStep } from "./operators";
import { AccuracyPanel, Changes, Engines, Growth, SpeedPanel, speedBody } from "./panels";
import { Paste } from "./Paste";
import { PlanPanel } from "./plan/PlanPanel";
import { usePlan } from "./plan/usePlan";
import { addressOf, bodyOf, DEFAULT, isTooLong, type Language, type Question, questionOf, raised, shortened, TABS, TOOLS, unreadLines, withSettings } from "./question";
import { remember, remembered } from "./remembered";
import { roundNumbers, Slider } from "./Slider";
import { Tabs } from "./Tabs";
import { Text } from "./Text";
import { type TraceFile, TrafficPanel } from "./traffic/TrafficPanel";
import { useTraffic } from "./traffic/useTraffic";
import { named, sayIn } from "./words";

const CONTEXTS = roundNumbers(512, 2 ** 20);
const LENGTHS = roundNumbers(16, 2 ** 18);
const COUNTS = roundNumbers(1, 1024);
const GPU_COUNTS = [1, 2, 4, 8, 16, 32];
const CACHES = ["fp8", "fp8_e5m2", "int8"];
const MAX_FILE_BYTES = 12 * 2 ** 20;
const SPEED_DELAY = 30;

interface ReadText {
  kind: "config" | "command" | "log";
  question: Partial<Question> & { notes?: string[]; read?: unknown };
}

/** Whether text is a configuration, a command or a log: names have no blanks within. */
const isNoName = (text: string): boolean => /\s\S/.test(text.trim()) || text.trimStart().startsWith("{");

export function App({ first }: { first: Question }) {
  const [question, setQuestion] = useState(first);
  const [lists, setLists] = useState<Catalogues | null>(null);
  const [explained, setExplained] = useState("");
  const [pasting, setPasting] = useState(false);
  const [pasteRefusal, setPasteRefusal] = useState("");
  const [pasted, setPasted] = useState("");
  const [told, setTold] = useState<string[]>([]);
  const [isLog, setIsLog] = useState(false); // what was pasted, so that the Doctor can take it
  const [opened] = useState(Boolean(first.settings || first.util || first.price));
  const [copied, setCopied] = useState("");
  const say = useMemo(() => sayIn(question.language), [question.language]);
  const reading = useRef(0);
  const [isReading, setIsReading] = useState(false);
  const step = useRef(false);
  const change = useCallback((part: Partial<Question>) => {
    reading.current++; // what is being read would overwrite it
    setIsReading(false);
    setQuestion((old) => ({ ...old, ...part }));
  }, []);
  /** A change that "back" undoes. */
  const leap = useCallback((part: Partial<Question>) => {
    step.current = true;
    change(part);
  }, []);

  const body = bodyOf(question);
  const tooLong = isTooLong(question);
  const key = tooLong ? "" : JSON.stringify(body);
  const unreachable = say("unreachable");
  const traffic = useTraffic(unreachable);
  const doctor = useDoctor(unreachable);
  const planning = usePlan(unreachable);
  const [trace, setTrace] = useState<TraceFile | null>(null);
  const { answer: fit, refusal: refused, busy, stale } = useAnswer(key, (signal) => ask<Fit>("fit", body, signal), { unreachable });
  const lengths = `${whole(question.input + question.output)} > ${whole(question.context)} ${say("tokensUnit")}`;
  const refusal = tooLong ? `${say("tooLong")} (${lengths})` : refused;
  const speedKey = JSON.stringify(speedBody(question));
  const { answer: speedAnswer, refusal: speedRefusal, stale: speedStale } = useAnswer(
    fit && !tooLong && fit.verdict !== "does_not_fit" ? speedKey : "",
    (signal) => ask<Speed>("speed", speedBody(question), signal),
    { delay: SPEED_DELAY, unreachable },
  );
  const speed = fit && fit.verdict !== "does_not_fit" && speedAnswer?.ttft_seconds ? speedAnswer : null;
  const notes = fit ? [...(fit.remarks ?? []), ...fit.warnings, ...fit.command_notes, ...(speed?.warnings ?? [])] : [];

  useAddress(question, setQuestion, step);
  useEffect(() => {
    document.documentElement.lang = question.language === "zh" ? "zh-CN" : "en";
    remember("language", question.language);
  }, [question.language]);
  const wantLists = useCallback(() => {
    catalogues().then(setLists, () => undefined);
  }, []);
  useEffect(() => {
    if (fit && !lists) wantLists();
  }, [fit]);

  const take = async (text: string, service = "") => {
    setPasted(text);
    setIsReading(true);
    const mine = ++reading.current;
    try {
      const { gpu, model, language } = question;
      const asked = { text, gpu, language, ...(model ? { model } : {}), ...(service ? { service } : {}) };
      const read = await ask<ReadText>("read", asked);
      if (mine !== reading.current) return;
      const { notes = [], context, read: _, ...fields } = read.question;
      const cleared = { config: "", command: "", settings: "", weights: "", kv: "", util: "", version: "" };
      const found = { ...cleared, ...fields, ...(context ? { context } : {}) };
      const lengths = shortened({ ...question, ...found });
      const cut = lengths.input !== question.input || lengths.output !== question.output;
      leap({ ...found, ...lengths });
      setTold(cut ? [...notes, `${say("cutTo")} ${whole(lengths.input)} + ${whole(lengths.output)} ${say("tokensUnit")}`] : notes);
      setIsLog(read.kind === "log");
      setPasting(false);
      setPasteRefusal("");
      focusOn(".paste-button");
    } catch (error) {
      if (mine !== reading.current) return;
      setIsReading(false);
      setPasteRefusal(error instanceof Refusal ? error.message : unreachable);
      setPasting(true);
    }
  };
  const nameModel = (text: string) => {
    if (isNoName(text)) take(text);
    else change({ model: text, config: "", command: "" });
  };
  useDrop((file) => {
    if (file.size > MAX_FILE_BYTES) {
      setPasteRefusal(say("tooLarge"));
      setPasting(true);
    } else file.text().then((text) => take(text));
  });

  const options = useOptions(lists);
  const titles = Object.fromEntries((lists?.engines ?? []).map((engine) => [engine.name, engine.title]));
  const copy = async (what: string, text: string) => {
    if (!(await copyText(text))) return;
    setCopied(what);
    setTimeout(() => setCopied(""), 1600);
  };
  const apply = (wanted: Change) => {
    const { max_model_len, context_length, max_seq_len, n_ctx, tensor_parallel_size, ...rest } = wanted.settings;
    const length = max_model_len ?? context_length ?? max_seq_len ?? n_ctx;
    focusOn(".verdict strong");
    const context = typeof length === "number" ? length : question.context;
    leap({
      gpus: wanted.gpus,
      context,
      ...shortened({ ...question, context }),
      ...(wanted.weights ? { weights: wanted.weights } : {}),
      settings: withSettings(question.settings, {
        ...rest,
        ...(tensor_parallel_size === undefined || tensor_parallel_size === wanted.gpus ? {} : { tensor_parallel_size }),
      }),
    });
  };
  const picture = (name: string) => document.querySelector<SVGSVGElement>(name);
  const caption = () =>
    fit
      ? `${fit.model.name}${question.weights ? ` (${question.weights})` : ""} · ${fit.hardware.count} × ${fit.hardware.name} · ${titles[fit.engine.name] ?? fit.engine.name} ${fit.engine.version} · ${tokens(question.input)} + ${tokens(question.output)} ${say("tokensUnit")} · ${whole(question.concurrency)} ${say("concurrency").toLowerCase()}`
      : "";
  /** A deployment that another tab found, asked about here. */
  const open = (deployment: Partial<Question>) => {
    setTold([]);
    setIsLog(false);
    leap({ config: "", command: "", ...deployment, ...shortened({ ...question, ...deployment }), tab: deployment.tab ?? DEFAULT.tab });
    focusOn(".verdict strong");
  };
  const isTool = TOOLS.includes(question.tab);
  const live = useLive(question.tab === "live", question.language);
  const offered = TABS.filter((tab) => tab !== "live" || live.watching || question.tab === "live");
  const tabs = isTool || (fit && !refusal) ? offered : offered.filter((tab) => refusal && TOOLS.includes(tab));
  const pictures = () => picture("#highway") ?? picture("#growth-chart") ?? picture("#pareto-chart") ?? picture("#memory-bar");

  return (
    <>
      <a class="skip" href="#answer">{say("skip")}</a>
      <header class="top">
        <h1>tokenroom</h1>
        <p>{say("tagline")}</p>
        <nav aria-label="tokenroom">
          <button type="button" class="quiet" onClick={() => copy("link", location.href)}>
            {copied === "link" ? say("copied") : say("share")}
          </button>
          <Menu label={say("exportAs")} disabled={isTool || !fit || stale || speedStale || refusal !== ""}>
            {fit && (
              <>
                <button type="button" onClick={() => download(fileName(fit, "json"), new Blob([JSON.stringify({ fit, speed, simulation: traffic.result?.served }, null, 2)], { type: "application/json" }))}>{say("asJson")}</button>
                <button type="button" onClick={() => download(fileName(fit, "md"), new Blob([markdown(fit, speed, say, location.href)], { type: "text/markdown" }))}>{say("asMarkdown")}</button>
                <button type="button" onClick={() => { const shown = pictures(); if (shown) download(fileName(fit, "svg"), new Blob([svgText(shown, caption())], { type: "image/svg+xml" })); }}>{say("asSvg")}</button>
                <button type="button" onClick={async () => { const shown = pictures(); if (shown) download(fileName(fit, "png"), await png(shown, caption())); }}>{say("asPng")}</button>
              </>
            )}
          </Menu>
          <ThemeButton say={say} />
          <button type="button" class="quiet" lang={question.language === "zh" ? "en" : "zh-CN"} onClick={() => change({ language: question.language === "zh" ? "en" : ("zh" as Language) })}>
            {question.language === "zh" ? "English" : "中文"}
          </button>
        </nav>
      </header>
      <div class={isTool ? "columns tool" : "columns"}>
        <form class="asked" hidden={isTool} aria-label={say("inputs")} onSubmit={(event) => event.preventDefault()}>
          <Combobox
            label={say("model")}
            value={question.model}
            shown={question.config ? say("pastedConfig") : question.model}
            options={options.models}
            hint={say("modelHint")}
            nothing={say("none")}
            onOpen={wantLists}
            onChoose={(model) => leap({ model, config: "", command: "" })}
            onType={nameModel}
            onPaste={(text) => {
              if (!isNoName(text)) return false;
              take(text);
              return true;
            }}
          />
          <div class="row">
            <button type="button" class="quiet paste-button" onClick={() => { setPasteRefusal(""); setPasting(true); }}>{say("paste")} …</button>
            {question.command && <span class="kept" title={question.command}>{say("pastedCommand")}</span>}
            {(question.config || question.command) && (
              <button type="button" class="quiet" onClick={() => { setTold([]); setIsLog(false); change({ config: "", command: "", model: question.model || first.model }); }}>{say("drop")}</button>
            )}
          </div>
          <div class="row wide-first">
            <Combobox
              label={say("gpu")}
              value={question.gpu}
              shown={fit && !refusal ? fit.hardware.name.replace(/^NVIDIA /, "") : question.gpu}
              options={options.gpus}
              nothing={say("none")}
              onOpen={wantLists}
              onChoose={(gpu) => change({ gpu })}
              onType={(gpu) => change({ gpu })}
            />
            <Select label={say("gpus")} value={String(question.gpus)} options={GPU_COUNTS.includes(question.gpus) ? GPU_COUNTS.map(String) : [...GPU_COUNTS, question.gpus].map(String)} onChange={(value) => change({ gpus: Number(value) })} />
          </div>
          <div class="row wide-first">
            <Select label={say("engine")} value={question.engine} options={lists?.engines.map((engine) => engine.name) ?? [question.engine]} shown={(name) => titles[name] ?? name} onChange={(engine) => change({ engine, version: "", settings: "", command: "" })} />
            <Text label={say("version")} value={question.version} hint={fit?.engine.version || say("newest")} onChange={(version) => change({ version })} />
          </div>
          <Slider invalid={say("invalidCount")} label={say("context")} hint={say("contextHint")} unit={say("tokensUnit")} value={question.context} stops={CONTEXTS} shown={tokens} onChange={(context) => change({ context })} />
          <Slider invalid={say("invalidCount")} label={say("input")} unit={say("tokensUnit")} value={question.input} stops={LENGTHS} shown={tokens} onChange={(input) => change({ input })} />
          <Slider invalid={say("invalidCount")} label={say("output")} unit={say("tokensUnit")} value={question.output} stops={LENGTHS} shown={tokens} onChange={(output) => change({ output })} />
          <Slider invalid={say("invalidCount")} label={say("concurrency")} value={question.concurrency} stops={COUNTS} shown={whole} onChange={(concurrency) => change({ concurrency })} />
          <div class="row">
            <Select label={say("weights")} value={question.weights} options={["", ...(lists?.layouts ?? (question.weights ? [question.weights] : []))]} shown={(name) => name || say("asStored")} onChange={(weights) => change({ weights })} />
            <Select label={say("kv")} value={question.kv} options={["", ...CACHES, ...(question.kv && !CACHES.includes(question.kv) ? [question.kv] : [])]} shown={(name) => name || say("automatic")} onChange={(kv) => change({ kv })} />
          </div>
          <details open={opened}>
            <summary>{say("more")}</summary>
            <div class="row">
              <Text label={say("util")} value={question.util} hint={shareOf(fit)} invalid={question.util && !(Number(question.util) > 0 && Number(question.util) <= 1) ? say("invalidShare") : ""} onChange={(util) => change({ util })} />
              <Text label={say("price")} value={question.price} hint="2.50" invalid={question.price && !(Number(question.price) > 0) ? say("invalidPrice") : ""} onChange={(price) => change({ price })} />
            </div>
            <Text
              label={say("settingsHint")}
              rows={3}
              value={question.settings}
              invalid={unreadLines(question.settings).map((line) => `${say("unread")}: ${line}`).join("; ")}
              onChange={(settings) => change({ settings })}
            />
          </details>
        </form>
        <main id="answer" class={stale && !isTool ? "stale" : ""} aria-label={say("answer")} aria-busy={busy}>
          {!isTool && <div class={`verdict verdict-${refusal ? "refused" : (fit?.verdict ?? "none")}`} role="status">
            {refusal ? (
              <>
                <strong>{say("cannot")}</strong>
                <p lang={languageOf(refusal)}>{refusal}</p>
                {tooLong && (
                  <p class="subject remedies">
                    <button type="button" onClick={() => change({ context: raised(question) })}>{`${say("raiseTo")} ${tokens(raised(question))}`}</button>
                    <button type="button" onClick={() => change(shortened(question))}>{`${say("shortenTo")} ${whole(shortened(question).input)} + ${whole(shortened(question).output)}`}</button>
                  </p>
                )}
              </>
            ) : fit ? (
              <>
                <strong tabIndex={-1}>{named(say, fit.verdict)}</strong>
                <p>
                  {fit.reason ?? (
                    <>
                      <b class="number">{whole(fit.kv_pool_tokens)}</b> {say("room")}
                    </>
                  )}
                </p>
                <p class="subject">
                  {fit.model.name} · {parameters(fit.model.parameters_total)} · {gib(fit.model.weights_bytes)} GiB · {fit.hardware.count} × {fit.hardware.name} · {titles[fit.engine.name] ?? fit.engine.name} {fit.engine.version}
                </p>
              </>
            ) : (
              <strong>{say(alone ? "starting" : "working")}</strong>
            )}
          </div>}
          {fit && !refusal && !isTool && (
            <>
              <MemoryBar fit={fit} say={say} onExplain={setExplained} />
              <Figures fit={fit} speed={speed} speedStale={speedStale} speedRefusal={fit.verdict === "does_not_fit" ? "" : speedRefusal || (speedAnswer?.reason ?? "")} say={say} onExplain={setExplained} />
              {fit.command && fit.verdict !== "does_not_fit" && (
                <div class="launch">
                  <span class="label">{say("launch")}</span>
                  <code tabIndex={0}>{fit.command}</code>
                  <button type="button" disabled={stale} onClick={() => copy("command", fit.command ?? "")}>{copied === "command" ? say("copied") : say("copy")}</button>
                </div>
              )}
              {(told.length > 0 || isLog) && (
                <ul class="told" role="status">
                  {told.map((text) => <li key={text}>{text}</li>)}
                  {isLog && (
                    <li>
                      <button type="button" onClick={() => { doctor.explain([logOf(say("pastedLog"), pasted)], question.language); leap({ tab: "doctor" }); }}>{say("toDoctor")}</button>
                    </li>
                  )}
                </ul>
              )}
              {notes.length > 0 && (
                <details class="notes">
                  <summary>{say("notes")} ({notes.length})</summary>
                  <ul>
                    {notes.map((text) => <li key={text}>{text}</li>)}
                  </ul>
                </details>
              )}
            </>
          )}
          {tabs.length > 0 && (
            <Tabs key="tabs" tabs={tabs.map((id) => ({ id, label: say(`tab_${id}`) }))} chosen={question.tab} label={say("answer")} onChoose={(tab) => leap({ tab })}>
              {fit && !refusal && (
                <>
                  {question.tab === "growth" && <Growth question={question} fit={fit} say={say} />}
                  {question.tab === "speed" && <SpeedPanel question={question} fit={fit} say={say} onChange={change} />}
                  {question.tab === "traffic" && <TrafficPanel question={question} fit={fit} say={say} traffic={traffic} trace={trace} onTrace={setTrace} onChange={change} />}
                  {question.tab === "recipe" && <RecipePanel question={question} say={say} onChange={change} onOpen={open} />}
                  {question.tab === "changes" && <Changes question={question} fit={fit} say={say} onApply={apply} />}
                  {question.tab === "engines" && <Engines question={question} fit={fit} say={say} titles={titles} />}
                  {question.tab === "accuracy" && <AccuracyPanel say={say} titles={titles} />}
                </>
              )}
              {question.tab === "plan" && <PlanPanel question={question} say={say} planning={planning} options={options} wantLists={wantLists} onChange={change} onOpen={open} />}
              {question.tab === "tables" && <TablesPanel question={question} say={say} options={options} wantLists={wantLists} onChange={change} />}
              {question.tab === "claims" && <ClaimsPanel question={question} say={say} onChange={change} />}
              {question.tab === "doctor" && <DoctorPanel question={question} say={say} doctor={doctor} options={options} wantLists={wantLists} onOpen={open} />}
              {question.tab === "live" && <LivePanel live={live} language={question.language} say={say} />}
            </Tabs>
          )}
        </main>
      </div>
      {explained && fit && <Explaining fit={fit} question={question} wanted={explained} say={say} onClose={() => setExplained("")} />}
      {pasting && <Paste say={say} first={pasted} refusal={pasteRefusal} onText={take} onClose={() => { reading.current++; setIsReading(false); setPasting(false); }} busy={isReading} />}
    </>
  );
}

function Explaining(props: { fit: Fit; question: Question; wanted: string; say: ReturnType<typeof sayIn>; onClose: () => void }) {
  const { question, say } = props;
  const body = { ...bodyOf(question), explain: true };
  const { answer } = useAnswer(JSON.stringify(body), (signal) => ask<Fit>("fit", body, signal), { unreachable: say("unreachable") });
  const speed = { ...speedBody(question), explain: true };
  const { answer: steps } = useAnswer(
    props.wanted === "speed" ? JSON.stringify(speed) : "",
    (signal) => ask<Speed & { prefill: OperatorStep; decode: OperatorStep }>("speed", speed, signal),
    { unreachable: say("unreachable") },
  );
  const named = steps && [{ ...steps.decode, name: "decode" }, { ...steps.prefill, name: "prefill" }];
  return <Explain fit={props.fit} speed={steps} lines={answer?.explain ?? null} steps={named} wanted={props.wanted} say={say} onClose={props.onClose} />;
}

/** Where the keyboard goes on after something that leaves it nowhere. */
function focusOn(selector: string): void {
  setTimeout(() => document.querySelector<HTMLElement>(selector)?.focus());
}

/** The question in the address, both ways: written after it settles, read on back and forward. */
function useAddress(question: Question, setQuestion: (question: Question) => void, step: { current: boolean }): void {
  const mine = useRef("");
  useEffect(() => {
    const timer = setTimeout(async () => {
      const address = await addressOf(question, new URL(location.href));
      mine.current = address.href;
      if (address.href === location.href) return;
      if (step.current) history.pushState(null, "", address);
      else history.replaceState(null, "", address);
      step.current = false;
    }, 150);
    return () => clearTimeout(timer);
  }, [question]);
  useEffect(() => {
    const read = async () => {
      if (location.href === mine.current) return;
      setQuestion(await questionOf(new URL(location.href), question.language));
    };
    addEventListener("popstate", read);
    addEventListener("hashchange", read);
    return () => {
      removeEventListener("popstate", read);
      removeEventListener("hashchange", read);
    };
  }, [question.language]);
}

function useDrop(onFile: (file: File) => void): void {
  const latest = useRef(onFile);
  latest.current = onFile;
  useEffect(() => {
    const over = (event: DragEvent) => {
      event.preventDefault();
      document.body.classList.toggle("dropping", event.type === "dragover");
    };
    const drop = (event: DragEvent) => {
      over(event);
      const file = event.dataTransfer?.files[0];
      if (file) latest.current(file);
    };
    addEventListener("dragover", over);
    addEventListener("dragleave", over);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("dragleave", over);
      removeEventListener("drop", drop);
    };
  }, []);
}

function useOptions(lists: Catalogues | null): { models: Option[] | undefined; gpus: Option[] | undefined } {
  return useMemo(
    () => ({
      models: lists?.models.map((model) => ({
        value: model.name,
        label: model.name,
        detail: `${parameters(model.parameters_total)} ${model.weights}`,
        words: [model.name, ...model.aliases].join(" ").toLowerCase(),
        names: [model.name, ...model.aliases].map((name) => name.toLowerCase()),
      })),
      gpus: lists?.gpus.map((gpu) => ({
        value: gpu.key,
        label: gpu.name.replace(/^NVIDIA /, ""),
        detail: `${Math.round(gpu.memory_bytes / 2 ** 30)} GiB`,
        words: [gpu.key, gpu.name, gpu.vendor, ...gpu.aliases].join(" ").toLowerCase(),
        names: [gpu.key, gpu.name, ...gpu.aliases].map((name) => name.toLowerCase()),
      })),
    }),
    [lists],
  );
}

/** The share of the memory that the engine takes unasked, as it is written in the field. */
function shareOf(fit: Fit | null): string {
  const names = ["gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction"];
  const found = names.map((name) => fit?.deployment[name]?.value).find((value) => typeof value === "number");
  return found === undefined ? "" : String(Number((found as number).toPrecision(4)));
}

interface SelectProps {
  label: string;
  value: string;
  options: string[];
  shown?: (value: string) => string;
  onChange: (value: string) => void;
}

function Select({ label, value, options, shown = (name) => name, onChange }: SelectProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option} value={option} selected={option === value}>
            {shown(option)}
          </option>
        ))}
      </select>
    </label>
  );
}

const THEMES = ["system", "light", "dark"] as const;

function ThemeButton({ say }: { say: ReturnType<typeof sayIn> }) {
  const [theme, setTheme] = useState<(typeof THEMES)[number]>(() => {
    const kept = remembered("theme");
    return kept === "light" || kept === "dark" ? kept : "system";
  });
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "system";
  return (
    <button
      type="button"
      class="quiet"
      onClick={() => {
        setTheme(next);
        if (next === "system") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = next;
        remember("theme", next);
      }}
    >
      {say("theme")}: {say(theme)}
    </button>
  );
}
