// A button that copies a text, and says so for a moment.

import { useEffect, useState } from "preact/hooks";
import { copyText } from "./clipboard";
import type { Say } from "./words";

const SAID = 1600; // ms

export function Copy({ text, say, of }: { text: string; say: Say; of: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), SAID);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button type="button" aria-label={`${say(copied ? "copied" : "copy")}: ${of}`} onClick={async () => setCopied(await copyText(text))}>
      {say(copied ? "copied" : "copy")}
    </button>
  );
}
