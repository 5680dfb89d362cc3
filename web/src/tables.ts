// The evidence by source line, module, operator, class and collective.

import { groupsBar } from "./account";
import type { ClassRow, Collective, CriticalPathRow, Diagnosis, KernelClass, Line, Op } from "./content";
import { add, clear, h, section } from "./dom";
import { count, lastPart, PARTS, rate, share, shortName, size, time } from "./format";
import { moduleTree } from "./modules";
import { onSelect, select, selected } from "./selection";
import { type Column, table, tabs } from "./table";
import { swatch } from "./theme";

const lineColumns = (wall: number): Column<Line>[] => [
  { title: "line", value: (row) => row.where, cell: (row) => h("span", { title: row.where }, row.where === "unknown" ? "no line of the script" : lastPart(row.where)), name: true },
  { title: "code", value: (row) => row.text ?? "", cell: (row) => h("code", {}, row.text ?? ""), wide: true },
  { title: "time", value: (row) => row.ns, cell: (row) => time(row.ns), numeric: true },
  { title: "of the step", value: (row) => row.share, cell: (row) => share(row.share), numeric: true },
  {
    title: "of roof",
    value: (row) => ofRoof(row),
    cell: (row) => share(ofRoof(row)),
    numeric: true,
  },
  { title: "group", value: (row) => mainGroup(row), cell: (row) => groupsBar(row.groups, Math.max(row.ns, wall / 4)) },
  { title: "overhead", value: (row) => row.groups.overhead ?? 0, cell: (row) => h("span", { class: "muted" }, overheadWords(row)), wide: true },
];

/** The roofline minimum of its operators over their time: no roof applies to host time. */
function ofRoof(row: Line): number | null {
  const work = row.ns - CAUSES.reduce((sum, cause) => sum + (row.parts?.[cause] ?? 0), 0);
  return row.floor_ns && work > 0 ? row.floor_ns / work : null;
}

const CAUSES = ["python", "launch", "sync", "data", "unseen", "core"];

/** What a line's overhead is, the most first. */
export function overheadWords(row: Line): string {
  return [...CAUSES, "small_kernels"]
    .map((part): [string, number] => [part, row.parts?.[part] ?? 0])
    .filter(([, ns]) => ns >= 0.01 * row.ns && ns > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([part, ns]) => `${PARTS[part] ?? part} ${time(ns)}`)
    .join(", ");
}

function mainGroup(row: Line): string {
  return Object.entries(row.groups).sort((a, b) => b[1] - a[1])[0]?.[0] ?? "unknown";
}

const OPS: Column<Op>[] = [
  { title: "bound", value: (row) => row.bound, cell: (row) => [swatch(row.bound), row.bound, row.roof_suspect ? " ?" : ""] },
  { title: "operator", value: (row) => row.name, cell: (row) => h("span", { title: row.name }, shortName(row.name)), name: true },
  { title: "time", value: (row) => row.ns, cell: (row) => time(row.ns), numeric: true },
  { title: "calls", value: (row) => row.count, numeric: true },
  {
    title: "of roof",
    value: (row) => row.roof_fraction,
    cell: (row) => (row.upper_bound && row.roof_fraction ? `under ${share(row.roof_fraction)}` : share(row.roof_fraction)),
    numeric: true,
  },
  { title: "above minimum", value: (row) => row.excess_ns, cell: (row) => time(row.excess_ns), numeric: true },
  { title: "FLOP/byte", value: (row) => intensity(row), cell: (row) => count(round(intensity(row))), numeric: true },
  {
    title: "line",
    value: (row) => row.inside ?? row.where ?? "",
    cell: (row) => h("span", { title: [row.where, row.inside].filter(Boolean).join(", in ") }, lastPart(row.inside ?? row.where)),
    name: true,
  },
  { title: "dtype", value: (row) => row.dtype ?? "" },
  { title: "phase", value: (row) => row.phase ?? "" },
  { title: "shapes", value: (row) => row.shapes, cell: (row) => h("span", { class: "muted" }, row.shapes), wide: true },
];

export function intensity(op: Op): number | null {
  return op.flops && op.bytes ? op.flops / op.bytes : null;
}

function round(value: number | null): number | null {
  return value === null ? null : Number(value.toPrecision(3));
}

const CLASSES: Column<ClassRow>[] = [
  { title: "class", value: (row) => row.class },
  { title: "share of FLOPs", value: (row) => row.flops_share, cell: (row) => share(row.flops_share, 2), numeric: true },
  { title: "share of time", value: (row) => row.time_share, cell: (row) => share(row.time_share, 1), numeric: true },
  { title: "time", value: (row) => row.ns, cell: (row) => time(row.ns), numeric: true },
  { title: "FLOP/s", value: (row) => row.flops_per_s, cell: (row) => rate(row.flops_per_s, "FLOP/s"), numeric: true },
  {
    title: "slower per FLOP than contractions",
    value: (row) => row.slower_than_contractions,
    cell: (row) => (row.slower_than_contractions ? `${count(Math.round(row.slower_than_contractions))}x` : "-"),
    numeric: true,
  },
];

