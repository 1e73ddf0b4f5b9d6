// The run as a moving picture: the weights fixed on the GPU, requests parked in the KV pool as
// blocks that grow with their KV, the queue at the gate, preempted ones sent out and let in again.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Fit } from "../api";
import { useWidth } from "../charts/Chart";
import { clock, gib, percent, whole } from "../format";
import { governing } from "../MemoryBar";
import type { Say } from "../words";
import { type Layout, layoutOf, type Place } from "./layout";
import { type Lot, lotName, type Parking, parkingOf } from "./parking";
import { type Block, type Moment, momentOf, type Scene, sceneOf } from "./scene";
import type { Served } from "./simulation";

const GLIDE = 0.35; // seconds on the screen that coming in and going out take
const SHOWN_SECONDS = 25; // a run is played in about this time
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20000];
const CURSOR_EVERY = 100; // ms: charts over time follow less closely than the picture
const STILL_EVERY = 1000; // ms between pictures where less motion is wanted

interface Props {
  served: Served;
  fit: Fit;
  say: Say;
  /** Hears which moment is shown, a few times a second. */
  onMoment: (seconds: number) => void;
}

export function Highway({ served, fit, say, onMoment }: Props) {
  const scene = useMemo(() => sceneOf(served.playback), [served]);
  const peak = useMemo(() => fullest(scene), [scene]);
  const engines = served.pools.reduce((sum, pool) => sum + pool.copies * pool.replicas, 0);
  const [place, width] = useWidth();
  const usual = SPEEDS.filter((each) => each <= Math.max(0.1, scene.seconds / SHOWN_SECONDS)).at(-1) ?? 1;
  const [speed, setSpeed] = useState(usual);
  const still = useStill();
  const player = usePlayer(scene.seconds, peak, speed, still);
  useEffect(() => setSpeed(usual), [scene]);
  const heard = useRef(0);
  useEffect(() => {
    const now = performance.now();
    if (player.playing && now - heard.current < CURSOR_EVERY) return;
    heard.current = now;
    onMoment(player.seconds);
  }, [player.seconds, player.playing]);
  const moment = momentOf(scene, player.seconds, still ? 0 : GLIDE * speed);
  const layout = useMemo(() => layoutOf(width, fit, scene.crowd), [width, fit, scene]);
  const parking = useMemo(() => width > 0 && parkingOf(scene, served.scheduler.kv_pool_tokens * engines, layout.cells.count), [scene, served, layout]);
  const told = tellingOf(moment, player.seconds, say);
  return (
    <figure class="highway" aria-label={say("highway")}>
      <div ref={place}>{parking && <Picture layout={layout} parking={parking} moment={moment} fit={fit} engines={engines} say={say} told={told} />}</div>
      <div class="player">
        <button type="button" onClick={player.toggle}>
          <span aria-hidden="true">{player.playing ? "❚❚" : "►"}</span> {say(player.playing ? "pause" : "play")}
        </button>
        <input
          type="range"
          aria-label={say("moment")}
          aria-valuetext={`${clock(player.seconds)} / ${clock(scene.seconds)}`}
          min={0}
          max={1000}
          step={1}
          value={scene.seconds ? Math.round((player.seconds / scene.seconds) * 1000) : 0}
          onInput={(event) => player.seek((Number(event.currentTarget.value) / 1000) * scene.seconds)}
        />
        <label>
          <span>{say("playSpeed")}</span>{" "}
          <select value={String(speed)} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
            {SPEEDS.map((each) => (
              <option key={each} value={String(each)} selected={each === speed}>
                {each}×
              </option>
            ))}
          </select>
        </label>
      </div>
      <p class="told-moment number">{told}</p>
      <ul class="keys">
        {(["queued", "preempted", "prefill", "decode", "again"] as const).map((name) => (
          <li key={name}>
            <svg width="12" height="12" aria-hidden="true">
              <Mark name={name} x={0.5} y={0.5} size={11} />
            </svg>
            {say(`state_${name}`)}
          </li>
        ))}
      </ul>
      <figcaption class="caption">
        {storyOf(served, scene, say)}
        {served.playback.requests_left_out > 0 && ` ${say("leftOut")} ${whole(served.playback.requests_left_out)}.`}
      </figcaption>
    </figure>
  );
}

