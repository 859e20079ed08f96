// Numbers with units, and times, as text.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A value with its unit: `1.5 GiB/s`, `34 %`, `9.1 ms`, `318/s`. */
export function amount(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "no data";
  if (unit.startsWith("B")) {
    let power = 0;
    let scaled = value;
    while (Math.abs(scaled) >= 1023.95 && power < BYTES.length - 1) {
      scaled /= 1024;
      power++;
    }
    return `${number(scaled)} ${BYTES[power]}${unit.slice(1)}`;
  }
  if (unit === "ns" || unit === "us") return amount(value / (unit === "ns" ? 1e6 : 1e3), "ms");
  if (unit === "ms" && Math.abs(value) >= 1000) return `${number(value / 1000)} s`;
  if (unit === "ms" && value !== 0 && Math.abs(value) < 0.1) return `${number(value * 1000)} µs`;
  if (unit === "1/s") return `${number(value)}/s`;
  return `${number(value)} ${unit}`.trimEnd();
}

/** Three significant digits, thousands separated. */
export function number(value: number): string {
  const size = Math.abs(value);
  if (size >= 999.5) return Math.round(value).toLocaleString("en-GB").replaceAll(",", "\u202f");
  const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.01 || size === 0 ? 2 : 4;
  return String(Number(value.toFixed(digits)));
}

export function duration(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 60) return `${number(seconds)} s`;
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
