// The step as it happened: host over device, moved and zoomed with mouse or keys.

import type { Diagnosis } from "../content";
import { add, clear, h, section } from "../dom";
import { BOUNDS, CAUSES, lastPart, share, shortName, time } from "../format";
import { onSelect, select, selected } from "../selection";
import { onScheme, swatch } from "../theme";
import { type Fact, facts, hide, show } from "../tooltip";
import { AXIS, type Emphasis, paint, paintMinimap, palette, type View } from "./paint";
import { firstAfter, layout as laidOut, type Layout, type Place, ROW, rowTop } from "./tracks";

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
  const parts = [`One step as it was profiled, ${time(layout.end)} long`];
  if (step.dilation) parts.push(`${step.dilation.toFixed(2)}x a clean one: gaps are wider here than without a profiler`);
  else if (step.wall_source === "profiled") parts.push("with the profiler's own cost in it");
  if (drawn && drawn < step.kernels) parts.push(`the longest ${drawn.toLocaleString("en-US")} of ${step.kernels.toLocaleString("en-US")} kernels`);
  return `${parts.join("; ")}. Drag to move, Ctrl and wheel to zoom, or the arrow keys; a click ties a kernel to its launch.`;
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

function bringIntoView(place: Place, view: View, move: (from: number, to: number) => void): void {
  const start = place.track.lane.start[place.index] as number;
  const end = start + (place.track.lane.ns[place.index] as number);
  const span = view.to - view.from;
  if (start >= view.from && end <= view.to && end - start > span / 200) return;
  const wanted = Math.min(span, Math.max(6 * (end - start), 20_000));
  move((start + end) / 2 - wanted / 2, (start + end) / 2 + wanted / 2);
}

interface Controls {
  move: (from: number, to: number) => void;
  zoom: (factor: number, at?: number) => void;
  pan: (part: number) => void;
  choose: (id: number | null, into?: boolean) => void;
  draw: () => void;
  emphasis: Emphasis;
  diagnosis: Diagnosis;
}

