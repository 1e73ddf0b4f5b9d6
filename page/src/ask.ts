// Asking again whenever the question changes: the newest wins, what is under way is given up.

import { useEffect, useRef, useState } from "preact/hooks";
import { Refusal } from "./api";

export interface Asked<T> {
  /** The newest answer, kept while the next is under way. */
  answer: T | null;
  /** Why there is none. */
  refusal: string;
  busy: boolean;
  /** The answer is that of an earlier question. */
  stale: boolean;
}

interface State<T> {
  key: string;
  answer: T | null;
  refusal: string;
}

const RETRY = 3000; // ms until a server that cannot be reached is asked again

/** The answer of `asking` for the question that `key` stands for; an empty key asks nothing. */
export function useAnswer<T>(
  key: string,
  asking: (signal: AbortSignal) => Promise<T>,
  { delay = 0, unreachable }: { delay?: number; unreachable: string },
): Asked<T> {
  const [state, setState] = useState<State<T>>({ key: "", answer: null, refusal: "" });
  const [attempt, setAttempt] = useState(0);
  const latest = useRef(asking);
  latest.current = asking;
  useEffect(() => {
    if (!key) return;
    const control = new AbortController();
    const again = () => setAttempt((count) => count + 1);
    let timer = setTimeout(async () => {
      try {
        const answer = await latest.current(control.signal);
        if (!control.signal.aborted) setState({ key, answer, refusal: "" });
      } catch (error) {
        if (control.signal.aborted) return;
        const refused = error instanceof Refusal;
        setState({ key, answer: null, refusal: refused ? error.message : unreachable });
        if (!refused) timer = setTimeout(again, RETRY);
      }
    }, delay);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [key, attempt]);
  const stale = key !== "" && state.key !== key;
  return { answer: state.answer, refusal: state.refusal, busy: stale, stale };
}
