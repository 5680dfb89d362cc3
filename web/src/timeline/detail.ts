// What is known of one slice.

import type { Diagnosis } from "../content";
import { h } from "../dom";
import { BOUNDS, CAUSES, lastPart, share, shortName, time } from "../format";
import { select, selected } from "../selection";
import { type Fact, facts } from "../tooltip";
import type { Layout, Place } from "./tracks";

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
    ["roofline minimum", floor >= 0 ? `${time(floor)}, ${share(ns ? floor / ns : null)} of its time` : null],
    ["above the minimum", floor >= 0 && ns > floor ? time(ns - floor) : null],
    [track.kind === "idle" ? "why" : "is", cause ? (track.kind === "idle" ? (CAUSES[cause] ?? cause) : cause) : null],
    ["after its launch", queued === null ? null : time(Math.max(0, queued))],
  ];
}

function title(diagnosis: Diagnosis, { track, index }: Place): string {
  return track.kind === "idle" ? "device idle" : shortName(diagnosis.strings[track.lane.label[index] as number] ?? "");
}

/** What is known of a slice, for the tooltip. */
export function sliceFacts(diagnosis: Diagnosis, layout: Layout, place: Place): HTMLElement {
  return facts(title(diagnosis, place), sliceList(diagnosis, layout, place));
}

/** What is known of a slice, with ways from it to others. */
export function described(diagnosis: Diagnosis, layout: Layout, place: Place, go: (id: number) => void): HTMLElement {
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
