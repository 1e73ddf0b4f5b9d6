// A text field with a list under it that narrows as one types: the ARIA combobox pattern.

import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";

export interface Option {
  value: string;
  label: string;
  /** Shown at the right of the label. */
  detail?: string;
  /** What is searched. */
  words: string;
  /** Whole names, lower case; who types one means this option. */
  names: string[];
}

interface Props {
  label: string;
  value: string;
  shown: string;
  options: Option[] | undefined;
  hint?: string;
  nothing: string;
  onChoose: (value: string) => void;
  /** Called with what was typed when no option has it. */
  onType?: (text: string) => void;
  onOpen: () => void;
  /** Called with pasted text that is no name; false lets it be typed. */
  onPaste?: (text: string) => boolean;
}

const MOST = 60;

export function Combobox(props: Props) {
  const [text, setText] = useState<string | null>(null);
  const [active, setActive] = useState(0);
  const id = useId();
  const list = useRef<HTMLUListElement>(null);
  const open = text !== null;
  const found = useMemo(() => matching(props.options ?? [], text ?? ""), [props.options, text]);

  useEffect(() => {
    list.current?.children[active]?.scrollIntoView({ block: "nearest" });
  }, [active, open]);

  const show = () => {
    props.onOpen();
    setActive(0);
    setText("");
  };
  const choose = (option: Option | undefined) => {
    if (option) props.onChoose(option.value);
    else if (text && props.onType) props.onType(text);
    setText(null);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") setText(null);
    else if (event.key === "Enter") {
      event.preventDefault();
      if (open) choose(found[active]);
      else show();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) return show();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((active + step + found.length) % Math.max(1, found.length));
    } else if (event.key === "Tab" && text) choose(found[active]);
  };

  return (
    <div class="field combobox">
      <label for={id}>{props.label}</label>
      <input
        id={id}
        role="combobox"
        type="text"
        autocomplete="off"
        spellcheck={false}
        aria-expanded={open}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={open && found.length ? `${id}-${active}` : undefined}
        placeholder={open ? props.shown : props.hint}
        value={text ?? props.shown}
        onClick={() => open || show()}
        onKeyDown={onKeyDown}
        onInput={(event) => {
          if (!open) props.onOpen();
          setActive(0);
          setText(event.currentTarget.value);
        }}
        onPaste={(event) => {
          const pasted = event.clipboardData?.getData("text") ?? "";
          if (props.onPaste?.(pasted)) {
            event.preventDefault();
            setText(null);
          }
        }}
        onBlur={() => setText(null)}
      />
      {open && (
        <ul id={`${id}-list`} role="listbox" aria-label={props.label} ref={list}>
          {found.map((option, index) => (
            <li
              key={option.value}
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === active}
              class={option.value === props.value ? "chosen" : ""}
              onMouseDown={(event) => {
                event.preventDefault();
                choose(option);
              }}
              onMouseMove={() => setActive(index)}
            >
              <span>{option.label}</span>
              {option.detail && <small>{option.detail}</small>}
            </li>
          ))}
          {props.options && !found.length && (
            <li class="nothing" role="option" aria-selected={false} aria-disabled>
              {props.nothing}
            </li>
          )}
        </ul>
      )}
    </div>
  );
}

/** Options that hold every word typed: one of that very name first, then those that begin so. */
function matching(options: Option[], text: string): Option[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = options.filter((option) => words.every((word) => option.words.includes(word)));
  const first = words[0];
  if (first) {
    const whole = words.join(" ");
    const rank = (option: Option) =>
      option.names.includes(whole)
        ? 0
        : option.label.toLowerCase().replace(/^.*\//, "").startsWith(first)
          ? 1
          : 2;
    found.sort((one, two) => rank(one) - rank(two));
  }
  return found.slice(0, MOST);
}