const KERNELS: Column<KernelClass>[] = [
  { title: "class", value: (row) => row.class },
  { title: "device time", value: (row) => row.ns, cell: (row) => time(row.ns), numeric: true },
  { title: "share", value: (row) => row.share, cell: (row) => share(row.share), numeric: true },
  { title: "kernels", value: (row) => row.kernels, numeric: true },
  { title: "of known cost", value: (row) => costed(row), cell: (row) => share(costed(row)), numeric: true },
  { title: "dtypes by name", value: (row) => dtypes(row), wide: true },
];

function costed(row: KernelClass): number | null {
  return row.ns ? row.costed_ns / row.ns : null;
}

function dtypes(row: KernelClass): string {
  return Object.entries(row.dtypes).sort((a, b) => b[1] - a[1]).map(([name, ns]) => `${name} ${time(ns)}`).join(", ");
}

const COLLECTIVES: Column<Collective>[] = [
  { title: "collective", value: (row) => row.name, cell: (row) => h("span", { title: row.name }, shortName(row.name)), name: true },
  { title: "time", value: (row) => row.ns, cell: (row) => time(row.ns), numeric: true },
  { title: "not hidden", value: (row) => row.exposed_ns, cell: (row) => time(row.exposed_ns), numeric: true },
  { title: "calls", value: (row) => row.count, numeric: true },
  { title: "message", value: (row) => row.bytes, cell: (row) => size(row.bytes), numeric: true },
  { title: "bandwidth", value: (row) => row.bytes_per_s, cell: (row) => rate(row.bytes_per_s, "B/s"), numeric: true },
];

const PATH: Column<CriticalPathRow>[] = [
  { title: "on the path", value: (row) => row.what, cell: (row) => h("span", { title: row.what }, shortName(row.what)), name: true },
  { title: "line", value: (row) => row.where, cell: (row) => h("span", { title: row.where ?? "" }, lastPart(row.where)), name: true },
  { title: "time", value: (row) => row.ns, cell: (row) => time(row.ns), numeric: true },
  { title: "share", value: (row) => row.share, cell: (row) => share(row.share), numeric: true },
  { title: "segments", value: (row) => row.count, numeric: true },
];

export function tables(diagnosis: Diagnosis): HTMLElement | null {
  const parts: [string, () => HTMLElement][] = [];
  const follow = <Row>(made: { element: HTMLElement; restrict: (keep: ((row: Row) => boolean) | null) => void }, keep: (row: Row, op: Op) => boolean) => {
    const restrict = (op: Op | null) => made.restrict(op ? (row) => keep(row, op) : null);
    onSelect(restrict);
    if (selected()) restrict(selected());
    return made.element;
  };
  if (diagnosis.lines.length) {
    const columns = lineColumns(diagnosis.step.wall_ns).filter((column) => (column.title !== "code" || diagnosis.lines.some((row) => row.text)) && (column.title !== "overhead" || diagnosis.lines.some(overheadWords)));
    parts.push(["Source lines", () => follow<Line>(table("lines", diagnosis.lines, columns), (row, op) => row.where === (op.where ?? "unknown"))]);
    const inside = diagnosis.lines.flatMap((row) => row.inside ?? []).sort((a, b) => b.ns - a.ns);
    if (inside.length) {
      parts.push(["Lines of libraries", () => follow<Line>(table("inside", inside, columns), (row, op) => row.where === op.inside)]);
    }
  }
  if (diagnosis.modules.length) parts.push(["Modules", () => moduleTree(diagnosis)]);
  if (diagnosis.ops.length) {
    parts.push(["Operators", () => follow<Op>(table("operators", diagnosis.ops, OPS, (row) => select(row)), (row, op) => row === op)]);
  }
  if (diagnosis.classes.length) {
    parts.push(["Classes", () => follow<ClassRow>(table("classes", diagnosis.classes, CLASSES), (row, op) => row.class === op.class)]);
  }
  const kernels = diagnosis.kernel_classes ?? [];
  if (kernels.length) parts.push(["Kernels", () => table("kernels", kernels, KERNELS).element]);
  if (diagnosis.collectives.length) parts.push(["Collectives", () => table("collectives", diagnosis.collectives, COLLECTIVES).element]);
  const path = diagnosis.critical_path ?? [];
  if (path.length) parts.push(["Critical path", () => table("critical-path", path, PATH).element]);
  if (!parts.length) return null;
  return section("tables", "Evidence", filterChip(), tabs("evidence", parts));
}

/** Says which operator everything is restricted to, wherever one looks, and lets go of it. */
function filterChip(): HTMLElement {
  const chip = h("span", { class: "chip", id: "filter", role: "status" });
  const draw = (op: Op | null) => {
    clear(chip);
    chip.hidden = op === null;
    if (op) {
      add(
        chip,
        `only ${shortName(op.name)}${op.where ? ` at ${lastPart(op.inside ?? op.where)}` : ""}${op.shapes ? `, ${op.shapes}` : ""} `,
        h("button", { type: "button", class: "small", "aria-label": "show everything again", onclick: () => select(null) }, "×"),
      );
    }
  };
  onSelect(draw);
  draw(selected());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && selected()) select(null);
  });
  return chip;
}
