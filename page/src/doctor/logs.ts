// Logs as they are sent: files read in pieces, of large ones what tells most, line numbers kept.

import { base64Of } from "../files";

/** Bytes that are sent of a log at most: how it began, lines that tell, how it ended. */
const HEAD = 4 * 2 ** 20;
const TELLING = 1.5 * 2 ** 20;
const TAIL = 6 * 2 ** 20;
const LONGEST = 2 ** 18;

/** Bytes of a file that the server reads itself. */
const WHOLE = 11 * 2 ** 20;

/** Lines of failures and of what leads to them, as engines, PyTorch and kernels write them. */
const TELLS = /error|memory|oom|kill|alloc|preempt|retract|traceback|fail|fatal|shm|File "/i;
const PLAIN = /^[\x20-\x7e]*$/;
/** What no one unpacks here, and what the server does. */
const PACKED: [bytes: number[], what: string][] = [
  [[0x50, 0x4b, 3, 4], "zip"],
  [[0x28, 0xb5, 0x2f, 0xfd], "zstd"],
];
const UNPACKED: number[][] = [
  [0xfd, 0x37, 0x7a, 0x58], // xz
  [0x42, 0x5a, 0x68], // bzip2
];

/** Lines that follow each other: where the first stands in what is sent, and in the log. */
interface Run {
  sent: number;
  line: number;
}

export interface Log {
  name: string;
  /** What is sent; empty where the bytes are. */
  text: string;
  /** The bytes of what is no text: a memory snapshot, or packed as only the server unpacks it. */
  base64?: string;
  runs: Run[];
  /** Of the log, and of them those that are not sent. */
  lines: number;
  left_out: number;
  /** It ended in damage; what was read before it is here. */
  damaged: boolean;
}

/** Why a file is not read, as a word of the page. */
export class Unreadable extends Error {
  constructor(
    readonly word: "packed" | "large" | "binary" | "unreadable" | "empty",
    readonly detail = "",
  ) {
    super(word);
  }
}

/** The line of the log that a line of what was sent is; both counted from 1. */
export function lineOf(log: Log, sent: number): number {
  let found = 0;
  for (const run of log.runs) {
    if (run.sent > sent) break;
    found = run.line + sent - run.sent;
  }
  return found;
}

/** A log of a text. */
export function logOf(name: string, text: string): Log {
  const kept = new Kept();
  kept.feed(text);
  return kept.log(name, false);
}

/** A file, packed by gzip or not, read piece by piece. */
export async function readLog(file: File, onProgress: (share: number) => void, signal: AbortSignal): Promise<Log> {
  const start = await startOf(file);
  const packed = PACKED.find(([bytes]) => begins(start, bytes));
  if (packed) throw new Unreadable("packed", packed[1]);
  if (UNPACKED.some((bytes) => begins(start, bytes))) return bytesOf(file);
  let read = 0;
  const counted = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform(piece, stream) {
      read += piece.length;
      onProgress(read / file.size);
      stream.enqueue(piece);
    },
  });
  const plain = file.stream().pipeThrough(counted);
  const isGzip = start[0] === 0x1f && start[1] === 0x8b;
  const reader = (isGzip ? plain.pipeThrough(new DecompressionStream("gzip")) : plain).getReader();
  const kept = new Kept();
  let decoder: TextDecoder | undefined;
  let damaged = false;
  for (;;) {
    if (signal.aborted) {
      await reader.cancel();
      throw signal.reason;
    }
    let piece: ReadableStreamReadResult<Uint8Array<ArrayBuffer>>;
    try {
      piece = await reader.read();
    } catch {
      damaged = true; // cut off, or more than one file in it: what came before is a log as well
      break;
    }
    if (piece.done) break;
    if (!decoder && isPickle(piece.value)) {
      await reader.cancel();
      return bytesOf(file);
    }
    decoder ??= decoderOf(piece.value);
    kept.feed(decoder.decode(piece.value, { stream: true }));
  }
  if (!decoder) throw new Unreadable(damaged ? "unreadable" : "empty");
  kept.feed(decoder.decode());
  return kept.log(file.name, damaged);
}

