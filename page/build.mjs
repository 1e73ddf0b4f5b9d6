// Bundles the page into the Python package: node build.mjs [OUT]
import { build } from "esbuild";
import { cp, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "src", "tokenroom", "web", "page");

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
await build({
  entryPoints: { page: join(here, "src", "main.tsx"), theme: join(here, "src", "theme.ts") },
  outdir: out,
  bundle: true,
  minify: true,
  target: "es2022",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file" },
  assetNames: "[name]",
  legalComments: "linked",
});
for (const file of ["index.html", "icon.svg"]) {
  await cp(join(here, "src", file), join(out, file));
}
