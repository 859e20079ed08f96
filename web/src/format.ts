// Numbers with units, and times, as text.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const TIMES = ["ns", "us", "ms", "s"];

/** A value with its unit, as the terminal shows it: `1.5 GiB/s`, `34 %`, `9.1 ms`, `10.3k/s`. */
export function amount(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "no data";
  if (unit.startsWith("B")) {
    const [scaled, power] = scale(value, 1024, 1023.95, BYTES.length - 1);
    return `${number(scaled)} ${BYTES[power]}${unit.slice(1)}`;
  }
  if (TIMES.includes(unit)) {
    const first = TIMES.indexOf(unit);
    const [scaled, power] = scale(value, 1000, 1000, TIMES.length - 1 - first);
    return `${number(scaled)} ${TIMES[first + power]}`;
  }
  if (unit === "1/s") {
    const size = Math.abs(value);
    const [factor, prefix] = size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
    return `${number(value / factor)}${prefix}/s`;
  }
  return `${number(value)} ${unit}`.trimEnd();
}

/** The value divided by `base` until it is below `limit`, and how often; at most `most` times. */
function scale(value: number, base: number, limit: number, most: number): [number, number] {
  let power = 0;
  while (Math.abs(value) >= limit && power < most) {
    value /= base;
    power++;
  }
  return [value, power];
}

/** Up to three significant digits: `0.0041`, `0.41`, `9.1`, `27`, `1234`. */
export function number(value: number): string {
  const size = Math.abs(value);
  if (size > 0 && size < 0.0995) return String(Number(value.toPrecision(2)));
  return String(Number(value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2)));
}

/** A multiple, as the terminal shows it: `0.41 ×`, `9.1 ×`, `27 ×`. */
export function times(ratio: number): string {
  return `${ratio.toFixed(ratio < 1 ? 2 : ratio < 10 ? 1 : 0)} ×`;
}

/** A length of time in its two largest units, as the terminal shows it: `0.25 s`, `12.4 s`, `3 min 5 s`, `1 d 1 h`. */
export function duration(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${number(seconds)} s`;
  const whole = Math.round(seconds);
  const parts: [number, string][] = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

const two = (count: number): string => String(count).padStart(2, "0");

/** `12:04:10`, in UTC. */
export function clock(ms: number, seconds = true): string {
  const at = new Date(Math.round(ms));
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${seconds ? `:${two(at.getUTCSeconds())}` : ""}`;
}

/** `2026-11-15`, in UTC. */
export function date(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}

export function moment(ms: number): string {
  return `${date(ms)} ${clock(ms)} UTC`;
}

/** The time in the reader's time zone. */
export function local(ms: number): string {
  return `${new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })} (local)`;
}

/** Text for the ticks of a time axis whose ticks are `step` milliseconds apart. */
export function ticks(times: number[], step: number): string[] {
  if (step >= 86_400_000) return times.map((time) => date(time).slice(5));
  if (step >= 60_000) return times.map((time) => clock(time, false));
  if (step >= 1000) return times.map((time) => clock(time));
  return times.map((time) => `${clock(time)}.${String(Math.floor(time % 1000)).padStart(3, "0")}`);
}

/** `3 hosts`, `1 host`. */
export function count(number: number, word: string): string {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

/** `16 hosts`, or `3 of 16 hosts` if they are not all. */
export function ofAll(some: number, all: number, word: string): string {
  return some === all ? count(all, word) : `${some} of ${count(all, word)}`;
}
