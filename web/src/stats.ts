// Distribution over many rows at each moment.

import type { Cells } from "./decode.ts";

export interface Bands {
  min: (number | null)[];
  median: (number | null)[];
  p95: (number | null)[];
  max: (number | null)[];
}

/** Nearest rank in sorted numbers. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))]!;
}

/** Minimum and maximum of the samples, median and 95th percentile of the means of these rows; null without samples. */
export function bands(cells: Cells, rows: number[]): Bands {
  const found: Bands = { min: [], median: [], p95: [], max: [] };
  const column = new Float64Array(rows.length);
  for (let bucket = 0; bucket < cells.buckets; bucket++) {
    let count = 0;
    let min = Infinity;
    let max = -Infinity;
    for (const row of rows) {
      const at = row * cells.buckets + bucket;
      const mean = cells.mean[at]!;
      if (Number.isNaN(mean)) continue;
      column[count++] = mean;
      min = Math.min(min, cells.low[at]!);
      max = Math.max(max, cells.high[at]!);
    }
    const sorted = column.subarray(0, count).sort();
    found.min.push(count ? min : null);
    found.median.push(count ? quantile(sorted, 0.5) : null);
    found.p95.push(count ? quantile(sorted, 0.95) : null);
    found.max.push(count ? max : null);
  }
  return found;
}

/** The value at the top of the colour scale; a spike in half a percent of the cells must not hide the rest. */
export function top(values: Float32Array): number {
  const every = Math.max(1, Math.floor(values.length / 50_000));
  const taken: number[] = [];
  let most = 0;
  values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    most = Math.max(most, value);
    if (at % every === 0) taken.push(value);
  });
  if (taken.length === 0) return 1;
  const usual = quantile(Float64Array.from(taken).sort(), 0.995);
  // Outlier rows must not be cut off, only a spike far above everything.
  return (most > 4 * usual && usual > 0 ? usual * 1.2 : most) || 1;
}
