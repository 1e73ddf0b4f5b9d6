// What the Plan tab asks: its fields, and the body of POST /v1/plan.

import { type Fields, listOf, numberOr } from "../fields";

export interface PlanAsked extends Fields {
  models: string;
  /** `users`, `clients` or `rate`. */
  load: string;
  users: string;
  think: string;
  clients: string;
  rate: string;
  burst: string;
  input: string;
  output: string;
  context: string;
  ttft: string;
  tpot: string;
  keep: string;
  /** `from`: kinds to choose from; `have`: GPUs that there are. */
  choose: string;
  /** `key:count:price` of each. */
  gpus: string;
  engines: string;
  weights: string;
  kv: string;
  /** Whether settings of the engine are tried, and prompts and answers on servers of their own. */
  tune: string;
  apart: string;
  /** Settings to choose from, with commas between; those usual where empty. */
  tokens: string;
  seqs: string;
  share: string;
  offload: string;
  draft: string;
  most: string;
  budget: string;
  top: string;
  /** Whether it was searched, so that a link to it searches again. */
  run: string;
}

export const BEGINNING: PlanAsked = {
  models: "",
  load: "users",
  users: "200",
  think: "10s",
  clients: "64",
  rate: "5/s",
  burst: "",
  input: "3072",
  output: "1024",
  context: "",
  ttft: "2s",
  tpot: "50ms",
  keep: "p95",
  choose: "from",
  gpus: "h100-sxm-80gb::,a100-sxm-80gb::,l40s::",
  engines: "vllm",
  weights: "",
  kv: "auto",
  tune: "yes",
  apart: "yes",
  tokens: "",
  seqs: "",
  share: "",
  offload: "",
  draft: "",
  most: "8",
  budget: "",
  top: "5",
  run: "",
};

export interface Chosen {
  key: string;
  count: string;
  price: string;
}

export const chosenOf = (text: string): Chosen[] =>
  listOf(text).map((part) => {
    const [key = "", count = "", price = ""] = part.split(":");
    return { key, count, price };
  });

export const chosenText = (chosen: Chosen[]): string =>
  chosen.map(({ key, count, price }) => `${key}:${count}:${price}`.replaceAll(",", "")).join(",");

/** The models of the question; the calculator's where none is named. */
export const modelsOf = (asked: PlanAsked, model: string): string[] => {
  const named = listOf(asked.models);
  return named.length ? named : [model];
};

export function planBody(asked: PlanAsked, model: string, language: string): Record<string, unknown> {
  const gpus = chosenOf(asked.gpus);
  const given = (name: string, text: string, value: unknown = text) => (text ? { [name]: value } : {});
  const load = {
    users: { users: numberOr(asked.users), ...given("think_time", asked.think) },
    clients: { concurrency: numberOr(asked.clients) },
    rate: { rate: asked.rate, ...given("burst", asked.burst, numberOr(asked.burst)) },
  }[asked.load];
  const prices = gpus.filter(({ price }) => price).map(({ key, price }) => [key, numberOr(price)]);
  return {
    models: modelsOf(asked, model),
    ...load,
    input: numberOr(asked.input),
    output: numberOr(asked.output),
    ...given("context", asked.context, numberOr(asked.context)),
    ...given("ttft", asked.ttft),
    ...given("tpot", asked.tpot),
    keep: asked.keep,
    ...(asked.choose === "have"
      ? { have: Object.fromEntries(gpus.map(({ key, count }) => [key, numberOr(count || "1")])) }
      : { gpus_from: gpus.map(({ key }) => key) }),
    prices: Object.fromEntries(prices),
    ...given("budget", asked.budget, numberOr(asked.budget)),
    max_gpus: numberOr(asked.most),
    engines: listOf(asked.engines),
    weights: listOf(asked.weights),
    kv: listOf(asked.kv),
    top: numberOr(asked.top),
    disaggregate: asked.apart === "yes",
    settings: {
      ...given("token_budget", asked.tokens, listOf(asked.tokens)),
      ...given("max_num_seqs", asked.seqs, listOf(asked.seqs)),
      ...given("util", asked.share, listOf(asked.share)),
      ...given("kv_offload", asked.offload, listOf(asked.offload)),
      ...given("draft", asked.draft, listOf(asked.draft)),
      engine_defaults: asked.tune !== "yes",
    },
    language,
  };
}

/** Fields of the form by the names that the server's sentences use. */
const FIELDS: Record<string, keyof PlanAsked> = {
  models: "models", users: "users", think_time: "think", concurrency: "clients", rate: "rate", burst: "burst",
  input: "input", output: "output", context: "context", ttft: "ttft", tpot: "tpot", gpus_from: "gpus", have: "gpus",
  prices: "gpus", price: "gpus", budget: "budget", max_gpus: "most", engines: "engines", engine: "engines",
  token_budget: "tokens", max_num_seqs: "seqs", util: "share", kv_offload: "offload", draft: "draft",
  weights: "weights", kv: "kv", top: "top", objective: "ttft", catalogue: "models",
};

/** The field that a refusal is about, empty where it names none. */
export function fieldOf(refusal: string): keyof PlanAsked | "" {
  const word = refusal.match(/[a-z_]+/g)?.find((found) => found in FIELDS);
  return word ? (FIELDS[word] ?? "") : "";
}