interface Player {
  seconds: number;
  playing: boolean;
  toggle: () => void;
  seek: (seconds: number) => void;
}

/** The time of the picture, which goes on by itself while it plays. */
function usePlayer(end: number, first: number, speed: number, still: boolean): Player {
  const [seconds, setSeconds] = useState(first);
  const [playing, setPlaying] = useState(false);
  const begun = useRef(false);
  useEffect(() => {
    setSeconds(first);
    setPlaying(false);
    begun.current = false;
  }, [end, first]);
  useEffect(() => {
    if (!playing) return;
    let last = performance.now();
    let frame = 0;
    const move = (now: number) => {
      frame = requestAnimationFrame(move);
      if (still && now - last < STILL_EVERY) return;
      const step = ((now - last) / 1000) * speed;
      last = now;
      setSeconds((old) => Math.min(end, old + step));
    };
    frame = requestAnimationFrame(move);
    return () => cancelAnimationFrame(frame);
  }, [playing, speed, still, end]);
  useEffect(() => {
    if (playing && seconds >= end) setPlaying(false);
  }, [playing, seconds, end]);
  const toggle = () => {
    if (!playing && (!begun.current || seconds >= end)) setSeconds(0);
    begun.current = true;
    setPlaying(!playing);
  };
  const seek = (wanted: number) => {
    begun.current = true;
    setSeconds(Math.max(0, Math.min(end, wanted)));
  };
  return { seconds, playing, toggle, seek };
}

/** Whether the person asked for less motion. */
function useStill(): boolean {
  const [still, setStill] = useState(() => matchMedia("(prefers-reduced-motion: reduce)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-reduced-motion: reduce)");
    const heard = () => setStill(query.matches);
    query.addEventListener("change", heard);
    return () => query.removeEventListener("change", heard);
  }, []);
  return still;
}

/** When the KV pool is fullest. */
function fullest(scene: Scene): number {
  let best = scene.frames[0];
  for (const frame of scene.frames) if (frame[3] > (best?.[3] ?? 0)) best = frame;
  return best?.[0] ?? 0;
}

function tellingOf({ frame, queue }: Moment, seconds: number, say: Say): string {
  const out = queue.filter((waiting) => waiting.preempted).length;
  return [
    `${clock(seconds)}:`,
    `${whole(frame[1])} ${say("waiting")},`,
    `${whole(frame[2])} ${say("running")},`,
    ...(out ? [`${whole(out)} ${say("sentOut")},`] : []),
    `${say("pool")} ${percent(frame[3])}`,
  ].join(" ");
}

/** What happened, in words: for who does not see the picture. */
function storyOf(served: Served, scene: Scene, say: Say): string {
  const longest = scene.frames.reduce((best, frame) => (frame[1] > best[1] ? frame : best), [0, 0, 0, 0] as (typeof scene.frames)[number]);
  const parts = [`${say("poolFullest")} ${percent(served.kv_pool_usage.max)} (${clock(fullest(scene))}).`];
  parts.push(longest[1] ? `${say("queueLongest")} ${whole(served.waiting.max)} (${clock(longest[0])}).` : say("queueNever"));
  const first = scene.ways.flatMap((way) => way.stay.pauses.map(([out]) => out)).sort((one, two) => one - two)[0];
  parts.push(first === undefined ? say("preemptedNever") : `${say("preemptions")}: ${whole(served.preemptions)} (${say("firstAt")} ${clock(first)}).`);
  return parts.join(" ");
}

interface PictureProps {
  layout: Layout;
  parking: Parking;
  moment: Moment;
  fit: Fit;
  /** Engines whose pools are drawn as one. */
  engines: number;
  say: Say;
  told: string;
}

