// Several of a list: a search field that adds, and what was added, each with a button that takes it away.

import { Combobox, type Option } from "./Combobox";
import type { Say } from "./words";

interface Props {
  label: string;
  hint: string;
  chosen: string[];
  options: Option[] | undefined;
  say: Say;
  /** What is wrong, empty for nothing. */
  invalid?: string;
  onOpen: () => void;
  onChange: (chosen: string[]) => void;
}

export function Chips({ label, hint, chosen, options, say, invalid, onOpen, onChange }: Props) {
  const shown = (value: string) => options?.find((option) => option.value === value)?.label ?? value;
  const add = (value: string) => onChange(chosen.includes(value) ? chosen : [...chosen, value]);
  return (
    <div class="chosen-many">
      <Combobox label={label} value="" shown="" hint={hint} options={options?.filter((option) => !chosen.includes(option.value))} nothing={say("none")} onOpen={onOpen} onChoose={add} onType={(text) => add(text.trim())} />
      {chosen.length > 0 && (
        <ul class="chips" aria-label={label}>
          {chosen.map((value) => (
            <li key={value}>
              <span>{shown(value).replace(/^.*\//, "")}</span>
              <button type="button" class="quiet" aria-label={`${say("drop")} ${shown(value)}`} onClick={() => onChange(chosen.filter((one) => one !== value))}>×</button>
            </li>
          ))}
        </ul>
      )}
      {invalid && <p class="refusal" role="alert">{invalid}</p>}
    </div>
  );
}
