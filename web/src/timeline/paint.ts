// Draws what of the timeline is in view; slices too narrow to see share a column.

import { FONT } from "../charts";
import { shortName, time } from "../format";
import { colour } from "../theme";
import { firstAfter, type Layout, ROW, rowTop, type Track } from "./tracks";

export const AXIS = 24;
const MOST_FLOWS = 260; // more would be a haze
const NARROWEST_LABEL = 26;
const NARROW = 1.2; // px; narrower slices share columns
const FADED = 0.16;
const LETTER = 5.9; // px, on average
const LIGHT = new Set(["host", "module", "data", "launch"]);

export interface View { from: number; to: number; width: number }

export interface Emphasis {
  selected: number | null; // the id of a slice
  hovered: number | null;
  matches: Set<number> | null; // ids, where something is searched for
  op: number | null;
}

export type Palette = Record<string, string>;

const NAMES = ["compute", "bandwidth", "overhead", "unknown", "network", "host_link", "small", "python", "launch", "sync", "data", "unseen", "host", "module", "ink", "muted", "paper", "line", "grid", "on-fill"];

export function palette(): Palette {
  return Object.fromEntries(NAMES.map((name) => [name, colour(name)]));
}

export function paint(
  context: CanvasRenderingContext2D,
  layout: Layout,
  strings: string[],
  view: View,
  emphasis: Emphasis,
  colours: Palette,
): void {
  const scale = view.width / (view.to - view.from);
  context.clearRect(0, 0, view.width, layout.height + AXIS);
  context.font = `11px ${FONT}`;
  context.textBaseline = "middle";
  paintAxis(context, view, layout.height, colours);
  context.save();
  context.translate(0, AXIS);
  for (const track of layout.tracks) {
    context.fillStyle = colours.muted as string;
    context.fillText(track.title, 4, track.top + 9);
    for (let depth = 0; depth < track.rows.length; depth += 1) {
      paintRow(context, track, depth, strings, view, scale, emphasis, colours);
    }
  }
  paintFlows(context, layout, view, scale, emphasis, colours);
  context.restore();
}

function paintRow(
  context: CanvasRenderingContext2D,
  track: Track,
  depth: number,
  strings: string[],
  view: View,
  scale: number,
  emphasis: Emphasis,
  colours: Palette,
): void {
  const { lane } = track;
  const row = track.rows[depth] as Int32Array;
  const top = rowTop(track, depth);
  const columns = new Columns(context, top, ROW - 2, colours);
  for (let at = firstAfter(lane, row, view.from); at < row.length; at += 1) {
    const index = row[at] as number;
    const start = lane.start[index] as number;
    if (start > view.to) break;
    const left = Math.max(-2, (start - view.from) * scale);
    const right = Math.min(view.width + 2, (start + (lane.ns[index] as number) - view.from) * scale);
    const id = lane.id[index] as number;
    const marked = isMarked(emphasis, id, lane.op[index] as number);
    if (right - left < NARROW && id !== emphasis.selected && id !== emphasis.hovered) {
      columns.add(left, right, track.colours[index] as string, marked);
      continue;
    }
    context.globalAlpha = marked === false ? FADED : 1;
    context.fillStyle = colours[track.colours[index] as string] ?? (colours.unknown as string);
    const width = Math.max(1, right - left - (right - left > 3 ? 0.6 : 0));
    context.fillRect(left, top, width, ROW - 2);
    if (id === emphasis.selected || id === emphasis.hovered) {
      context.strokeStyle = colours.ink as string;
      context.lineWidth = id === emphasis.selected ? 2 : 1;
      context.strokeRect(left + 0.5, top + 0.5, Math.max(2, width - 1), ROW - 3);
    }
    if (width > NARROWEST_LABEL) paintLabel(context, track, index, strings, Math.max(0, left) + 4, Math.min(view.width, right), top, colours);
  }
  columns.flush();
  context.globalAlpha = 1;
}

function paintLabel(
  context: CanvasRenderingContext2D,
  track: Track,
  index: number,
  strings: string[],
  left: number,
  right: number,
  top: number,
  colours: Palette,
): void {
  const { lane } = track;
  context.fillStyle = (LIGHT.has(track.colours[index] as string) ? colours.ink : colours["on-fill"]) as string;
  const words = track.kind === "idle" ? (strings[lane.cause[index] as number] ?? "idle") : shortName(strings[lane.label[index] as number] ?? "");
  const room = Math.floor((right - left - 3) / LETTER);
  if (room > 2) context.fillText(words.length > room ? `${words.slice(0, room - 1)}…` : words, left, top + ROW / 2 - 0.5);
}

/** Slices narrower than they can be drawn: each column is as full as the time in it was. */
class Columns {
  private column = -1;
  private readonly filled = new Map<string, number>();
  private seen: boolean | null = null;

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly top: number,
    private readonly height: number,
    private readonly colours: Palette,
  ) {}

  add(left: number, right: number, name: string, marked: boolean | null): void {
    const column = Math.floor(left);
    if (column !== this.column) this.flush();
    this.column = column;
    this.filled.set(name, (this.filled.get(name) ?? 0) + (right - left));
    this.seen = marked || this.seen || (marked === false ? false : null);
  }

  flush(): void {
    if (this.column < 0 && !this.filled.size) return;
    let bottom = this.top + this.height;
    const total = [...this.filled.values()].reduce((sum, part) => sum + part, 0);
    // At least a pixel is seen of anything; what is looked for is seen at full height.
    const factor = this.seen === true ? this.height / total : Math.min(this.height / total, Math.max(this.height, 1 / total));
    this.context.globalAlpha = this.seen === false ? FADED : 1;
    for (const [name, part] of this.filled) {
      const height = part * factor;
      this.context.fillStyle = this.colours[name] ?? (this.colours.unknown as string);
      this.context.fillRect(this.column, bottom - height, 1, height);
      bottom -= height;
    }
    this.filled.clear();
    this.column = -1;
    this.seen = null;
  }
}