function Picture({ layout, parking, moment, fit, engines, say, told }: PictureProps) {
  const { queue, gpu, weights, other, pool, free, gate } = layout;
  const { frame, blocks } = moment;
  const rank = governing(fit);
  const shown = moment.queue.slice(0, queue.places.length);
  const more = Math.max(frame[1], moment.queue.length) - shown.length;
  return (
    <svg id="highway" class="chart road" viewBox={`0 0 ${layout.width} ${layout.height}`} width={layout.width} height={layout.height} role="img" aria-label={`${say("highway")}. ${told}`}>
      <defs>
        <pattern id="stripes" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="5" height="5" class="stripe-ground" />
          <rect width="2.5" height="5" class="stripe" />
        </pattern>
      </defs>
      <text x={queue.box.x} y={queue.box.y - 8}>{`${say("queueOutside")}: ${whole(frame[1])}`}</text>
      <text x={gpu.x} y={gpu.y - 8}>{`${say("gpuMemory")} ${gib(rank.total_bytes)} GiB`}</text>
      <text x={layout.poolLabel} y={gpu.y - 8} text-anchor="end" class="strong">{`${say("pool")}${engines > 1 ? ` × ${engines}` : ""} ${percent(frame[3])}`}</text>
      <rect class="road-gpu" {...rectOf(gpu)} />
      <rect class="seg-weights" {...rectOf(weights)}>
        <title>{`${say("seg_weights")}: ${gib(rank.weights_bytes)} GiB`}</title>
      </rect>
      <Sign box={weights} lines={[say("seg_weights"), `${gib(rank.weights_bytes)} GiB`]} />
      <rect class="seg-other" {...rectOf(other)}>
        <title>{`${say("other")}: ${gib(layout.otherBytes)} GiB`}</title>
      </rect>
      <Sign box={other} lines={[say("other"), `${gib(layout.otherBytes)} GiB`]} />
      <Sign box={free} lines={[say("seg_free"), `${gib(rank.free_bytes)} GiB`]} />
      <rect class="road-pool" {...rectOf(pool)} />
      {layout.level(frame[3]).map((bar, index) => (
        <rect key={index} class={index ? "road-level" : "road-level-ground"} {...rectOf(bar)} />
      ))}
      <line class="gate" x1={gate.x1} y1={gate.y1} x2={gate.x2} y2={gate.y2} />
      {shown.map((waiting, index) => {
        const at = queue.places[index] ?? { x: 0, y: 0 };
        return <Mark key={waiting.id} name={waiting.preempted ? "preempted" : "queued"} x={at.x} y={at.y} size={queue.size} />;
      })}
      {more > 0 && <text x={queue.more.x} y={queue.more.y}>{`+${whole(more)}`}</text>}
      {parkedBy(blocks, layout, parking, moment.seconds).map(([name, outline]) => (
        <path key={name} class={`request ${name}`} d={outline} />
      ))}
      {blocks.filter((block) => block.entered < 1 || block.leaves).map((block) => (
        <Moving key={block.id} block={block} layout={layout} parking={parking} />
      ))}
    </svg>
  );
}

const rectOf = ({ x, y, width, height }: Place) => ({ x, y, width: Math.max(0, width), height: Math.max(0, height) });

const LETTER = 6.4;
const WIDE_LETTER = 11.5;
const LINE = 15;

/** Words on a sign in a box, where there is room for one. */
function Sign({ box, lines }: { box: Place; lines: string[] }) {
  const upright = box.width < 84 && box.height > box.width;
  const shown = upright || box.height < 2 * LINE + 8 ? [lines.join(" ")] : lines;
  const long = 12 + Math.max(...shown.map((line) => [...line].reduce((sum, letter) => sum + (letter > "\u2e80" ? WIDE_LETTER : LETTER), 0)));
  const high = shown.length * LINE + 5;
  if ((upright ? box.height : box.width) < long || (upright ? box.width : box.height) < high) return null;
  const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  return (
    <g class="sign" text-anchor="middle" transform={upright ? `rotate(-90 ${middle.x} ${middle.y})` : undefined}>
      <rect x={middle.x - long / 2} y={middle.y - high / 2} width={long} height={high} rx="3" />
      {shown.map((line, index) => (
        <text key={line} x={middle.x} y={middle.y + 4 + (index - (shown.length - 1) / 2) * LINE}>{line}</text>
      ))}
    </g>
  );
}