function listen(canvas: HTMLCanvasElement, layout: Layout, view: View, controls: Controls): void {
  const { move, zoom, pan, choose, draw, emphasis, diagnosis } = controls;
  const timeAt = (event: MouseEvent) => view.from + (event.offsetX / view.width) * (view.to - view.from);
  let drag: { x: number; from: number; to: number; moved: boolean } | null = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, from: view.from, to: view.to, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const shift = ((drag.x - event.offsetX) / view.width) * (drag.to - drag.from);
      drag.moved ||= Math.abs(drag.x - event.offsetX) > 3;
      const span = drag.to - drag.from;
      const from = Math.min(Math.max(0, drag.from + shift), layout.end - span);
      if (drag.moved) move(from, from + span);
      return;
    }
    const place = hit(layout, view, event.offsetX, event.offsetY - AXIS);
    const id = place ? (place.track.lane.id[place.index] as number) : null;
    if (id !== emphasis.hovered) {
      emphasis.hovered = id;
      draw();
    }
    if (place) show(sliceFacts(diagnosis, layout, place), event.clientX, event.clientY);
    else hide();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) {
      const place = hit(layout, view, event.offsetX, event.offsetY - AXIS);
      choose(place ? (place.track.lane.id[place.index] as number) : null);
    }
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    emphasis.hovered = null;
    hide();
    draw();
  });
  canvas.addEventListener("dblclick", (event) => {
    const place = hit(layout, view, event.offsetX, event.offsetY - AXIS);
    if (!place) return zoom(0.4, timeAt(event));
    const start = place.track.lane.start[place.index] as number;
    const ns = place.track.lane.ns[place.index] as number;
    move(start - ns * 0.1, start + ns * 1.1);
  });
  canvas.addEventListener("wheel", (event) => {
    // The plain wheel scrolls the page, except where the timeline has been clicked into.
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.min(0.5, Math.max(-0.5, event.deltaY * 0.004))), timeAt(event));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / view.width);
    else return;
    event.preventDefault();
  }, { passive: false });
  const keys: Record<string, () => void> = {
    ArrowLeft: () => pan(-0.15),
    ArrowRight: () => pan(0.15),
    ArrowUp: () => zoom(0.7),
    ArrowDown: () => zoom(1 / 0.7),
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    "0": () => move(0, layout.end),
    Home: () => pan(-1e9),
    End: () => pan(1e9),
    "]": () => choose(neighbour(layout, emphasis.selected, 1), true),
    "[": () => choose(neighbour(layout, emphasis.selected, -1), true),
    Escape: () => choose(null),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function listenMinimap(minimap: HTMLCanvasElement, layout: Layout, view: View, move: (from: number, to: number) => void): void {
  const centre = (event: PointerEvent) => {
    const at = (event.offsetX / view.width) * layout.end;
    const span = view.to - view.from;
    const from = Math.min(Math.max(0, at - span / 2), layout.end - span);
    move(from, from + span);
  };
  minimap.addEventListener("pointerdown", (event) => {
    minimap.setPointerCapture(event.pointerId);
    centre(event);
  });
  minimap.addEventListener("pointermove", (event) => {
    if (event.buttons) centre(event);
  });
}

/** The slice under a point; one too narrow to hit exactly is found within two pixels. */
function hit(layout: Layout, view: View, x: number, y: number): Place | null {
  const slack = (2 * (view.to - view.from)) / view.width;
  const at = view.from + (x / view.width) * (view.to - view.from);
  for (const track of layout.tracks) {
    const depth = Math.floor((y - rowTop(track, 0)) / ROW);
    const row = track.rows[depth];
    if (y < track.top || !row || depth < 0) continue;
    const first = firstAfter(track.lane, row, at - slack);
    const index = row[first];
    if (index !== undefined && (track.lane.start[index] as number) <= at + slack) return { track, index };
  }
  return null;
}

function neighbour(layout: Layout, id: number | null, step: number): number | null {
  const place = id === null ? undefined : layout.places.get(id);
  const track = place?.track ?? layout.tracks.find((one) => one.kind === "stream") ?? layout.tracks[0];
  if (!track) return null;
  const row = track.rows[place ? (track.depth[place.index] as number) : 0];
  if (!row?.length) return null;
  const now = place ? row.indexOf(place.index) : -1;
  const next = row[Math.min(row.length - 1, Math.max(0, now + step))] as number;
  return track.lane.id[next] as number;
}

function sliceList(diagnosis: Diagnosis, layout: Layout, { track, index }: Place): Fact[] {
  const { lane } = track;
  const { strings } = diagnosis;
  const ns = lane.ns[index] as number;
  const floor = lane.floor[index] as number;
  const op = diagnosis.ops[lane.op[index] as number];
  const bound = strings[lane.bound[index] as number];
  const cause = strings[lane.cause[index] as number];
  const launch = layout.places.get(lane.flow[index] as number);
  const queued = launch ? (lane.start[index] as number) - ((launch.track.lane.start[launch.index] as number) + (launch.track.lane.ns[launch.index] as number)) : null;
  return [
    ["time", time(ns)],
    ["starts at", time(lane.start[index] as number)],
    ["line", lastPart(strings[lane.where[index] as number])],
    ["operator", op && track.kind === "stream" ? shortName(op.name) : null],
    ["shapes", op?.shapes],
    ["bound by", bound ? (BOUNDS[bound] ?? bound) : null],
    ["floor", floor >= 0 ? `${time(floor)}, ${share(ns ? floor / ns : null)} of its time` : null],
    ["above floor", floor >= 0 && ns > floor ? time(ns - floor) : null],
    [track.kind === "idle" ? "why" : "is", cause ? (track.kind === "idle" ? (CAUSES[cause] ?? cause) : cause) : null],
    ["after its launch", queued === null ? null : time(Math.max(0, queued))],
  ];
}

function title(diagnosis: Diagnosis, { track, index }: Place): string {
  return track.kind === "idle" ? "device idle" : shortName(diagnosis.strings[track.lane.label[index] as number] ?? "");
}

function sliceFacts(diagnosis: Diagnosis, layout: Layout, place: Place): HTMLElement {
  return facts(title(diagnosis, place), sliceList(diagnosis, layout, place));
}

function described(diagnosis: Diagnosis, layout: Layout, place: Place, go: (id: number) => void): HTMLElement {
  const { lane } = place.track;
  const name = diagnosis.strings[lane.label[place.index] as number];
  const launch = lane.flow[place.index] as number;
  const launched = layout.kernels.get(lane.id[place.index] as number) ?? [];
  const op = diagnosis.ops[lane.op[place.index] as number];
  const button = (label: string, act: () => void) => h("button", { type: "button", class: "small", onclick: act }, label);
  return h(
    "div",
    {},
    facts(title(diagnosis, place), [["on", place.track.title], ...sliceList(diagnosis, layout, place)]),
    name && name !== title(diagnosis, place) && place.track.kind !== "idle" ? h("p", { class: "muted whole" }, h("code", {}, name)) : null,
    h(
      "div",
      { class: "tools" },
      launch >= 0 && layout.places.has(launch) ? button("go to its launch", () => go(launch)) : null,
      launched[0] !== undefined ? button("go to what it launched", () => go(launched[0] as number)) : null,
      op ? button("its operator alone", () => select(selected() === op ? null : op)) : null,
    ),
  );
}

/** Finds slices by name, line or cause; Enter goes to the next one. */
function searchBox(diagnosis: Diagnosis, layout: Layout, emphasis: Emphasis, go: (id: number | null) => void): { element: HTMLElement; found: () => number } {
  const input = h("input", { type: "search", placeholder: "search slices", "aria-label": "search the timeline", id: "timeline-search" });
  const tally = h("span", { class: "muted", role: "status" });
  let ordered: number[] = [];
  let at = -1;
  const look = () => {
    const wanted = input.value.trim().toLowerCase();
    ordered = [];
    at = -1;
    if (wanted) {
      const hits = diagnosis.strings.map((text) => text.toLowerCase().includes(wanted));
      const found: [number, number][] = [];
      for (const { lane } of layout.tracks) {
        for (let index = 0; index < lane.length; index += 1) {
          if (hits[lane.label[index] as number] || hits[lane.where[index] as number] || hits[lane.cause[index] as number]) {
            found.push([lane.start[index] as number, lane.id[index] as number]);
          }
        }
      }
      ordered = found.sort((a, b) => a[0] - b[0]).map(([, id]) => id);
    }
    emphasis.matches = wanted ? new Set(ordered) : null;
    tally.textContent = wanted ? `${ordered.length.toLocaleString("en-US")} found` : "";
    go(null);
  };
  input.addEventListener("input", look);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !ordered.length) return;
    at = (at + (event.shiftKey ? -1 : 1) + ordered.length) % ordered.length;
    tally.textContent = `${at + 1} of ${ordered.length.toLocaleString("en-US")}`;
    go(ordered[at] as number);
  });
  return { element: h("span", {}, input, " ", tally), found: () => ordered.length };
}

