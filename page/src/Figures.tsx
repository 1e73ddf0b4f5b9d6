// The figures one looks for first.

import type { ComponentChildren } from "preact";
import type { Fit, Ranged, Speed } from "./api";
import { rough, seconds, tokens, whole } from "./format";
import { named, type Say } from "./words";

interface FigureProps {
  label: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  onExplain?: () => void;
  title?: string;
}

export function Figure({ label, value, note, onExplain, title }: FigureProps) {
  const inner = (
    <>
      <span class="label">{label}</span>
      <span class="value number">{value}</span>
      <span class="note">{note}</span>
    </>
  );
  return onExplain ? (
    <button type="button" class="figure" title={title} onClick={onExplain}>
      {inner}
    </button>
  ) : (
    <div class="figure">{inner}</div>
  );
}

const between = (range: Ranged, shown: (value: number) => string) =>
  `${shown(range.low)} – ${shown(range.high)}`;

interface Props {
  fit: Fit;
  speed: Speed | null;
  speedRefusal: string;
  /** The speed is that of an earlier question. */
  speedStale: boolean;
  say: Say;
  /** Where they are explained; they are no buttons without it. */
  onExplain?: (key: string) => void;
}

export function Figures({ fit, speed, speedRefusal, speedStale, say, onExplain }: Props) {
  const range = fit.estimates.kv_pool_tokens;
  const asked = fit.concurrency_asked ?? 1;
  const waiting = Math.max(0, asked - fit.requests_running);
  const explain = (key: string) => onExplain && (() => onExplain(key));
  const explainSpeed = explain("speed");
  const hint = onExplain && say("explainHint");
  return (
    <div class="figures">
      <Figure
        label={say("pool")}
        value={whole(fit.kv_pool_tokens)}
        note={range && range[0] !== range[1] ? `${whole(range[0])} – ${whole(range[1])}` : say("tokensUnit")}
        title={hint}
        onExplain={explain("kv")}
      />
      <Figure
        label={say("held")}
        value={whole(fit.requests_held)}
        note={`× ${tokens(fit.request_tokens)} · ${whole(Math.min(asked, fit.requests_running))} ${say("running")}${waiting ? ` · ${whole(waiting)} ${say("waiting")}` : ""}`}
        title={hint}
        onExplain={explain("kv_request")}
      />
      <Figure label={say("longest")} value={tokens(fit.max_model_len_that_fits)} note={say("tokensUnit")} title={hint} onExplain={explain("kv_available")} />
      {speed ? (
        <div class={speedStale ? "speed stale" : "speed"} aria-busy={speedStale}>
          <Figure label={say("ttft")} value={seconds(speed.ttft_seconds.value)} note={between(speed.ttft_seconds, seconds)} title={hint} onExplain={explainSpeed} />
          <Figure label={say("tpot")} value={speed.tpot_seconds ? seconds(speed.tpot_seconds.value) : "—"} note={speed.tpot_seconds ? between(speed.tpot_seconds, seconds) : ""} title={hint} onExplain={explainSpeed} />
          <Figure
            label={say("user")}
            value={<>{speed.tokens_per_second_per_user ? rough(speed.tokens_per_second_per_user.value) : "—"} <small>{say("perSecond")}</small></>}
            note={speed.tokens_per_second_per_user ? between(speed.tokens_per_second_per_user, rough) : ""}
            title={hint}
            onExplain={explainSpeed}
          />
          <Figure
            label={say("total")}
            value={<>{rough(speed.output_tokens_per_second.value)} <small>{say("perSecond")}</small></>}
            note={`${say("limitedBy")} ${named(say, speed.tpot_limiter ?? speed.decode.limiter)}`}
            title={hint}
            onExplain={explainSpeed}
          />
          {speed.usd_per_million_output_tokens && (
            <Figure label={say("cost")} value={`$${rough(speed.usd_per_million_output_tokens.value)}`} note={between(speed.usd_per_million_output_tokens, (value) => `$${rough(value)}`)} title={hint} onExplain={explainSpeed} />
          )}
        </div>
      ) : (
        speedRefusal && <Figure label={say("noSpeed")} value="—" note={speedRefusal} />
      )}
    </div>
  );
}
