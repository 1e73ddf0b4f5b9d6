// Moments as people read them on their own clock.

/** The time of day of a moment in seconds since the epoch; with the date where it is not today's. */
export function timeOf(moment: number): string {
  const date = new Date(moment * 1000);
  const two = (part: number) => String(part).padStart(2, "0");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}
