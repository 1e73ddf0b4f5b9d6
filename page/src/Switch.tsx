// One of a few, or several of a few: radio buttons and boxes in a line.

interface SwitchProps {
  name: string;
  legend: string;
  values: string[];
  chosen: string;
  shown: (value: string) => string;
  onChange: (value: string) => void;
}

export function Switch({ name, legend, values, chosen, shown, onChange }: SwitchProps) {
  return (
    <fieldset class="switch">
      <legend>{legend}</legend>
      {values.map((value) => (
        <label key={value}>
          <input type="radio" name={name} value={value} checked={value === chosen} onChange={() => onChange(value)} />
          <span>{shown(value)}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface BoxesProps {
  legend: string;
  values: string[];
  chosen: string[];
  shown: (value: string) => string;
  invalid?: string;
  onChange: (chosen: string[]) => void;
}

/** Several of a few; what is chosen beside them stays chosen. */
export function Boxes({ legend, values, chosen, shown, invalid, onChange }: BoxesProps) {
  const all = [...values, ...chosen.filter((value) => !values.includes(value))];
  return (
    <fieldset class="switch boxes">
      <legend>{legend}</legend>
      {all.map((value) => (
        <label key={value}>
          <input type="checkbox" value={value} checked={chosen.includes(value)} onChange={(event) => onChange(all.filter((one) => (one === value ? event.currentTarget.checked : chosen.includes(one))))} />
          <span>{shown(value)}</span>
        </label>
      ))}
      {invalid && <p class="refusal" role="alert">{invalid}</p>}
    </fieldset>
  );
}
