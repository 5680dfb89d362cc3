// Looking for slices.

import type { Diagnosis } from "../content";
import { h } from "../dom";
import type { Emphasis } from "./paint";
import type { Layout } from "./tracks";

/** Finds slices by name, line or cause; Enter goes to the next one. */
export function searchBox(diagnosis: Diagnosis, layout: Layout, emphasis: Emphasis, go: (id: number | null) => void): { element: HTMLElement; found: () => number } {
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
