// The fields of a form as one text, so that the address holds them: only what differs from the
// beginning is written.

export type Fields = Record<string, string>;

export function fieldsOf<F extends Fields>(text: string, beginning: F): F {
  const found: Fields = { ...beginning };
  for (const [name, value] of new URLSearchParams(text)) if (name in beginning) found[name] = value;
  return found as F;
}

export function textOf<F extends Fields>(fields: F, beginning: F): string {
  const changed = Object.entries(fields).filter(([name, value]) => value !== beginning[name]);
  return new URLSearchParams(changed).toString();
}

/** `a, b` as its parts. */
export const listOf = (text: string): string[] =>
  text.split(",").map((part) => part.trim()).filter(Boolean);

/** A whole number where it is one, else what was written, for the server to refuse. */
export const numberOr = (text: string): number | string => {
  const plain = text.replace(/[,_ ]/g, "");
  return /^\d+(\.\d+)?$/.test(plain) ? Number(plain) : text;
};
