// Fields of text that are taken when one leaves them, and keep what is being typed until then.

import { useState } from "preact/hooks";

interface Props {
  label: string;
  value: string;
  hint?: string;
  /** What is wrong with the value, empty for nothing. */
  invalid?: string;
  /** Lines of a larger field; one line when missing. */
  rows?: number;
  onChange: (value: string) => void;
}

export function Text({ label, value, hint, invalid, rows, onChange }: Props) {
  const [draft, setDraft] = useState<string | null>(null);
  const commit = () => {
    if (draft === null) return;
    setDraft(null);
    if (draft.trim() !== value) onChange(draft.trim());
  };
  const shared = {
    value: draft ?? value,
    placeholder: hint,
    spellcheck: false,
    "aria-invalid": Boolean(invalid),
    onInput: (event: { currentTarget: { value: string } }) => setDraft(event.currentTarget.value),
    onBlur: commit,
  };
  return (
    <label class="field">
      <span>{label}</span>
      {rows ? (
        <textarea rows={rows} {...shared} />
      ) : (
        <input type="text" {...shared} onKeyDown={(event) => event.key === "Enter" && commit()} />
      )}
      {invalid && (
        <span class="refusal" role="alert">
          {invalid}
        </span>
      )}
    </label>
  );
}
