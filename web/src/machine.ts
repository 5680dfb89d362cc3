// What the machine can do, as measured and as its datasheet says; and the ranks of a job.

import { axis, chart, FONT } from "./charts";
import type { Diagnosis, Machine, Overheads, Rank } from "./content";
import { groupsBar } from "./account";
import { h, section } from "./dom";
import { age, rate, share, size, time } from "./format";
import { colour } from "./theme";
import { warnings } from "./summary";

const OVERHEADS: Partial<Record<keyof Overheads, string>> = {
  eager_op_ns: "host: eager operator",
  trained_op_ns: "host: eager operator with its backward",
  launch_ns: "host: kernel launch",
  compiled_call_ns: "host: call of compiled code",
  compiled_kernel_ns: "host: kernel launched by compiled code",
  trained_kernel_ns: "host: the same, in training",
  sync_ns: "sync round trip (.item())",
  graph_kernel_ns: "kernel in a CUDA graph replay",
  graph_gap_ns: "gap between kernels in a graph replay",
  long_graph_gap_ns: "gap in a graph replay after a long kernel",
  shortest_kernel_ns: "shortest kernel",
  kernel_gap_ns: "gap between queued kernels",
  long_kernel_gap_ns: "gap between queued kernels after a long one",
  memory_t0_ns: "fixed cost of a pass over memory",
  python_add_ns: "addition in Python",
};
const PATTERNS = new Set(["read", "write", "copy", "add"]);
const CURVE_COLOURS = ["bandwidth", "compute", "launch", "network", "host_link", "overhead", "unknown"];

export interface Startable { element: HTMLElement; start: () => void }

export function machine(diagnosis: Diagnosis): Startable {
  const one = diagnosis.machine;
  const plots = curvePlots(one);
  const element = section(
    "machine",
    "Machine",
    h("span", { class: "muted" }, provenance(one)),
    h("p", {}, h("strong", {}, one.device), one.chip && one.chip !== one.device ? ` · datasheet: ${one.chip}` : "", one.threads && one.kind === "cpu" ? ` · ${one.threads} threads` : "", one.memory_bytes ? ` · ${size(one.memory_bytes)} of memory` : "", one.driver ? ` · driver ${one.driver}` : "", one.torch ? ` · torch ${one.torch}` : ""),
    warnings(one.warnings),
    h("div", { class: "columns" }, roofsTable(one), overheadsTable(one)),
    plots.element,
  );
  return { element, start: plots.start };
}

function provenance(one: Machine): string {
  if (!one.measured_at) return "not measured: datasheet figures";
  const date = new Date(one.measured_at);
  return `measured ${age(one.measured_at)} (${date.toISOString().slice(0, 16).replace("T", " ")} UTC)${one.quick ? ", a quick look with a wider error" : ""}`;
}

function roofsTable(one: Machine): HTMLElement {
  const shown = one.roofs.filter((roof) => !roof.name.endsWith(".sustained") && !PATTERNS.has(roof.name.split(".").pop() as string));
  const sustained = (name: string) => one.roofs.find((roof) => roof.name === `${name}.sustained`)?.value ?? null;
  const measured = shown.some((roof) => roof.source === "measured");
  const titles = measured ? ["roof", "measured", "sustained", "datasheet", "of it", "± spread"] : ["roof", "datasheet"];
  return h(
    "table",
    { class: "plain", id: "roofs" },
    h("thead", {}, h("tr", {}, titles.map((title, index) => h("th", { scope: "col", class: index ? "number" : undefined }, title)))),
    h("tbody", {}, shown.map((roof) =>
      h(
        "tr",
        { title: roof.note ? `best at ${roof.note}` : undefined },
        h("th", { scope: "row" }, roof.name),
        measured
          ? [
              roof.source === "measured" ? rate(roof.value, roof.unit) : "-",
              rate(sustained(roof.name), roof.unit),
              rate(roof.datasheet, roof.unit),
              share(roof.datasheet && roof.source === "measured" ? roof.value / roof.datasheet : null),
              share(roof.spread),
            ].map((text) => h("td", { class: "number" }, text))
          : h("td", { class: "number" }, rate(roof.value, roof.unit)),
      ),
    )),
  );
}

function overheadsTable(one: Machine): HTMLElement | null {
  const known = (Object.entries(OVERHEADS) as [keyof Overheads, string][]).filter(([field]) => one.overheads[field] !== null);
  if (!known.length) return null;
  return h(
    "table",
    { class: "plain" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "overhead"), h("th", { scope: "col", class: "number" }, "each"))),
    h("tbody", {}, known.map(([field, words]) => h("tr", {}, h("th", { scope: "row" }, words), h("td", { class: "number" }, time(one.overheads[field]))))),
  );
}