/** True: to be seen; false: to be faded; null: nothing is looked for. */
function isMarked(emphasis: Emphasis, id: number, op: number): boolean | null {
  if (emphasis.matches) return emphasis.matches.has(id);
  if (emphasis.op !== null) return op === emphasis.op;
  return null;
}

/** From launches to kernels: all of them where there are few in view, else the selected one's. */
function paintFlows(
  context: CanvasRenderingContext2D,
  layout: Layout,
  view: View,
  scale: number,
  emphasis: Emphasis,
  colours: Palette,
): void {
  const faint: number[] = [];
  for (const track of layout.tracks) {
    if (track.kind !== "stream") continue;
    for (const row of track.rows) {
      for (let at = firstAfter(track.lane, row, view.from); at < row.length; at += 1) {
        const index = row[at] as number;
        if ((track.lane.start[index] as number) > view.to || faint.length > MOST_FLOWS) break;
        if ((track.lane.flow[index] as number) >= 0) faint.push(track.lane.id[index] as number);
      }
    }
  }
  context.strokeStyle = colours.ink as string;
  context.lineWidth = 1;
  context.globalAlpha = 0.22;
  if (faint.length <= MOST_FLOWS) for (const kernel of faint) paintFlow(context, layout, kernel, view, scale);
  context.globalAlpha = 1;
  context.lineWidth = 1.6;
  for (const id of [emphasis.selected, emphasis.hovered]) {
    if (id === null) continue;
    for (const kernel of [id, ...(layout.kernels.get(id) ?? [])]) paintFlow(context, layout, kernel, view, scale);
  }
}

function paintFlow(context: CanvasRenderingContext2D, layout: Layout, kernel: number, view: View, scale: number): void {
  const to = layout.places.get(kernel);
  const launch = to ? layout.places.get(to.track.lane.flow[to.index] as number) : undefined;
  if (!to || !launch || launch.track.depth[launch.index] === 255) return;
  const x1 = ((launch.track.lane.start[launch.index] as number) - view.from) * scale;
  const y1 = rowTop(launch.track, launch.track.depth[launch.index] as number) + ROW - 2;
  const x2 = ((to.track.lane.start[to.index] as number) - view.from) * scale;
  const y2 = rowTop(to.track, to.track.depth[to.index] as number);
  const bend = (y2 - y1) * 0.4;
  context.beginPath();
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
  context.stroke();
}

function paintAxis(context: CanvasRenderingContext2D, view: View, height: number, colours: Palette): void {
  const span = view.to - view.from;
  const rough = span / Math.max(2, view.width / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  context.fillStyle = colours.muted as string;
  context.strokeStyle = colours.grid as string;
  context.lineWidth = 1;
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    const x = Math.round(((at - view.from) / span) * view.width) + 0.5;
    context.beginPath();
    context.moveTo(x, 16);
    context.lineTo(x, height + AXIS);
    context.stroke();
    context.fillText(tick(at, step), x + 3, 8);
  }
}

/** A time on the axis, with as many digits as the step between two asks for. */
function tick(ns: number, step: number): string {
  for (const [unit, factor] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]] as const) {
    if (ns >= factor) {
      const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / factor) - 1e-9)));
      return `${(ns / factor).toFixed(digits)} ${unit}`;
    }
  }
  return ns === 0 ? "0" : time(ns);
}

/** The whole step in a strip: what the device did, and which part of it is in view. */
export function paintMinimap(context: CanvasRenderingContext2D, layout: Layout, view: View, height: number, colours: Palette): void {
  context.clearRect(0, 0, view.width, height);
  const scale = view.width / layout.end;
  const device = layout.tracks.filter((track) => track.kind !== "host");
  for (const track of device.length ? device : layout.tracks.slice(0, 1)) {
    const idle = track.kind === "idle";
    const [top, tall] = idle ? [height - 9, 7] : [3, height - 14];
    const columns = new Columns(context, top, tall, colours);
    // On a CPU the host's operators are the work; those around them are not.
    const drawn = track.kind === "host" ? track.lane.bound.keys() : (track.rows[0] as Int32Array);
    for (const index of drawn) {
      if (track.kind === "host" && (track.lane.bound[index] as number) < 0) continue;
      const left = (track.lane.start[index] as number) * scale;
      const width = (track.lane.ns[index] as number) * scale;
      if (width < NARROW) columns.add(left, left + width, track.colours[index] as string, null);
      else {
        context.fillStyle = colours[track.colours[index] as string] ?? (colours.unknown as string);
        context.fillRect(left, top, width, tall);
      }
    }
    columns.flush();
  }
  const left = view.from * scale;
  const width = Math.max(3, (view.to - view.from) * scale);
  context.globalAlpha = 0.6;
  context.fillStyle = colours.paper as string;
  context.fillRect(0, 0, left, height);
  context.fillRect(left + width, 0, view.width, height);
  context.globalAlpha = 1;
  context.strokeStyle = colours.ink as string;
  context.lineWidth = 1;
  if (width < view.width - 1) context.strokeRect(left + 0.5, 0.5, width - 1, height - 1);
}
