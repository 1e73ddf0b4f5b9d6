// Asking again whenever the question changes: the newest wins, what is under way is given up.

import { useEffect, useRef, useState } from "preact/hooks";
import { Refusal } from "./api";

export interface Asked<T> {
  /** The newest answer, kept while the next is under way. */
  answer: T | null;
  /** Why there is none. */
  refusal: string;
  busy: boolean;
}

/** The answer of `asking` for the question that `key` stands for; an empty key asks nothing. */
export function useAnswer<T>(
  key: string,
  asking: (signal: AbortSignal) => Promise<T>,
  { delay = 0, unreachable }: { delay?: number; unreachable: string },
): Asked<T> {
  const [state, setState] = useState<Asked<T>>({ answer: null, refusal: "", busy: true });
  const latest = useRef(asking);
  latest.current = asking;
  useEffect(() => {
    if (!key) return;
    const control = new AbortController();
    setState((before) => ({ ...before, busy: true }));
    const timer = setTimeout(async () => {
      try {
        const answer = await latest.current(control.signal);
        if (!control.signal.aborted) setState({ answer, refusal: "", busy: false });
      } catch (error) {
        if (control.signal.aborted) return;
        const refusal = error instanceof Refusal ? error.message : unreachable;
        setState({ answer: null, refusal, busy: false });
      }
    }, delay);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [key]);
  return state;
}
