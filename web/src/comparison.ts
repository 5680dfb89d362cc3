// Two diagnoses side by side: what got slower, by group, line, call path, module and operator.

import type { Comparison, Difference, Side } from "./content";
import { h, section } from "./dom";
import { counted, lastPart, PARTS, share, shortName, signedTime, time } from "./format";
import { header, warnings } from "./summary";
import { type Column, table } from "./table";
import { swatch } from "./theme";

const TITLES: Record<string, string> = { lines: "line", paths: "caller and line", modules: "module" };

export function comparisonPage(comparison: Comparison): (HTMLElement | null)[] {
  const least = 1e-4 * comparison.before.wall_ns;
  const worth = (rows: Difference[]) => rows.filter((row) => Math.abs(row.delta_ns) >= least);
  return [
    header(`${comparison.before.name} → ${comparison.after.name}`, comparison.after.device, [["groups", "Account"], ["lines", "Lines"], ["modules", "Modules"], ["operators", "Operators"]]),
    h("main", {}, warnings(comparison.warnings), top(comparison), groups(comparison), differences("lines", "Source lines", worth(comparison.lines), comparison), differences("paths", "Call paths", worth(comparison.paths), comparison), differences("modules", "Modules, with all in them", worth(comparison.modules), comparison), differences("operators", "Operators", worth(comparison.ops), comparison)),
  ];
}

function top(comparison: Comparison): HTMLElement {
  const change = comparison.ratio.expected - 1;
  const { low, high } = comparison.ratio;
  const percent = (value: number) => `${value >= 0 ? "+" : "−"}${Math.abs(value * 100).toFixed(1)}%`;
  const doubt =
    comparison.same
      ? "Both are the same diagnosis: no difference."
      : comparison.beyond_noise === null
      ? "There are too few steps to tell it from noise."
      : `That is ${comparison.beyond_noise ? "beyond" : "within"} the noise of these steps: ${percent(low - 1)} to ${percent(high - 1)}.`;
  const colour = comparison.beyond_noise ? (change > 0 ? "overhead-text" : "compute-text") : "ink";
  const words = Math.abs(change) < 0.0005 ? "As fast as before" : `${(Math.abs(change) * 100).toFixed(1)}% ${change > 0 ? "slower" : "faster"}`;
  const profiled = comparison.before.wall_source === "profiled" && comparison.after.wall_source === "profiled";
  const full = Math.max(...[comparison.before, comparison.after].flatMap((side) => [side.wall_ns, ...side.samples_ns]));
  return h(
    "section",
    { id: "top" },
    h("div", { class: "hero" }, h("div", { class: "verdict" }, h("h1", { "style.color": `var(--${colour})` }, `${words}${profiled ? ", as profiled" : ""}`), h("p", {}, doubt))),
    h("div", { class: "sides" }, sideRow("before", comparison.before, full), sideRow("after", comparison.after, full)),
  );
}

/** The step's time as a bar, each sample a tick on it. */
function sideRow(words: string, side: Side, full: number): HTMLElement[] {
  return [
    h("div", {}, h("strong", {}, words), " ", h("span", { title: side.target ?? "" }, lastPart(side.name))),
    h(
      "div",
      { class: "samples" },
      h("div", { class: "length", "style.width": `${(100 * side.wall_ns) / full}%` }),
      side.samples_ns.map((ns) => h("div", { class: "sample", "style.left": `${(100 * ns) / full}%` })),
    ),
    h("div", { class: "number" }, time(side.wall_ns)),
    h("div", { class: "muted" }, `${side.bound_by === "unknown" ? "bound by: unknown" : `${side.bound_by}-bound`}${side.samples_ns.length ? `, ${counted(side.samples_ns.length, `${side.wall_source} step`)}` : ""} on ${side.device}`),
  ];
}

function groups(comparison: Comparison): HTMLElement {
  const full = Math.max(...comparison.groups.map((row) => Math.abs(row.delta_ns)), 1);
  return section(
    "groups",
    "Where the difference is",
    null,
    h(
      "table",
      { class: "plain", id: "group-differences" },
      h("thead", {}, h("tr", {}, ["", "before", "after", "change", ""].map((title, index) => h("th", { scope: "col", class: index && index < 4 ? "number" : undefined }, title)))),
      h("tbody", {}, comparison.groups.map((row) =>
        h(
          "tr",
          { class: row.detail ? "part" : undefined, "data-group": row.name },
          h("th", { scope: "row" }, row.detail ? (PARTS[row.detail] ?? row.detail) : [swatch(row.name), row.name]),
          h("td", { class: "number" }, time(row.before_ns)),
          h("td", { class: "number" }, time(row.after_ns)),
          h("td", { class: "number" }, delta(row)),
          h("td", { class: "wide" }, deltaBar(row.delta_ns, full)),
        ),
      )),
    ),
  );
}

function delta(row: Difference): HTMLElement {
  return h("span", { class: row.delta_ns > 0 ? "slower" : row.delta_ns < 0 ? "faster" : undefined }, signedTime(row.delta_ns));
}

/** Slower to the right, faster to the left. */
function deltaBar(ns: number, full: number): HTMLElement {
  const width = (50 * Math.abs(ns)) / full;
  return h("div", { class: "delta" }, h("div", { "style.left": `${ns >= 0 ? 50 : 50 - width}%`, "style.width": `${width}%`, "style.background": `var(--${ns > 0 ? "overhead" : "compute"})` }));
}

function differences(id: string, title: string, rows: Difference[], comparison: Comparison): HTMLElement | null {
  if (!rows.length) return null;
  const full = Math.max(...rows.map((row) => Math.abs(row.delta_ns)), 1);
  const lines = id === "lines";
  const tree = id === "modules";
  const name = (row: Difference) => (tree ? `${"\u00a0\u00a0".repeat(row.depth)}${row.name}` : lines ? lastPart(row.name) : shortName(row.name));
  const columns: Column<Difference>[] = [
    { title: TITLES[id] ?? "operator", value: (row) => row.name, cell: (row) => h("span", { title: row.name }, name(row)), name: true },
    { title: "before", value: (row) => row.before_ns, cell: (row) => time(row.before_ns), numeric: true },
    { title: "after", value: (row) => row.after_ns, cell: (row) => time(row.after_ns), numeric: true },
    { title: "change", value: (row) => row.delta_ns, cell: delta, numeric: true },
    { title: "of the step before", value: (row) => row.delta_ns / comparison.before.wall_ns, cell: (row) => share(row.delta_ns / comparison.before.wall_ns), numeric: true },
    { title: "", value: () => "", cell: (row) => deltaBar(row.delta_ns, full) },
    { title: lines ? "code" : id === "operators" ? "shapes" : "", value: (row) => row.text ?? row.detail, cell: (row) => (row.text ? [h("code", {}, row.text), row.detail ? h("span", { class: "muted" }, ` ${row.detail}`) : null] : h("span", { class: "muted" }, row.detail)), wide: true },
  ];
  if (id === "operators") columns.splice(4, 0, { title: "calls", value: (row) => row.after_count ?? row.before_count, cell: (row) => (row.before_count === row.after_count ? String(row.after_count ?? "") : `${row.before_count ?? 0} → ${row.after_count ?? 0}`), numeric: true });
  return section(id, title, h("span", { class: "muted" }, tree ? "largest change first, level by level" : "slower first"), table(id, rows, columns).element);
}
