// What the Doctor tab holds: logs, what is known beside them, and an answer for each.

import { useCallback, useRef, useState } from "preact/hooks";
import { ask, Refusal } from "../api";
import type { Language } from "../question";
import { type Diagnosis, tellsOf } from "./diagnosis";
import { type Log, readLog, Unreadable } from "./logs";

/** What is known of a deployment beside its log. */
export interface Beside {
  model: string;
  gpu: string;
  command: string;
}

export const NOTHING: Beside = { model: "", gpu: "", command: "" };

export interface Answered {
  log: Log;
  found: Diagnosis | null;
  /** Why there is none. */
  refusal: string;
}

interface State {
  answers: Answered[];
  /** In which they are. */
  language: Language;
  /** Which of them is shown. */
  shown: number;
  /** Files that were not read, with the reason. */
  unread: { name: string; reason: Unreadable }[];
  /** The part of the files that has been read; null while none is. */
  reading: number | null;
  /** Logs that wait for their answer. */
  asking: boolean;
}

export interface Doctor extends State {
  pasted: string;
  beside: Beside;
  paste: (text: string) => void;
  know: (part: Partial<Beside>) => void;
  take: (files: File[], language: Language) => void;
  explain: (logs: Log[], language: Language, beside?: Beside) => void;
  show: (index: number) => void;
  cancel: () => void;
}

const EMPTY: State = { answers: [], language: "en", shown: 0, unread: [], reading: null, asking: false };

export function useDoctor(unreachable: string): Doctor {
  const [state, setState] = useState<State>(EMPTY);
  const [pasted, paste] = useState("");
  const [beside, setBeside] = useState(NOTHING);
  const control = useRef<AbortController | null>(null);
  const begin = () => {
    control.current?.abort();
    const mine = new AbortController();
    control.current = mine;
    const change = (part: Partial<State>) => {
      if (!mine.signal.aborted) setState((old) => ({ ...old, ...part }));
    };
    return { signal: mine.signal, change };
  };
  const asked = async (logs: Log[], known: Beside, language: Language, { signal, change }: ReturnType<typeof begin>) => {
    change({ asking: true, reading: null });
    const answers: Answered[] = [];
    for (const log of logs) {
      try {
        answers.push({ log, found: await ask<Diagnosis>("explain", bodyOf(log, known, language), signal), refusal: "" });
      } catch (error) {
        if (signal.aborted) return;
        answers.push({ log, found: null, refusal: error instanceof Refusal ? error.message : unreachable });
      }
    }
    const tells = answers.map(({ found }) => (found ? tellsOf(found) : -1));
    change({ answers, language, shown: tells.indexOf(Math.max(...tells)), asking: false });
  };
  const explain = useCallback(
    (logs: Log[], language: Language, known = beside) => {
      setBeside(known);
      const work = begin();
      work.change({ unread: [] });
      asked(logs, known, language, work);
    },
    [beside, unreachable],
  );
  const take = useCallback(
    async (files: File[], language: Language) => {
      const work = begin();
      work.change({ reading: 0, unread: [] });
      const logs: Log[] = [];
      const unread: State["unread"] = [];
      for (const [index, file] of files.entries()) {
        try {
          const tell = (share: number) => work.change({ reading: (index + share) / files.length });
          logs.push(await readLog(file, tell, work.signal));
        } catch (error) {
          if (work.signal.aborted) return;
          unread.push({ name: file.name, reason: error instanceof Unreadable ? error : new Unreadable("unreadable") });
        }
      }
      work.change({ unread, reading: null });
      if (logs.length) await asked(logs, beside, language, work);
    },
    [beside, unreachable],
  );
  const cancel = useCallback(() => {
    control.current?.abort();
    setState((old) => ({ ...old, reading: null, asking: false }));
  }, []);
  const show = useCallback((shown: number) => setState((old) => ({ ...old, shown })), []);
  const know = useCallback((part: Partial<Beside>) => setBeside((old) => ({ ...old, ...part })), []);
  return { ...state, pasted, beside, paste, know, take, explain, show, cancel };
}

/** The body of POST /v1/explain. */
function bodyOf(log: Log, beside: Beside, language: Language): Record<string, unknown> {
  const known = Object.fromEntries(Object.entries(beside).filter(([, text]) => text.trim()));
  return { ...(log.base64 ? { base64: log.base64 } : { text: log.text }), language, ...known };
}
