// The newest observation of the servers that the operator named, asked for gently: only while the
// view is shown, and never in a hidden tab.

import { useEffect, useRef, useState } from "preact/hooks";
import { alone, fetched } from "../api";
import type { Language } from "../question";
import { isWatching, type Moment, type Observation } from "./observation";

const FASTEST = 2000; // ms between looks
const RETRY = 3000;
const SLOWEST = 15000;
const MOST = 900; // moments that are kept
const STALE_LOOKS = 4; // looks of the server that may be missed

export interface Live {
  seen: Observation | null;
  history: Moment[];
  /** Whether servers are watched; null until that is known. */
  watching: boolean | null;
  /** When the server last answered, in ms of this clock; null before it did. */
  answered: number | null;
  /** It does not answer. */
  lost: boolean;
  /** It answers, and what it has seen has not changed for several of its looks. */
  stale: boolean;
  paused: boolean;
  pause: (paused: boolean) => void;
}

interface State {
  seen: Observation | null;
  history: Moment[];
  answered: number | null;
  lost: boolean;
  /** When the newest observation came, in ms of this clock. */
  changed: number;
}

export function useLive(shown: boolean, language: Language): Live {
  const [state, setState] = useState<State>({ seen: null, history: [], answered: null, lost: false, changed: 0 });
  const [paused, pause] = useState(false);
  const latest = useRef(state);
  latest.current = state;
  useEffect(() => {
    if (alone || (!shown && latest.current.seen)) return; // elsewhere it is asked once whether there is anything
    let timer: ReturnType<typeof setTimeout> | undefined;
    let gone = false;
    let misses = 0;
    const look = async () => {
      const { seen, history } = latest.current;
      const since = history.at(-1)?.time ?? 0;
      try {
        const found = await fetched<Observation>(`watch?since=${since}&language=${language}`);
        if (gone) return;
        misses = 0;
        const now = Date.now();
        const fresh = !seen || found.time !== seen.time;
        setState((old) => ({
          seen: found,
          history: [...old.history, ...(found.history ?? [])].slice(-MOST),
          answered: now,
          lost: false,
          changed: fresh ? now : old.changed,
        }));
        if (isWatching(found)) again(Math.max(FASTEST, found.interval_seconds * 1000));
      } catch {
        if (gone) return;
        misses++;
        setState((old) => ({ ...old, lost: true }));
        again(Math.min(SLOWEST, RETRY * misses));
      }
    };
    const again = (wait: number) => {
      if (shown && !paused && !document.hidden) timer = setTimeout(look, wait);
    };
    const seen = () => {
      clearTimeout(timer);
      if (shown && !paused && !document.hidden) look();
    };
    if (!paused) look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      gone = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [shown, paused, language]);
  const { seen, history, answered, lost, changed } = state;
  const stale = seen !== null && answered !== null && isWatching(seen) && answered - changed > STALE_LOOKS * Math.max(FASTEST, seen.interval_seconds * 1000);
  return { seen, history, watching: seen ? isWatching(seen) : alone ? false : null, answered, lost, stale, paused, pause };
}