async function startOf(file: File): Promise<Uint8Array> {
  try {
    return new Uint8Array(await file.slice(0, 8).arrayBuffer());
  } catch {
    throw new Unreadable("unreadable"); // a folder, or a file that is gone
  }
}

const begins = (start: Uint8Array, bytes: number[]): boolean => bytes.every((byte, index) => start[index] === byte);

/** Whether it begins as what torch.cuda.memory._dump_snapshot writes. */
const isPickle = (start: Uint8Array): boolean => start[0] === 0x80 && (start[1] ?? 0) >= 2 && (start[1] ?? 0) <= 5;

/** A file that is sent as it is. */
async function bytesOf(file: File): Promise<Log> {
  if (file.size > WHOLE) throw new Unreadable("large");
  return { name: file.name, text: "", base64: await base64Of(file), runs: [{ sent: 1, line: 1 }], lines: 0, left_out: 0, damaged: false };
}

/** What reads the bytes of a file that begins so: PowerShell redirects in UTF-16. */
function decoderOf(start: Uint8Array): TextDecoder {
  if (start[0] === 0xff && start[1] === 0xfe) return new TextDecoder("utf-16le");
  if (start[0] === 0xfe && start[1] === 0xff) return new TextDecoder("utf-16be");
  if (start.subarray(0, 4096).includes(0)) throw new Unreadable("binary");
  return new TextDecoder();
}

const encoder = new TextEncoder();

/** Bytes of a line in the question, whose limit leaves room for marks that are escaped. */
const costOf = (line: string): number =>
  PLAIN.test(line) ? line.length + 2 : encoder.encode(JSON.stringify(line)).length;

/** The beginning and the end of a text that comes in pieces, and between them lines that tell. */
class Kept {
  private rest = "";
  private count = 0;
  private head: string[] = [];
  private headBytes = 0;
  private telling: [line: number, text: string][] = [];
  private tellingBytes = 0;
  private tail: string[] = [];
  private tailStart = 0;
  private tailBytes = 0;

  feed(piece: string): void {
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.take(line);
    if (this.rest.length > LONGEST) this.rest = this.rest.slice(0, LONGEST);
  }

  private take(whole: string): void {
    const line = whole.length > LONGEST ? whole.slice(0, LONGEST) : whole;
    const cost = costOf(line);
    this.count++;
    if (!this.tail.length && this.headBytes + cost <= HEAD) {
      this.head.push(line);
      this.headBytes += cost;
      return;
    }
    this.tail.push(line);
    this.tailBytes += cost;
    while (this.tailBytes > TAIL) this.drop();
  }

  /** The oldest line of the end is between now: it stays where it tells something. */
  private drop(): void {
    const line = this.tail[this.tailStart++] ?? "";
    const cost = costOf(line);
    this.tailBytes -= cost;
    if (this.tellingBytes + cost <= TELLING && TELLS.test(line)) {
      this.telling.push([this.count - (this.tail.length - this.tailStart), line]);
      this.tellingBytes += cost;
    }
    if (this.tailStart < 65536) return;
    this.tail = this.tail.slice(this.tailStart);
    this.tailStart = 0;
  }

  log(name: string, damaged: boolean): Log {
    if (this.rest) this.take(this.rest);
    const runs: Run[] = [{ sent: 1, line: 1 }];
    const sent = this.head;
    const add = (line: number, text: string) => {
      const last = runs[runs.length - 1];
      if (last && line !== last.line + sent.length + 1 - last.sent) runs.push({ sent: sent.length + 1, line });
      sent.push(text);
    };
    for (const [line, text] of this.telling) add(line, text);
    const tail = this.tail.slice(this.tailStart);
    tail.forEach((text, index) => add(this.count - tail.length + index + 1, text));
    return { name, text: sent.join("\n"), runs, lines: this.count, left_out: this.count - sent.length, damaged };
  }
}
