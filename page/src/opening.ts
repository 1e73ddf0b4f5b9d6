// The deployment that a command starts, as fields of the question.

import { ask } from "./api";
import type { Language, Question } from "./question";

const CLEARED = { config: "", command: "", settings: "", weights: "", kv: "", util: "", version: "" };

/** What the server reads in a command. */
export async function deploymentOf(command: string, gpu: string, language: Language): Promise<Partial<Question>> {
  const { question } = await ask<{ question: Partial<Question> & { notes?: string[]; read?: unknown } }>("read", { text: command, gpu, language });
  const { notes: _, read: __, context, ...fields } = question;
  return { ...CLEARED, ...fields, ...(context ? { context } : {}), gpu };
}
