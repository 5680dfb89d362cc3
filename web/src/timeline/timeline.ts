// The step as it happened: host over device, moved and zoomed with mouse or keys.

import type { Diagnosis } from "../content";
import { add, clear, h, section } from "../dom";
import { time } from "../format";
import { onSelect } from "../selection";
import { onScheme, swatch } from "../theme";
import { bringIntoView, listen, listenMinimap } from "./controls";
import { described } from "./detail";
import { AXIS, type Emphasis, paint, paintMinimap, palette, type View } from "./paint";
import { searchBox } from "./search";
import { layout as laidOut, type Layout } from "./tracks";

const SHORTEST_SPAN = 200; // ns
const MINIMAP = 38; // px

export interface TimelineView {
  element: HTMLElement;
  start: () => void;
  view: () => View;
  zoomTo: (from: number, to: number) => void;
  choose: (id: number) => void;
  found: () => number;
}

export function timeline(diagnosis: Diagnosis): TimelineView | null {
  if (!diagnosis.lanes.some((lane) => lane.length)) return null;
  const layout = laidOut(diagnosis);
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label": "timeline of the step. Arrow keys move and zoom, square brackets step from slice to slice, 0 shows all",
    class: "timeline",
  });
  const minimap = h("canvas", { class: "minimap", "aria-hidden": "true" });
  const detail = h("div", { class: "detail", role: "status" });
  const view: View = { from: 0, to: layout.end, width: 800 };
  const emphasis: Emphasis = { selected: null, hovered: null, matches: null, op: null };
  let colours = palette();
  let waiting = false;
  let started = false;

  const drawNow = () => {
    waiting = false;
    paint(sized(canvas, view.width, layout.height + AXIS), layout, diagnosis.strings, view, emphasis, colours);
    paintMinimap(sized(minimap, view.width, MINIMAP), layout, view, MINIMAP, colours);
  };
  const draw = () => {
    if (waiting || !started) return;
    waiting = true;
    requestAnimationFrame(drawNow);
  };
  const move = (from: number, to: number) => {
    const span = Math.min(layout.end, Math.max(SHORTEST_SPAN, to - from));
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(0, middle - span / 2), layout.end - span);
    view.to = view.from + span;
    draw();
  };
  const zoom = (factor: number, at = (view.from + view.to) / 2) =>
    move(at - (at - view.from) * factor, at + (view.to - at) * factor);
  const pan = (part: number) => {
    const shift = part * (view.to - view.from);
    const span = view.to - view.from;
    const from = Math.min(Math.max(0, view.from + shift), layout.end - span);
    move(from, from + span);
  };
  const choose = (id: number | null, into = false) => {
    emphasis.selected = id;
    const place = id === null ? undefined : layout.places.get(id);
    clear(detail);
    if (place) {
      add(detail, described(diagnosis, layout, place, (other) => choose(other, true)));
      if (into) bringIntoView(place, view, move);
    }
    draw();
  };

  const search = searchBox(diagnosis, layout, emphasis, (id) => (id === null ? draw() : choose(id, true)));
  listen(canvas, layout, view, { move, zoom, pan, choose, draw, emphasis, diagnosis });
  listenMinimap(minimap, layout, view, move);
  onScheme(() => {
    colours = palette();
    draw();
  });
  onSelect((op) => {
    emphasis.op = op ? op.index : null;
    draw();
  });

  const element = section(
    "timeline",
    "Timeline",
    h(
      "span",
      { class: "tools" },
      search.element,
      h("button", { type: "button", class: "small", "aria-label": "zoom in", onclick: () => zoom(0.5) }, "+"),
      h("button", { type: "button", class: "small", "aria-label": "zoom out", onclick: () => zoom(2) }, "−"),
      h("button", { type: "button", class: "small", onclick: () => move(0, layout.end) }, "all"),
    ),
    h("p", { class: "muted" }, words(diagnosis, layout)),
    legend(layout),
    h("div", { class: "timeline-box" }, minimap, h("div", { class: "timeline-scroll" }, canvas)),
    detail,
  );
  const start = () => {
    started = true;
    new ResizeObserver(() => {
      view.width = Math.max(320, canvas.parentElement?.clientWidth ?? 800);
      draw();
    }).observe(canvas.parentElement as HTMLElement);
    view.width = Math.max(320, canvas.parentElement?.clientWidth ?? 800);
    // At once: a page that is being printed has no next frame.
    drawNow();
  };
  return { element, start, view: () => ({ ...view }), zoomTo: move, choose: (id) => choose(id, true), found: search.found };
}

function words(diagnosis: Diagnosis, layout: Layout): string {
  const { step } = diagnosis;
  const drawn = layout.tracks.filter((track) => track.kind === "stream").reduce((sum, track) => sum + track.lane.length, 0);
  // The step is drawn at the estimate's pace where that explains it, else as profiled.
  const middle = ((step.profiled_ns ?? 0) + step.wall_ns) / 2;
  const estimated = Boolean(step.profiled_ns && step.profiled_ns > 1.01 * step.wall_ns && layout.end < middle);
  const parts = [`One step as ${estimated ? "estimated without the profiler" : "it was profiled"}, ${time(layout.end)} long`];
  if (step.dilation) parts.push(`${step.dilation.toFixed(2)}x a clean one: gaps are wider here than without a profiler`);
  else if (step.wall_source === "profiled" && !estimated) parts.push("with the profiler's own cost in it");
  if (drawn && drawn < step.kernels) parts.push(`the longest ${drawn.toLocaleString("en-US")} of ${step.kernels.toLocaleString("en-US")} kernels`);
  return `${parts.join("; ")}. Drag to move, Ctrl and wheel to zoom, or the arrow keys; click a kernel to see its launch.`;
}

function legend(layout: Layout): HTMLElement {
  const used = new Set(layout.tracks.flatMap((track) => track.colours.map((name) => `${track.kind === "idle" ? "idle" : ""} ${name}`)));
  const known: [string, string, string][] = [
    [" compute", "compute", "compute-bound kernel"],
    [" bandwidth", "memory", "memory-bound"],
    [" small", "small", "too small"],
    [" network", "network", "collective"],
    [" host_link", "host_link", "copy to or from the host"],
    [" unknown", "unknown", "no cost known"],
    ["idle python", "python", "idle: Python and framework"],
    ["idle launch", "launch", "idle: launch"],
    ["idle sync", "sync", "idle: sync"],
    ["idle data", "data", "idle: data"],
    ["idle unseen", "unseen", "idle: not shown by the trace"],
  ];
  return h("div", { class: "legend" }, known.filter(([key]) => used.has(key)).map(([, kind, label]) => h("span", {}, swatch(kind), label)));
}

/** A canvas of this size on the page, sharp on any screen. */
function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
