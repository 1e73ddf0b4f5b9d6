// The deployment of a log as a question of the calculator.

import type { Fit } from "../api";
import { bodyOf, type Question } from "../question";

/** The fields of a question that ask for it, as the server fills them. */
export type Deployment = Partial<Question>;

/** The body of POST /v1/fit for it: whether it starts, on GPUs of which others hold as much. */
export function bodyOfDeployment(question: Question, deployment: Deployment, ledger: Fit): Record<string, unknown> {
  const cleared = { config: "", command: "" };
  const { concurrency: _, request_tokens: __, ...body } = bodyOf({ ...question, ...cleared, ...deployment });
  const { used_bytes: used } = ledger.hardware;
  return used ? { ...body, used: `${used}B` } : body;
}
