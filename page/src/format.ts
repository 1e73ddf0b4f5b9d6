// Numbers as people read them: bytes in GiB, thousands separated, never more digits than known.

const GIB = 2 ** 30;

export const whole = (value: number): string => Math.round(value).toLocaleString("en-US");

export const gib = (bytes: number): string => {
  const size = bytes / GIB;
  // halves as the server's sentences round them
  const digits = { minimumFractionDigits: 2, maximumFractionDigits: 2, roundingMode: "halfEven" };
  return size.toLocaleString("en-US", digits as Intl.NumberFormatOptions);
};

/** GiB, or a smaller unit for what that would show as nothing. */
export const size = (bytes: number): string => {
  if (Math.abs(bytes) >= GIB / 100 || bytes === 0) return `${gib(bytes)} GiB`;
  return Math.abs(bytes) >= 2 ** 20 ? `${rough(bytes / 2 ** 20)} MiB` : `${rough(bytes / 1024)} KiB`;
};

/** Three significant digits. */
export const rough = (value: number): string =>
  value >= 1000 ? whole(Number(value.toPrecision(3))) : String(Number(value.toPrecision(3)));

export const seconds = (value: number): string =>
  value < 1 ? `${rough(value * 1000)} ms` : `${rough(value)} s`;

/** A length in tokens, as 8K where that is exact. */
export const tokens = (value: number): string => {
  if (value >= 2 ** 20 && value % 2 ** 20 === 0) return `${value / 2 ** 20}M`;
  if (value >= 1024 && value % 1024 === 0) return `${value / 1024}K`;
  return whole(value);
};

export const parameters = (count: number): string =>
  count >= 1e12 ? `${rough(count / 1e12)}T` : count >= 1e9 ? `${rough(count / 1e9)}B` : `${rough(count / 1e6)}M`;

/** Exact bytes, for titles. */
export const exactly = (bytes: number): string => `${whole(bytes)} B`;

export const percent = (share: number): string => `${(share * 100).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}%`;

/** A time of a run, as 4.2 s, 3:07 or 1:02:33. */
export const clock = (value: number): string => {
  if (value < 120) return `${value.toFixed(1)} s`;
  const count = Math.floor(value);
  const two = (part: number) => String(part).padStart(2, "0");
  const minutes = Math.floor(count / 60);
  return minutes < 60 ? `${minutes}:${two(count % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(count % 60)}`;
};

/** The language of what a server said: refusals that have no Chinese stay English. */
export const languageOf = (text: string): string | undefined => (/[\u4e00-\u9fff]/.test(text) ? undefined : "en");
