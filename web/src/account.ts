// Where a step's time goes, as one bar and its legend.

import type { Diagnosis, Groups } from "./content";
import { h } from "./dom";
import { PARTS, share, time } from "./format";
import { colourName, swatch } from "./theme";
import { facts, hide, show } from "./tooltip";

export const GROUPS = ["compute", "bandwidth", "overhead", "unknown"] as const;
const SHADES = [1, 0.72, 0.86, 0.6, 0.5];

interface Piece { group: string; part: string | null; ns: number; excess: number; shade: number }

function pieces(diagnosis: Diagnosis): Piece[] {
  return GROUPS.flatMap((name): Piece[] => {
    const group = diagnosis.account[name];
    const parts = Object.entries(group.parts).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
    if (!parts.length) {
      return [{ group: name, part: null, ns: group.ns, excess: group.excess_ns ?? 0, shade: 1 }];
    }
    // Time above the roofline minimum is known per group: it is drawn in the group's largest part.
    return parts.map(([part, ns], index) => ({
      group: name,
      part,
      ns,
      excess: index === 0 ? Math.min(ns, group.excess_ns ?? 0) : 0,
      shade: SHADES[index] ?? 0.5,
    }));
  });
}

/** The account as one stacked bar: a segment for each part, hatched where above the roofline minimum. */
export function accountBar(diagnosis: Diagnosis): HTMLElement {
  const wall = diagnosis.step.wall_ns;
  const segments = pieces(diagnosis).filter((piece) => piece.ns > 0);
  return h(
    "div",
    { class: "bar", role: "img", "aria-label": accountWords(diagnosis), id: "account-bar" },
    segments.map((piece) => {
      const words = piece.part ? (PARTS[piece.part] ?? piece.part) : "";
      const width = (100 * piece.ns) / wall;
      const segment = h(
        "div",
        {
          class: "segment",
          "data-group": piece.group,
          "data-part": piece.part ?? "",
          "style.width": `${width}%`,
          "style.background": `color-mix(in srgb, var(--${colourName(piece.group)}) ${piece.shade * 100}%, var(--paper))`,
        },
        piece.excess > 0 &&
          h("div", { class: "excess", "style.width": `${(100 * piece.excess) / piece.ns}%` }),
        width > 9 && h("span", { "style.color": piece.shade < 0.8 ? "var(--ink)" : undefined }, `${words || piece.group} ${share(piece.ns / wall)}`),
      );
      const content = facts(`${piece.group}${words ? `: ${words}` : ""}`, [
        ["time", time(piece.ns)],
        ["of the step", share(piece.ns / wall)],
        ["above the roofline minimum", piece.excess ? time(piece.excess) : null],
      ]);
      segment.addEventListener("mousemove", (event) => show(content, event.clientX, event.clientY));
      segment.addEventListener("mouseleave", hide);
      return segment;
    }),
  );
}

function accountWords(diagnosis: Diagnosis): string {
  return GROUPS.map((name) => `${name} ${share(diagnosis.account[name].share)}`).join(", ");
}

/** A plain stacked bar of ns by group, on a scale where `full` fills it. */
export function groupsBar(groups: Groups, full: number): HTMLElement {
  const total = GROUPS.reduce((sum, name) => sum + (groups[name] ?? 0), 0);
  return h(
    "div",
    { class: "bar thin", "style.width": `${(100 * total) / full}%` },
    GROUPS.filter((name) => (groups[name] ?? 0) > 0).map((name) =>
      h("div", {
        class: "segment",
        "data-group": name,
        title: `${name} ${time(groups[name])}`,
        "style.width": `${(100 * (groups[name] ?? 0)) / total}%`,
        "style.background": `var(--${name})`,
      }),
    ),
  );
}

/** One row a group: its share, its time, its parts and its time above the roofline minimum. */
export function accountTable(diagnosis: Diagnosis): HTMLElement {
  const wall = diagnosis.step.wall_ns;
  return h(
    "table",
    { class: "account" },
    h("tbody", {}, GROUPS.map((name) => {
      const group = diagnosis.account[name];
      const details = Object.entries(group.parts)
        .filter(([, ns]) => ns >= 0.001 * wall)
        .sort((a, b) => b[1] - a[1])
        .map(([part, ns]) => `${PARTS[part] ?? part} ${time(ns)}`);
      return h(
        "tr",
        { "data-group": name },
        h("th", { scope: "row" }, swatch(name), name),
        h("td", { class: "number" }, share(group.share)),
        h("td", { class: "number" }, time(group.ns)),
        h(
          "td",
          { class: "muted" },
          details.join(", "),
          group.excess_ns && group.ns
            ? h("span", {}, details.length ? "; " : "", h("span", { class: "swatch hatched" }), `${time(group.excess_ns)} above the roofline minimum`)
            : null,
        ),
      );
    })),
  );
}
