// The answer as files: JSON as the server gave it, a page of Markdown, the pictures.

import type { Fit, Speed } from "./api";
import { gib, rough, seconds, whole } from "./format";
import { governing, segmentsOf } from "./MemoryBar";
import { named, type Say } from "./words";

export function download(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const fileName = (fit: Fit, ending: string): string =>
  `${fit.model.name.replace(/.*\//, "")}-${fit.hardware.count}x${fit.hardware.accelerator}.${ending}`.replace(/[^\w.-]+/g, "-");

export function markdown(fit: Fit, speed: Speed | null, say: Say, address: string): string {
  const rank = governing(fit);
  const rows = segmentsOf(fit, rank).map((segment) => {
    const range = segment.range ? `${gib(segment.range[0])} – ${gib(segment.range[1])}` : segment.key === "weights" ? say("exact") : "";
    return `| ${say(segment.word)} | ${gib(segment.bytes)} | ${range} |`;
  });
  const lines = [
    `## ${cell(fit.model.name)}: ${fit.hardware.count} × ${fit.hardware.name}, ${fit.engine.name} ${fit.engine.version}`,
    "",
    `**${named(say, fit.verdict)}** · ${whole(fit.kv_pool_tokens)} ${say("tokensUnit")} · ${say("held")}: ${whole(fit.requests_held)} × ${whole(fit.request_tokens)}`,
    "",
    ...(fit.reason ? [cell(fit.reason), ""] : []),
    `| ${say("perGpu")} | GiB | |`,
    "|---|---:|---:|",
    ...rows,
    "",
  ];
  if (speed?.ttft_seconds) {
    lines.push(
      `| ${say("ttft")} | ${say("tpot")} | ${say("user")} | ${say("total")} |`,
      "|---:|---:|---:|---:|",
      `| ${seconds(speed.ttft_seconds.value)} | ${speed.tpot_seconds ? seconds(speed.tpot_seconds.value) : "—"} | ${speed.tokens_per_second_per_user ? rough(speed.tokens_per_second_per_user.value) : "—"} ${say("perSecond")} | ${rough(speed.output_tokens_per_second.value)} ${say("perSecond")} |`,
      "",
    );
  }
  if (fit.command) lines.push("```", fit.command, "```", "");
  lines.push(...fit.warnings.map((warning) => `- ${cell(warning)}`), "", `<${address}>`, "");
  return lines.join("\n");
}

const cell = (text: string): string => text.replace(/[<>|]/g, (mark) => `\\${mark}`);

/** Rows of cells as CSV; nothing stands for what there is not. */
export function csvText(rows: unknown[][]): string {
  const cell = (value: unknown) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

const CAPTION = 26;
const DRAWN = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity",
  "font-family", "font-size", "font-weight", "text-anchor",
];

/** A picture on the page as a file of its own, its styles written into it. */
export function svgText(shown: SVGSVGElement, caption: string): string {
  const copy = shown.cloneNode(true) as SVGSVGElement;
  const pairs = [...shown.querySelectorAll<SVGElement>("*")].map((one, index) => [
    one,
    copy.querySelectorAll<SVGElement>("*")[index],
  ] as const);
  for (const [from, to] of [[shown, copy] as const, ...pairs]) {
    const style = getComputedStyle(from);
    for (const name of DRAWN) to?.setAttribute(name, style.getPropertyValue(name));
    to?.removeAttribute("class");
  }
  const box = shown.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(box.width));
  copy.setAttribute("height", String(box.height + CAPTION));
  copy.setAttribute("viewBox", `0 ${-CAPTION} ${box.width} ${box.height + CAPTION}`);
  copy.setAttribute("preserveAspectRatio", "none");
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  ground.setAttribute("y", String(-CAPTION));
  ground.setAttribute("width", String(box.width));
  ground.setAttribute("height", String(box.height + CAPTION));
  ground.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  const words = document.createElementNS("http://www.w3.org/2000/svg", "text");
  const style = getComputedStyle(document.body);
  for (const [name, value] of Object.entries({ x: "4", y: "-9", fill: style.color, "font-family": style.fontFamily, "font-size": "12" })) {
    words.setAttribute(name, value);
  }
  words.textContent = caption;
  copy.prepend(ground, words);
  return new XMLSerializer().serializeToString(copy);
}

export async function png(shown: SVGSVGElement, caption: string): Promise<Blob> {
  const picture = new Image();
  picture.src = URL.createObjectURL(new Blob([svgText(shown, caption)], { type: "image/svg+xml" }));
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = picture.width * 2;
  canvas.height = picture.height * 2;
  canvas.getContext("2d")?.drawImage(picture, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(picture.src);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"),
  );
}