/** Rate over size, one plot for each kind of probe. */
function curvePlots(one: Machine): Startable {
  const kinds = new Map<string, string[]>();
  for (const name of Object.keys(one.curves)) {
    if ((one.curves[name]?.length ?? 0) < 2) continue;
    const kind = name.split(".")[0] as string;
    kinds.set(kind, [...(kinds.get(kind) ?? []), name]);
  }
  const plots = [...kinds].map(([kind, names]) => ({ kind, names, element: h("div", { class: "plot curve", role: "img", "aria-label": `measured curves of ${kind}` }) }));
  const element = h("div", { class: "curves" }, plots.map(({ kind, names, element: plot }) =>
    h("figure", {}, h("figcaption", {}, kind, " ", names.map((name, index) => h("span", { class: "key" }, h("span", { class: "swatch", "style.background": `var(--${CURVE_COLOURS[index % CURVE_COLOURS.length]})` }), name.split(".").slice(1).join(" ") || name))), plot),
  ));
  const start = () => {
    for (const { kind, names, element: plot } of plots) {
      const unit = one.roofs.find((roof) => roof.name.startsWith(`${kind}.`))?.unit ?? "";
      chart(plot, () => ({
        animation: false,
        textStyle: { fontFamily: FONT },
        grid: { left: 62, right: 14, top: 12, bottom: 40 },
        xAxis: axis({ type: "log", name: unit.startsWith("FLOP") ? "FLOPs of the product" : "bytes moved", nameLocation: "middle", nameGap: 24, axisLabel: { color: colour("muted"), fontSize: 10, formatter: (value: number) => rate(value, "").replace(".00", "").trim() } }),
        yAxis: axis({ type: "log", axisLabel: { color: colour("muted"), fontSize: 10, formatter: (value: number) => rate(value, unit).replace(".00", "") } }),
        series: names.map((name, index) => ({
          // Products of one size come in several shapes: they make no line.
          type: unit.startsWith("FLOP") ? "scatter" : "line",
          data: [...(one.curves[name] ?? [])].sort((a, b) => a.size - b.size).map((point) => [point.size, point.value]),
          symbolSize: 5,
          itemStyle: { color: colour(CURVE_COLOURS[index % CURVE_COLOURS.length] as string) },
          lineStyle: { width: 1.5 },
          silent: true,
        })),
      }));
    }
  };
  return { element, start };
}

/** One row each; the rank that the others wait for is marked. */
export function ranks(diagnosis: Diagnosis): HTMLElement | null {
  if (!diagnosis.ranks.length) return null;
  const rows = [...diagnosis.ranks].sort((a, b) => a.rank - b.rank);
  const sound = rows.filter((row) => !row.problem);
  const longest = Math.max(...sound.map((row) => row.wall_ns), 1);
  const late = straggler(sound);
  return section(
    "ranks",
    "Ranks",
    h("span", { class: "muted" }, late ? `the others wait for rank ${late.rank}` : ""),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "ranks" },
        h("thead", {}, h("tr", {}, ["rank", "step", "", "busy", "communication", "not hidden", "waits for others", "file"].map((title, index) => h("th", { scope: "col", class: index && index !== 2 && index < 7 ? "number" : undefined }, title)))),
        h("tbody", {}, rows.map((row) => rankRow(row, longest, row === late))),
      ),
    ),
  );
}

function straggler(rows: Rank[]): Rank | null {
  const known = rows.filter((row) => row.waiting_ns !== null);
  if (known.length < 2) return null;
  const least = known.reduce((a, b) => ((a.waiting_ns as number) <= (b.waiting_ns as number) ? a : b));
  const most = Math.max(...known.map((row) => row.waiting_ns as number));
  return most > 0.01 * least.wall_ns ? least : null;
}

function rankRow(row: Rank, longest: number, late: boolean): HTMLElement {
  if (row.problem) return h("tr", {}, h("th", { scope: "row" }, String(row.rank)), h("td", { colspan: 6, class: "muted" }, row.problem), h("td", {}, row.name));
  const groups = Object.fromEntries(Object.entries(row.groups).map(([name, part]) => [name, part * row.wall_ns]));
  return h(
    "tr",
    { class: late ? "late" : undefined },
    h("th", { scope: "row" }, String(row.rank), late ? h("span", { class: "badge" }, "late") : null),
    h("td", { class: "number" }, time(row.wall_ns)),
    h("td", { class: "wide" }, groupsBar(groups, longest)),
    h("td", { class: "number" }, time(row.device_busy_ns)),
    h("td", { class: "number" }, time(row.communication_ns)),
    h("td", { class: "number" }, time(row.exposed_ns)),
    h("td", { class: "number" }, time(row.waiting_ns)),
    h("td", { class: "muted" }, row.name),
  );
}