/** Requests in the pool that look alike, as one outline: hundreds of them move many times a second. */
function parkedBy(blocks: Block[], layout: Layout, parking: Parking, seconds: number): [string, string][] {
  const outlines = new Map<string, string[]>();
  for (const block of blocks) {
    if (block.leaves) continue;
    const name = `${block.kind} tint-${block.id % 4}${block.preempted ? " again" : ""}`;
    const lot = parking.lots.get(lotName(block.id, block.since));
    const found = outlines.get(name) ?? [];
    found.push(outline(block, lot, layout, parking.cellTokens, seconds));
    outlines.set(name, found);
  }
  return [...outlines].map(([name, parts]) => [name, parts.join("")]);
}

interface MovingProps {
  block: Block;
  layout: Layout;
  parking: Parking;
}

const FLYING = 9;

/** A request on its way in or out. */
function Moving({ block, layout, parking }: MovingProps) {
  const lot = parking.lots.get(lotName(block.id, block.since));
  const home = layout.cells.at(lot?.cells[0] ?? 0);
  const { from, exit } = layout;
  if (!block.leaves) {
    const share = eased(block.entered);
    return <Mark name="prefill" x={from.x + (home.x - from.x) * share} y={from.y + (home.y - from.y) * share} size={FLYING} />;
  }
  const share = eased(block.left);
  const preempted = block.leaves === "preempted";
  const away = exit.horizontal ? { x: exit.at, y: home.y } : { x: home.x, y: exit.at };
  const target = preempted ? from : away;
  return (
    <Mark
      name={preempted ? "preempted" : block.kind}
      x={home.x + (target.x - home.x) * share}
      y={home.y + (target.y - home.y) * share}
      size={FLYING}
      opacity={preempted ? 1 : 1 - share}
    />
  );
}

/** The cells that a request holds, cells beside each other in one piece. */
function outline(block: Block, lot: Lot | undefined, layout: Layout, cellTokens: number, seconds: number): string {
  if (!lot) return "";
  const { size, at, columns } = layout.cells;
  const held = lot.cells.filter((_, index) => (lot.from[index] ?? 0) <= seconds);
  const parts: string[] = [];
  held.forEach((cell, index) => {
    const { x, y } = at(cell);
    const next = held[index + 1];
    const joined = next === cell + 1 && Math.floor(cell / columns) === Math.floor(next / columns);
    const full = next !== undefined ? 1 : Math.max(0.25, Math.min(1, block.tokens / cellTokens - index));
    const backwards = Math.floor(cell / columns) % 2 === 1;
    const width = joined ? size : (size - 1) * full;
    parts.push(`M${backwards ? x + size - 1 - width : x} ${y}h${width}v${size - 1}h${-width}z`);
  });
  return parts.join("");
}

const eased = (share: number): number => 1 - (1 - share) ** 3;

interface MarkProps {
  name: "queued" | "preempted" | "prefill" | "decode" | "again";
  x: number;
  y: number;
  size: number;
  opacity?: number;
}

/** One request; what it is at shows in its form as well as its colour. */
function Mark({ name, x, y, size, opacity }: MarkProps) {
  const crossed = name === "preempted" && size >= 6;
  const inset = size * 0.25;
  return (
    <g class={`request ${name}`} opacity={opacity}>
      <rect x={x} y={y} width={size} height={size} rx={Math.min(2, size / 5)} />
      {crossed && <path d={`M${x + inset} ${y + inset}L${x + size - inset} ${y + size - inset}M${x + size - inset} ${y + inset}L${x + inset} ${y + size - inset}`} />}
    </g>
  );
}
