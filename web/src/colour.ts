// Colours of the theme, and the ramp of the heat maps: brightness changes steadily, so that it can be read without
// colour vision and on paper.

export type Colour = [red: number, green: number, blue: number];

const LIGHT: Colour[] = [
  [238, 243, 249],
  [189, 215, 236],
  [120, 176, 219],
  [58, 124, 186],
  [62, 66, 140],
  [74, 20, 84],
];
const DARK: Colour[] = [
  [26, 33, 44],
  [29, 62, 98],
  [31, 104, 148],
  [56, 156, 176],
  [150, 208, 154],
  [253, 240, 160],
];

export function isDark(): boolean {
  return document.documentElement.dataset["theme"] === "dark";
}

export function setDark(dark: boolean): void {
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
}

/** 256 colours from low to high. */
export function ramp(dark: boolean): Colour[] {
  const stops = dark ? DARK : LIGHT;
  return Array.from({ length: 256 }, (_, at) => {
    const place = (at / 255) * (stops.length - 1);
    const first = Math.min(stops.length - 2, Math.floor(place));
    const [from, to] = [stops[first]!, stops[first + 1]!];
    const part = place - first;
    return from.map((channel, index) => Math.round(channel + (to[index]! - channel) * part)) as Colour;
  });
}

/** A colour of the style sheet. */
export function theme(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The distinct colours for lines in the style sheet. */
export const LINES = 8;

/** The name of the colour of a line; it repeats after `LINES`. */
export function lineColour(at: number): string {
  return `line-${(at % LINES) + 1}`;
}
