// Bundles the page into the Python package, and the runtime of its server-less version beside it.
import { build } from "esbuild";
import { cp, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const web = join(here, "..", "src", "tokenroom", "web");
const out = join(web, "page");
const runtime = join(web, "runtime");

for (const folder of [out, runtime]) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
}
await build({
  entryPoints: {
    page: join(here, "src", "main.tsx"),
    theme: join(here, "src", "theme.ts"),
    worker: join(here, "src", "worker.ts"),
  },
  outdir: out,
  bundle: true,
  minify: true,
  target: "es2022",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file", ".log": "text" },
  assetNames: "[name]",
  legalComments: "linked",
  external: ["./runtime/pyodide.mjs"],
});
for (const file of ["index.html", "icon.svg"]) {
  await cp(join(here, "src", file), join(out, file));
}
const python = join(here, "node_modules", "pyodide");
for (const file of [
  "pyodide.mjs",
  "pyodide.asm.mjs",
  "pyodide.asm.wasm",
  "python_stdlib.zip",
  "pyodide-lock.json",
]) {
  await cp(join(python, file), join(runtime, file));
}
