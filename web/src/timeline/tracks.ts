// Lanes laid out as tracks: nested slices below those around them, host above device.

import type { Diagnosis, Lane } from "../content";
import { colourName } from "../theme";

export const ROW = 15;
const DEEPEST = 9;
const TITLE = 17;
const GAP = 6;

export type Kind = "host" | "idle" | "stream";

export interface Track {
  lane: Lane;
  kind: Kind;
  title: string;
  top: number;
  height: number;
  depth: Uint8Array; // of each slice; those deeper than what is drawn are 255
  rows: Int32Array[]; // slices at each depth, in order of time
  colours: string[]; // the custom property of each slice
}

export interface Place { track: Track; index: number }

export interface Layout { tracks: Track[]; height: number; end: number; places: Map<number, Place>; kernels: Map<number, number[]> }

/** How deep each slice lies inside others of its lane. */
function depths(lane: Lane): Uint8Array {
  const ends: number[] = [];
  const depth = new Uint8Array(lane.length);
  for (let index = 0; index < lane.length; index += 1) {
    const start = lane.start[index] as number;
    while (ends.length && (ends[ends.length - 1] as number) <= start) ends.pop();
    depth[index] = ends.length < DEEPEST ? ends.length : 255;
    ends.push(start + (lane.ns[index] as number));
  }
  return depth;
}

/** On one stream kernels may overlap a little: each goes to the first row that is free. */
function stacked(lane: Lane): Uint8Array {
  const free: number[] = [];
  const depth = new Uint8Array(lane.length);
  for (let index = 0; index < lane.length; index += 1) {
    const start = lane.start[index] as number;
    let row = free.findIndex((until) => until <= start);
    if (row < 0) row = free.length;
    free[row] = start + (lane.ns[index] as number);
    depth[index] = row < DEEPEST ? row : 255;
  }
  return depth;
}

function colourOf(lane: Lane, kind: Kind, index: number, strings: string[]): string {
  const cause = strings[lane.cause[index] as number];
  if (cause) return cause;
  const bound = strings[lane.bound[index] as number];
  if (bound) return colourName(bound);
  if (kind !== "host") return "unknown";
  return strings[lane.label[index] as number]?.startsWith("nn.Module") ? "module" : "host";
}

/** Threads that did next to nothing come after those that worked. */
function isQuiet(lane: Lane): boolean {
  return lane.length < 5;
}

export function layout(diagnosis: Diagnosis): Layout {
  const order: Kind[] = ["host", "idle", "stream"];
  const lanes = diagnosis.lanes
    .filter((lane) => lane.length > 0)
    .map((lane) => ({ lane, kind: lane.kind }))
    .sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || Number(isQuiet(a.lane)) - Number(isQuiet(b.lane)) || (a.lane.start[0] as number) - (b.lane.start[0] as number));
  const places = new Map<number, Place>();
  const kernels = new Map<number, number[]>();
  const tracks: Track[] = [];
  let top = 0;
  let end = 1;
  for (const { lane, kind } of lanes) {
    const depth = kind === "host" ? depths(lane) : stacked(lane);
    const rows: number[][] = [];
    const colours: string[] = [];
    for (let index = 0; index < lane.length; index += 1) {
      end = Math.max(end, (lane.start[index] as number) + (lane.ns[index] as number));
      colours.push(colourOf(lane, kind, index, diagnosis.strings));
      const flow = lane.flow[index] as number;
      if (flow >= 0) kernels.set(flow, [...(kernels.get(flow) ?? []), lane.id[index] as number]);
      if (depth[index] !== 255) (rows[depth[index] as number] ??= []).push(index);
    }
    const title = kind === "idle" ? "device idle, by cause" : kind === "stream" ? `device stream ${lane.number}` : `host thread ${lane.number}`;
    const height = TITLE + rows.length * ROW;
    const track = { lane, kind, title, top, height, depth, rows: rows.map((row) => Int32Array.from(row)), colours };
    for (let index = 0; index < lane.length; index += 1) places.set(lane.id[index] as number, { track, index });
    tracks.push(track);
    top += height + GAP;
  }
  return { tracks, height: top, end, places, kernels };
}

export function rowTop(track: Track, depth: number): number {
  return track.top + TITLE + depth * ROW;
}

/** Of the slices of a row, the first that ends after a time. */
export function firstAfter(lane: Lane, row: Int32Array, at: number): number {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const index = row[middle] as number;
    if ((lane.start[index] as number) + (lane.ns[index] as number) <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
