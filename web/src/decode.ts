// Unpacks the cells of a chart; `src/rollbook/report/pack.py` describes the format.

import type { Packed } from "./model.ts";

/** Values of rows over time, one row after the other; NaN where there is no sample. */
export interface Cells {
  rows: number;
  buckets: number;
  mean: Float32Array;
  low: Float32Array;
  high: Float32Array;
}

export async function decode(packed: Packed): Promise<Cells> {
  const bytes = await inflate(fromBase64(packed.data));
  const size = packed.rows * packed.buckets;
  const total = size * packed.planes;
  if (bytes.length !== 2 * total) throw new Error(`${bytes.length} bytes where ${2 * total} were packed`);
  const unfold = (at: number): number => {
    const folded = bytes[at]! | (bytes[total + at]! << 8);
    return folded & 1 ? -((folded + 1) >> 1) : folded >> 1;
  };

  const steps = new Uint16Array(size);
  for (let row = 0; row < packed.rows; row++) {
    let step = 0;
    for (let at = row * packed.buckets; at < (row + 1) * packed.buckets; at++) steps[at] = step += unfold(at);
  }
  const value = (step: number): number => {
    if (step === 0) return NaN;
    const above = (step - 1) * packed.step;
    return packed.rooted ? above * above : packed.low + above;
  };
  const plane = (index: number): Float32Array =>
    Float32Array.from(steps, (step, at) => value(index === 0 ? step : step + unfold(index * size + at)));
  const mean = plane(0);
  const [low, high] = packed.planes === 1 ? [mean, mean] : [plane(1), plane(2)];
  return { rows: packed.rows, buckets: packed.buckets, mean, low, high };
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
