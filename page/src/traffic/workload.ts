// Descriptions of workloads as the page edits them (docs/workloads.md has their grammar).

export interface Preset {
  name: string;
  workload: string;
  sources: string[];
  sources_chinese: string[];
}

/** Processes that have fields on the page; others are written by hand. */
export const PROCESSES = ["poisson", "users"] as const;

/** Stands where a trace is replayed instead. */
export const TRACE = "trace";

export interface Description {
  name: string;
  keys: [key: string, value: string][];
}

/** The name and the parts between commas outside of parentheses. */
export function described(text: string): Description {
  const colon = text.indexOf(":");
  const name = (colon < 0 ? text : text.slice(0, colon)).trim();
  const keys: [string, string][] = [];
  let depth = 0;
  let part = "";
  for (const letter of `${colon < 0 ? "" : text.slice(colon + 1)},`) {
    if (letter === "(") depth++;
    if (letter === ")") depth--;
    if (letter !== "," || depth > 0) {
      part += letter;
      continue;
    }
    const at = part.indexOf("=");
    if (part.trim()) keys.push([part.slice(0, at).trim(), part.slice(at + 1).trim()]);
    part = "";
  }
  return { name, keys };
}

export const written = ({ name, keys }: Description): string =>
  keys.length ? `${name}:${keys.map(([key, value]) => `${key}=${value}`).join(",")}` : name;

export const valueOf = (text: string, key: string): string =>
  described(text).keys.find(([name]) => name === key)?.[1] ?? "";

/** The description with a part set, or without it where the value is empty. */
export function withValue(text: string, key: string, value: string): string {
  const { name, keys } = described(text);
  const others = keys.filter(([old]) => old !== key);
  const at = keys.findIndex(([old]) => old === key);
  if (value) others.splice(at < 0 ? others.length : at, 0, [key, value]);
  return written({ name, keys: others });
}

/** What a newly chosen kind of workload begins with. */
export const BEGINNINGS: Record<string, string> = {
  poisson: "poisson:rate=5,input=1024,output=256",
  users: "users:count=32,think=10s,input=1024,output=256",
};
