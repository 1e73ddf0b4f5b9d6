// The search that the page shows; it goes on while other tabs are looked at.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Refusal } from "../api";
import { type Progress, worked } from "../job";
import type { Plan } from "./plan";

interface State {
  running: boolean;
  progress: Progress | null;
  refusal: string;
  /** What has been found, with the question that it answers. */
  found: { plan: Plan; key: string } | null;
}

export interface Planning extends State {
  start: (body: unknown, key: string) => void;
  /** Ends the search and keeps what it has found. */
  cancel: () => void;
}

export function usePlan(unreachable: string): Planning {
  const [state, setState] = useState<State>({ running: false, progress: null, refusal: "", found: null });
  const control = useRef<AbortController | null>(null);
  const cancel = useCallback(() => {
    control.current?.abort();
    control.current = null;
    setState((old) => ({ ...old, running: false, progress: null }));
  }, []);
  const start = useCallback(
    async (body: unknown, key: string) => {
      control.current?.abort();
      const mine = new AbortController();
      control.current = mine;
      setState((old) => ({ ...old, running: true, progress: null, refusal: "" }));
      const change = (part: Partial<State>) => {
        if (!mine.signal.aborted) setState((old) => ({ ...old, ...part }));
      };
      const hearing = {
        onProgress: (progress: Progress) => change({ progress }),
        onPartial: (plan: Plan) => change({ found: { plan, key } }),
      };
      try {
        const plan = await worked<Plan>("plan", body, hearing, mine.signal);
        change({ running: false, found: { plan, key } });
      } catch (error) {
        change({ running: false, refusal: error instanceof Refusal ? error.message : unreachable });
      }
    },
    [unreachable],
  );
  useEffect(() => {
    const leave = () => control.current?.abort();
    addEventListener("pagehide", leave);
    return () => removeEventListener("pagehide", leave);
  }, []);
  return { ...state, start, cancel };
}
