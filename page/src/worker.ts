// Python in the browser: the server-less page asks it what it would ask a server.

interface Python {
  unpackArchive(archive: ArrayBuffer, format: string, options: { extractDir: string }): void;
  runPython(code: string): unknown;
}

interface Asked {
  kind: string;
  body: string;
}

type Telling = (done: number, total: number, figures: string, partial: string) => void;

type Answering = (kind: string, body: string, tell: Telling) => string;

// The runtime lies beside the bundle and is no part of it.
const RUNTIME = "./runtime/pyodide.mjs";
const PACKAGES = "/packages";

async function start(): Promise<Answering> {
  const loading = import(RUNTIME) as Promise<{ loadPyodide(): Promise<Python> }>;
  const archive = fetch("tokenroom.zip").then((response) => response.arrayBuffer());
  const python = await (await loading).loadPyodide();
  python.unpackArchive(await archive, "zip", { extractDir: PACKAGES });
  python.runPython(`import sys; sys.path.insert(0, "${PACKAGES}")`);
  return python.runPython("from tokenroom.web.bridge import answered; answered") as Answering;
}

const started = start();

addEventListener("message", async (event: MessageEvent<Asked>) => {
  const { kind, body } = event.data;
  try {
    const answering = await started;
    const tell: Telling = (done, total, figures, partial) =>
      postMessage({ done, total, figures: JSON.parse(figures), partial: JSON.parse(partial) });
    postMessage(answering(kind, body, tell));
  } catch (error) {
    const message = `Python could not be started in this browser (${error}); load the page again`;
    postMessage(JSON.stringify({ error: { message } }));
  }
});
