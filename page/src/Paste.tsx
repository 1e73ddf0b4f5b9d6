// A place for what people have at hand: a config.json, a command, a deployment file, a log.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Say } from "./words";

interface Props {
  say: Say;
  /** What was pasted before. */
  first: string;
  refusal: string;
  busy: boolean;
  onText: (text: string, service: string) => void;
  onClose: () => void;
}

export function Paste({ say, first, refusal, busy, onText, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState(first);
  const [service, setService] = useState("");
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
  }, []);
  return (
    <dialog ref={dialog} class="paste" aria-labelledby="paste-title" onClose={onClose} onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
      <header>
        <h2 id="paste-title">{say("paste")}</h2>
        <button type="button" class="quiet" onClick={() => dialog.current?.close()}>
          {say("close")}
        </button>
      </header>
      <p>{say("pasteHint")}</p>
      <textarea aria-label={say("paste")} rows={12} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      {(service || refusal.includes("--service")) && (
        <label class="field service">
          <span>{say("service")}</span>
          <input type="text" value={service} onInput={(event) => setService(event.currentTarget.value)} />
        </label>
      )}
      {refusal && <p class="refusal" role="alert">{refusal}</p>}
      <footer>
        <button type="button" class="primary" disabled={busy || !text.trim()} onClick={() => onText(text, service.trim())}>
          {say(busy ? "working" : "use")}
        </button>
      </footer>
    </dialog>
  );
}
