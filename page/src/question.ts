// What is asked: one value, which the address of the page holds whole.

export type Language = "en" | "zh";

export interface Question {
  model: string;
  /** A pasted config.json, empty for none. */
  config: string;
  /** A pasted engine command, empty for none. */
  command: string;
  gpu: string;
  gpus: number;
  engine: string;
  version: string;
  context: number;
  input: number;
  output: number;
  concurrency: number;
  weights: string;
  kv: string;
  util: string;
  price: string;
  /** Objectives, as `50ms` and `2s`; empty for none. */
  tpot: string;
  ttft: string;
  /** Further settings of the engine, as `name=value` lines. */
  settings: string;
  /** The workload that is simulated: a description, or `trace` for a file. */
  workload: string;
  /** Whether it was run, so that a link to it runs it again. */
  run: string;
  /** Fields of the Plan tab, of the recipe, the tables and the claims, as fields.ts writes them. */
  plan: string;
  recipe: string;
  table: string;
  claims: string;
  tab: string;
  language: Language;
}

export const DEFAULT: Question = {
  model: "meta-llama/Llama-3.1-8B-Instruct",
  config: "",
  command: "",
  gpu: "h100-sxm-80gb",
  gpus: 1,
  engine: "vllm",
  version: "",
  context: 8192,
  input: 2048,
  output: 512,
  concurrency: 32,
  weights: "",
  kv: "",
  util: "",
  price: "",
  tpot: "",
  ttft: "",
  settings: "",
  workload: "chat",
  run: "",
  plan: "",
  recipe: "",
  table: "",
  claims: "",
  tab: "growth",
  language: "en",
};

const PLAIN: (keyof Question)[] = [
  "model", "gpu", "engine", "version", "weights", "kv", "util", "price", "tpot", "ttft", "settings", "workload", "run", "plan", "recipe", "table", "claims", "tab",
];
const COUNTS: (keyof Question)[] = ["gpus", "context", "input", "output", "concurrency"];
/** The sections under the answer. */
export const TABS = ["growth", "speed", "traffic", "recipe", "changes", "engines", "accuracy", "plan", "tables", "claims", "doctor", "live"] as const;
/** Those that ask about something else than the deployment on the left. */
export const TOOLS: readonly string[] = ["plan", "tables", "claims", "doctor", "live"];

const MAX_COUNT = 2 ** 30;

/** The question that an address asks; what it does not say is the default. */
export async function questionOf(address: URL, language: Language): Promise<Question> {
  const query = address.searchParams;
  const found: Record<string, unknown> = { ...DEFAULT, language };
  for (const name of PLAIN) {
    const text = query.get(name);
    if (text !== null) found[name] = text.slice(0, 4000);
  }
  for (const name of COUNTS) {
    const count = Number(query.get(name));
    if (Number.isInteger(count) && count >= 1 && count <= MAX_COUNT) found[name] = count;
  }
  if (!TABS.includes(found.tab as (typeof TABS)[number])) found.tab = DEFAULT.tab;
  const asked = query.get("language");
  if (asked === "en" || asked === "zh") found.language = asked;
  const pasted = new URLSearchParams(address.hash.slice(1));
  for (const name of ["config", "command"] as const) {
    const packed = pasted.get(name);
    if (packed) found[name] = await unpacked(packed);
  }
  return found as unknown as Question;
}

/** The address that asks a question. */
export async function addressOf(question: Question, base: URL): Promise<URL> {
  const address = new URL(base.origin + base.pathname);
  for (const name of [...PLAIN, ...COUNTS, "language"] as (keyof Question)[]) {
    if (name === "language" || question[name] !== DEFAULT[name]) {
      address.searchParams.set(name, String(question[name]));
    }
  }
  const pasted = new URLSearchParams();
  for (const name of ["config", "command"] as const) {
    if (question[name]) pasted.set(name, await packed(question[name]));
  }
  address.hash = pasted.toString();
  return address;
}

/** Whether a prompt and its output are longer together than a request may be. */
export const isTooLong = ({ input, output, context }: Question): boolean => input + output > context;

/** Lengths that fit the longest request: a shorter prompt, and where that is not enough both. */
export function shortened({ input, output, context }: Question): Pick<Question, "input" | "output"> {
  if (input + output <= context) return { input, output };
  const answer = output < context ? output : Math.max(1, Math.floor(context / 4));
  return { input: Math.max(1, context - answer), output: answer };
}

/** The longest request that lets the lengths fit. */
export const raised = ({ input, output }: Question): number => 2 ** Math.ceil(Math.log2(input + output));

/** The body of POST /v1/fit and /v1/speed; beside a pasted command, the fields go before it. */
export function bodyOf(question: Question): Record<string, unknown> {
  const body: Record<string, unknown> = {
    gpu: question.gpu,
    gpus: question.gpus,
    context: question.context,
    language: question.language,
    request_tokens: question.input + question.output,
    concurrency: question.concurrency,
  };
  if (question.config) body.config = question.config;
  if (question.command) {
    body.command = question.command;
    if (question.version) body.engine = `${question.engine}@${question.version}`;
  } else {
    if (!question.config) body.model = question.model;
    body.engine = question.version ? `${question.engine}@${question.version}` : question.engine;
  }
  for (const name of ["weights", "kv"] as const) if (question[name]) body[name] = question[name];
  const share = Number(question.util);
  if (share > 0 && share <= 1) body.util = share;
  const settings = question.command ? {} : settingsOf(question.settings);
  if (Object.keys(settings).length) body.settings = settings;
  return body;
}

/** `name=value` lines as an object; values are JSON where they can be, else text. */
export function settingsOf(text: string): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const line of text.split("\n")) {
    const at = line.indexOf("=");
    if (at < 1) continue;
    const value = line.slice(at + 1).trim();
    try {
      found[line.slice(0, at).trim()] = JSON.parse(value);
    } catch {
      found[line.slice(0, at).trim()] = value;
    }
  }
  return found;
}

/** Lines that {@link settingsOf} passes over. */
export const unreadLines = (text: string): string[] =>
  text.split("\n").filter((line) => line.trim() && line.indexOf("=") < 1);

/** The lines that {@link settingsOf} reads, with further settings put in. */
export function withSettings(text: string, more: Record<string, unknown>): string {
  const all = { ...settingsOf(text), ...more };
  const written = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  return Object.entries(all)
    .map(([name, value]) => `${name}=${written(value)}`)
    .join("\n");
}

async function packed(text: string): Promise<string> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpacked(text: string): Promise<string> {
  try {
    const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return await new Response(stream).text();
  } catch {
    return "";
  }
}
