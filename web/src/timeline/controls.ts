// Mouse and keys: where they point, and what they do to the view.

import type { Diagnosis } from "../content";
import { hide, show } from "../tooltip";
import { sliceFacts } from "./detail";
import { AXIS, type Emphasis, type View } from "./paint";
import { firstAfter, type Layout, type Place, ROW, rowTop } from "./tracks";

interface Controls {
  move: (from: number, to: number) => void;
  zoom: (factor: number, at?: number) => void;
  pan: (part: number) => void;
  choose: (id: number | null, into?: boolean) => void;
  draw: () => void;
  emphasis: Emphasis;
  diagnosis: Diagnosis;
}

export function listen(canvas: HTMLCanvasElement, layout: Layout, view: View, controls: Controls): void {
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

export function listenMinimap(minimap: HTMLCanvasElement, layout: Layout, view: View, move: (from: number, to: number) => void): void {
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

/** Move so that a slice is seen, and wide enough to be one. */
export function bringIntoView(place: Place, view: View, move: (from: number, to: number) => void): void {
  const start = place.track.lane.start[place.index] as number;
  const end = start + (place.track.lane.ns[place.index] as number);
  const span = view.to - view.from;
  if (start >= view.from && end <= view.to && end - start > span / 200) return;
  const wanted = Math.min(span, Math.max(6 * (end - start), 20_000));
  move((start + end) / 2 - wanted / 2, (start + end) / 2 + wanted / 2);
}
