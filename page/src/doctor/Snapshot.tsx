// A memory snapshot of PyTorch: what is held of a GPU, for what, and by whom.

import { size, whole } from "../format";
import type { Held } from "./diagnosis";
import { doctorNamed, type DoctorSay } from "./words";

const FILLS: Record<string, string> = {
  weights: "weights",
  kv_cache: "kv",
  graphs: "graphs",
  encoder: "buffers",
  activations: "activation",
  other: "other",
};

export function Snapshot({ held, told }: { held: Held; told: DoctorSay }) {
  const takers = Object.entries(held.by_taker).sort(([, one], [, two]) => two - one);
  const named = (taker: string) => doctorNamed(told, "taker", taker);
  let at = 0;
  return (
    <section class="snapshot">
      <h3>{`${told("snapshot")} ${held.device}`}</h3>
      <p class="number">
        {[
          `${size(held.reserved_bytes)} ${told("snapshot_reserved")}`,
          `${size(held.allocated_bytes)} ${told("snapshot_allocated")}`,
          `${size(held.unused_bytes)} ${told("snapshot_unused")}`,
          `${told("snapshot_largest")} ${size(held.largest_free_bytes)}`,
          `${told("snapshot_segments")} ${whole(held.segments)}`,
        ].join(" · ")}
      </p>
      <svg class="bar thin" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label={takers.map(([taker, bytes]) => `${named(taker)} ${size(bytes)}`).join(", ")}>
        <rect class="seg-free" width="1000" height="20" />
        {takers.map(([taker, bytes]) => {
          const width = (1000 * bytes) / (held.reserved_bytes || 1);
          const x = at;
          at += width;
          return <rect key={taker} class={`seg-${FILLS[taker] ?? "other"}`} x={x} width={width} height="20" />;
        })}
      </svg>
      <ul class="keys">
        {takers.map(([taker, bytes]) => (
          <li key={taker} class="number">
            <i class={`swatch seg-${FILLS[taker] ?? "other"}`} aria-hidden="true" /> {named(taker)} {size(bytes)}
          </li>
        ))}
      </ul>
      {held.sites.length > 0 && (
        <div class="scroll" tabIndex={0}>
          <table>
            <caption>{told("sites")}</caption>
            <tbody>
              {held.sites.map(({ where, taker, bytes, blocks }) => (
                <tr key={where}>
                  <td class="number">{size(bytes)}</td>
                  <td class="number">{`× ${whole(blocks)}`}</td>
                  <td class="number">{named(taker)}</td>
                  <td lang="en"><code>{where}</code></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
