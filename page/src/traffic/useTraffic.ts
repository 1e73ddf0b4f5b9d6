// The run of a workload that the page shows; it goes on while other tabs are looked at.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Fit, Refusal } from "../api";
import type { Progress } from "../job";
import { type Served, simulated, type Unserved } from "./simulation";

export interface Traffic {
  running: boolean;
  progress: Progress | null;
  refusal: string;
  /** What the newest run gave, with the question and the deployment it was of. */
  result: { served: Served; key: string; fit: Fit } | null;
  start: (body: unknown, key: string, fit: Fit) => void;
  cancel: () => void;
}

interface State {
  running: boolean;
  progress: Progress | null;
  refusal: string;
  result: Traffic["result"];
}

const isServed = (answer: Served | Unserved): answer is Served => "playback" in answer;

export function useTraffic(unreachable: string): Traffic {
  const [state, setState] = useState<State>({ running: false, progress: null, refusal: "", result: null });
  const control = useRef<AbortController | null>(null);
  const cancel = useCallback(() => {
    control.current?.abort();
    control.current = null;
    setState((old) => ({ ...old, running: false, progress: null }));
  }, []);
  const start = useCallback(
    async (body: unknown, key: string, fit: Fit) => {
      control.current?.abort();
      const mine = new AbortController();
      control.current = mine;
      setState((old) => ({ ...old, running: true, progress: null, refusal: "" }));
      const change = (part: Partial<State>) => {
        if (!mine.signal.aborted) setState((old) => ({ ...old, ...part }));
      };
      try {
        const answer = await simulated(body, (progress) => change({ progress }), mine.signal);
        if (isServed(answer)) change({ running: false, result: { served: answer, key, fit } });
        else change({ running: false, refusal: answer.reason });
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
