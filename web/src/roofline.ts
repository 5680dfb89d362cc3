// Achieved arithmetic against arithmetic per byte, under the machine's roofs; one dot per operator.

import { axis, chart, type ECharts, FONT } from "./charts";
import type { Diagnosis, Op, Roof } from "./content";
import { h, section } from "./dom";
import { BOUNDS, count, lastPart, rate, share, shortName, size, time } from "./format";
import { onSelect, select, selected } from "./selection";
import { intensity } from "./tables";
import { colour, colourName, swatch } from "./theme";
import { facts, hide, show } from "./tooltip";

const LARGEST_DOT = 52;
const SMALLEST_DOT = 5;
// Where dots that have no intensity stand, one beside the other.
const ASIDE = [0, -0.5, 0.5, -0.25, 0.25, -0.75, 0.75];
const PATTERNS = new Set(["read", "write", "copy", "add"]);

export interface Dot { op: Op; x: number; y: number; size: number; strip: boolean }

/** A dot's area goes with its operator's time. */
function dots(diagnosis: Diagnosis): Dot[] {
  const drawable = diagnosis.ops.filter((op) => op.ns > 0 && (op.bytes || op.flops));
  const longest = Math.max(...drawable.map((op) => op.ns), 1);
  let aside = 0;
  return drawable.flatMap((op): Dot[] => {
    const diameter = Math.max(SMALLEST_DOT, LARGEST_DOT * Math.sqrt(op.ns / longest));
    const at = intensity(op);
    if (at !== null) return [{ op, x: at, y: ((op.flops as number) / op.ns) * 1e9, size: diameter, strip: false }];
    if (op.bytes) return [{ op, x: ASIDE[aside++ % ASIDE.length] as number, y: (op.bytes / op.ns) * 1e9, size: diameter, strip: true }];
    return [];
  });
}

function shown(roof: Roof): boolean {
  const last = roof.name.split(".").pop() as string;
  return last !== "sustained" && !PATTERNS.has(last);
}

interface Extent { x: [number, number]; y: [number, number]; bytes: [number, number] }

function extent(list: Dot[], compute: Roof[], memory: Roof[]): Extent {
  const plane = list.filter((dot) => !dot.strip);
  const strip = list.filter((dot) => dot.strip).map((dot) => dot.y);
  const tops = compute.flatMap((roof) => [roof.value, roof.datasheet ?? roof.value]);
  const ridges = compute.flatMap((roof) => memory.map((level) => roof.value / level.value));
  const xs = [...plane.map((dot) => dot.x), ...ridges];
  const ys = [...plane.map((dot) => dot.y), ...tops];
  const bytes = [...strip, ...memory.flatMap((roof) => [roof.value, roof.datasheet ?? roof.value])];
  return { x: around(xs, [0.01, 1000]), y: around(ys, [1e6, 1e15]), bytes: around(bytes, [1e9, 1e13]) };
}

/** Whole decades around some values. */
function around(values: number[], otherwise: [number, number]): [number, number] {
  const sound = values.filter((value) => value > 0 && Number.isFinite(value));
  if (!sound.length) return otherwise;
  return [10 ** Math.floor(Math.log10(Math.min(...sound))), 10 ** Math.ceil(Math.log10(Math.max(...sound) * 1.02))];
}

export interface RooflineView { element: HTMLElement; dots: Dot[]; chart: () => ECharts | null; start: () => void }

export function roofline(diagnosis: Diagnosis): RooflineView | null {
  const list = dots(diagnosis);
  if (!list.length) return null;
  const roofs = diagnosis.machine.roofs.filter(shown);
  const compute = roofs.filter((roof) => roof.name.startsWith("matmul.") || roof.name.startsWith("vector."));
  const memory = roofs.filter((roof) => roof.name.startsWith("memory."));
  const range = extent(list, compute, memory);
  const visible = new Set(usual(diagnosis, compute).concat(memory).map((roof) => roof.name));
  const canvas = h("div", { class: "plot roofline", role: "img", "aria-label": `roofline of ${list.length} operators; the table of operators has the same figures` });
  let made: ECharts | null = null;

  const option = () => ({
    animation: false,
    textStyle: { fontFamily: FONT },
    grid: [
      { left: 64, width: 120, top: 34, bottom: 44 },
      { left: 256, right: 118, top: 34, bottom: 44 },
    ],
    xAxis: [
      axis({ gridIndex: 0, type: "value", min: -1, max: 1, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false }, name: "no arithmetic", nameLocation: "middle", nameGap: 22 }),
      axis({ gridIndex: 1, type: "log", min: range.x[0], max: range.x[1], name: "FLOP per byte of compulsory traffic", nameLocation: "middle", nameGap: 26, axisLabel: { formatter: (value: number) => plain(value), color: colour("muted"), fontSize: 11 } }),
    ],
    yAxis: [
      axis({ gridIndex: 0, axisLine: { onZero: false, lineStyle: { color: colour("line") } }, type: "log", min: range.bytes[0], max: range.bytes[1], name: "B/s", axisLabel: { formatter: (value: number) => decade(value, "B/s"), color: colour("muted"), fontSize: 11 } }),
      axis({ gridIndex: 1, type: "log", min: range.y[0], max: range.y[1], name: "FLOP/s", axisLabel: { formatter: (value: number) => decade(value, ""), color: colour("muted"), fontSize: 11 } }),
    ],
    dataZoom: [
      { type: "inside", xAxisIndex: 1, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, minSpan: 1 },
      { type: "inside", yAxisIndex: 1, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, minSpan: 1 },
    ],
    series: [...lines(memory, compute, visible, range), ...strips(memory, visible, range), ...scatters(list)],
  });

  const start = () => {
    if (made) return;
    made = chart(canvas, option);
    // The chart copies what it is given: its dots name their operators by number.
    const dotOf = (data: unknown) => list.find((dot) => dot.op.index === (data as { op?: number } | undefined)?.op);
    made.on("mousemove", (event) => {
      const dot = dotOf(event.data);
      const mouse = event.event?.event as unknown as MouseEvent | undefined;
      if (dot && mouse) show(dotFacts(dot), mouse.clientX, mouse.clientY);
    });
    made.on("mouseout", hide);
    made.on("click", (event) => {
      const dot = dotOf(event.data);
      if (dot) select(selected() === dot.op ? null : dot.op);
    });
    made.getZr().on("dblclick", reset);
    onSelect(() => made?.setOption(option(), { replaceMerge: ["series"] }));
  };
  const reset = () => zoom(() => [0, 100]);
  const zoom = (change: (from: number, to: number) => [number, number]) => {
    const now = (made?.getOption().dataZoom ?? []) as { start: number; end: number }[];
    now.forEach((state, index) => {
      const [from, to] = change(state.start, state.end);
      made?.dispatchAction({ type: "dataZoom", dataZoomIndex: index, start: Math.max(0, from), end: Math.min(100, to) });
    });
  };
  const scale = (factor: number) => zoom((from, to) => {
    const middle = (from + to) / 2;
    const half = ((to - from) / 2) * factor;
    return [middle - half, middle + half];
  });

  const chips = [...compute, ...memory].map((roof) => {
    const box = h("input", { type: "checkbox", checked: visible.has(roof.name), "data-roof": roof.name });
    box.addEventListener("change", () => {
      if (box.checked) visible.add(roof.name);
      else visible.delete(roof.name);
      made?.setOption(option(), { replaceMerge: ["series"] });
    });
    return h("label", {}, box, ` ${roofWords(roof)}`);
  });
  const element = section(
    "roofline",
    "Roofline",
    h(
      "span",
      { class: "tools" },
      h("button", { type: "button", class: "small", "aria-label": "zoom in", onclick: () => scale(0.6) }, "+"),
      h("button", { type: "button", class: "small", "aria-label": "zoom out", onclick: () => scale(1 / 0.6) }, "−"),
      h("button", { type: "button", class: "small", onclick: reset }, "all"),
    ),
    h("p", { class: "muted" }, "One dot per operator, line and shapes; area is time. An operator on a roof runs as fast as the device can; one below it is slower. Ctrl and wheel zoom, dragging moves, a click selects an operator."),
    h("div", { class: "legend" }, [...new Set(list.map((dot) => dot.op.bound))].map((bound) => h("span", {}, swatch(bound), BOUNDS[bound] ?? bound))),
    canvas,
    h("div", { class: "legend roofs" }, h("span", {}, "roofs, solid as measured, dashed as on the datasheet:"), chips),
    undrawn(diagnosis, list),
  );
  return { element, dots: list, chart: () => made, start };
}

/** Roofs that some operator could hit: those of the dtypes at hand, and the vector units. */
function usual(diagnosis: Diagnosis, compute: Roof[]): Roof[] {
  const dtypes = new Set(diagnosis.ops.map((op) => op.dtype));
  const wanted = compute.filter((roof) => {
    const dtype = roof.name.split(".")[1] as string;
    return dtypes.has(dtype) || (dtype === "tf32" && dtypes.has("float32"));
  });
  return wanted.length ? wanted : compute;
}

function undrawn(diagnosis: Diagnosis, list: Dot[]): HTMLElement | null {
  const drawn = new Set(list.map((dot) => dot.op));
  const left = diagnosis.ops.filter((op) => !drawn.has(op) && op.ns > 0);
  if (!left.length) return null;
  const ns = left.reduce((sum, op) => sum + op.ns, 0);
  return h("p", { class: "muted" }, `Not drawn: ${left.length} operators (${time(ns)}) without a cost formula.`);
}

function roofWords(roof: Roof): string {
  const [kind, ...rest] = roof.name.split(".");
  const name = rest.join(" ");
  return kind === "memory" ? (name === "dram" ? "device memory" : name) : `${name} ${kind === "matmul" ? "matrix" : "vector"}`;
}

/** A power of ten without digits it does not have. */
function decade(value: number, unit: string): string {
  return rate(value, unit).replace(/\.0+ /, " ").trim();
}

function plain(value: number): string {
  return value >= 1 ? value.toLocaleString("en-US") : String(Number(value.toPrecision(1)));
}

const END_LABEL = { show: true, position: "right", fontSize: 11, lineHeight: 13, fontFamily: FONT };
const START_LABEL = { show: true, position: [10, 8], fontSize: 11, lineHeight: 13, fontFamily: FONT };

/** Slanted lines for memory, flat ones for arithmetic: measured solid, datasheet dashed. */
function lines(memory: Roof[], compute: Roof[], visible: Set<string>, range: Extent): object[] {
  const shownCompute = compute.filter((roof) => visible.has(roof.name));
  const shownMemory = memory.filter((roof) => visible.has(roof.name));
  const top = Math.max(...shownCompute.map((roof) => roof.value), 0) || range.y[1];
  const fastest = Math.max(...shownMemory.map((roof) => roof.value), 0);
  const words = new Map([...together(shownCompute, roofWords), ...together(shownMemory, (roof) => `${roofWords(roof)} ${rate(roof.value, roof.unit)}`)]);
  const series: object[] = [];
  for (const roof of shownMemory) {
    values(roof).forEach(([value, dashed], index) => {
      const from = Math.max(range.x[0], range.y[0] / value);
      const to = Math.min(range.x[1], top / value);
      series.push(line([[from, value * from], [to, value * to]], "bandwidth", dashed, index ? "" : (words.get(roof.name) ?? ""), 0));
    });
  }
  for (const roof of shownCompute) {
    values(roof).forEach(([value, dashed], index) => {
      const from = fastest ? Math.max(range.x[0], value / fastest) : range.x[0];
      series.push(line([[from, value], [range.x[1], value]], "compute", dashed, index ? "" : (words.get(roof.name) ?? ""), 1));
    });
  }
  return series;
}

/** Roofs too close to be told apart are labelled once, with all their names. */
function together(roofs: Roof[], name: (roof: Roof) => string): Map<string, string> {
  const words = new Map<string, string>();
  let last: Roof | null = null;
  for (const roof of [...roofs].sort((a, b) => b.value - a.value)) {
    if (last && last.value / roof.value < 1.9) words.set(last.name, `${words.get(last.name)}\n${name(roof)}`);
    else words.set((last = roof).name, name(roof));
  }
  return words;
}

function values(roof: Roof): [number, boolean][] {
  if (roof.source === "datasheet") return [[roof.value, true]];
  return roof.datasheet ? [[roof.value, false], [roof.datasheet, true]] : [[roof.value, false]];
}

/** A roof; its words stand at its start (0) or its end (1). */
function line(data: number[][], kind: string, dashed: boolean, words: string, at: 0 | 1): object {
  const shown = { ...(at ? END_LABEL : START_LABEL), formatter: words, color: colour(`${kind}-text`) };
  return {
    type: "line",
    xAxisIndex: 1,
    yAxisIndex: 1,
    data: data.map((point, index) => ({ value: point, label: words && index === at ? shown : { show: false } })),
    symbol: words ? "circle" : "none",
    symbolSize: 0.01,
    showSymbol: true,
    silent: true,
    clip: false,
    z: 1,
    lineStyle: { color: colour(`${kind}-text`), width: dashed ? 1 : 1.6, type: dashed ? "dashed" : "solid", opacity: dashed ? 0.6 : 0.9 },
  };
}

/** The same memory roofs beside the operators that only move bytes. */
function strips(memory: Roof[], visible: Set<string>, range: Extent): object[] {
  return memory
    .filter((roof) => visible.has(roof.name) && roof.value <= range.bytes[1])
    .flatMap((roof) =>
      values(roof).map(([value, dashed]) => ({
        type: "line",
        xAxisIndex: 0,
        yAxisIndex: 0,
        data: [[-1, value], [1, value]],
        symbol: "none",
        silent: true,
        z: 1,
        lineStyle: { color: colour("bandwidth-text"), width: dashed ? 1 : 1.6, type: dashed ? "dashed" : "solid", opacity: dashed ? 0.6 : 0.9 },
      })),
    );
}

function scatters(list: Dot[]): object[] {
  const chosen = selected();
  return [true, false].map((strip) => ({
    type: "scatter",
    xAxisIndex: strip ? 0 : 1,
    yAxisIndex: strip ? 0 : 1,
    z: 3,
    clip: true,
    data: list
      .filter((dot) => dot.strip === strip)
      .sort((a, b) => b.size - a.size)
      .map((dot) => ({
        value: [dot.x, dot.y],
        op: dot.op.index,
        strip: dot.strip,
        symbolSize: dot.size,
        itemStyle: {
          color: colour(colourName(dot.op.bound)),
          opacity: chosen && chosen !== dot.op ? 0.12 : 0.62,
          borderColor: chosen === dot.op ? colour("ink") : colour("paper"),
          borderWidth: chosen === dot.op ? 2 : 0.8,
        },
      })),
    emphasis: { scale: 1.15, itemStyle: { opacity: 0.95 } },
  }));
}

function dotFacts({ op, x, y, strip }: Dot): HTMLElement {
  return facts(shortName(op.name), [
    ["line", lastPart(op.inside ?? op.where)],
    ["shapes", op.shapes],
    ["dtype", op.dtype],
    ["time", `${time(op.ns)}, ${op.count} calls`],
    ["bound by", BOUNDS[op.bound] ?? op.bound],
    ["intensity", strip ? null : `${count(Number(x.toPrecision(3)))} FLOP/byte`],
    ["achieved", strip ? rate(y, "B/s") : rate(y, "FLOP/s")],
    ["moved", size(op.bytes)],
    ["of its roof", op.roof_fraction === null ? null : `${op.upper_bound ? "under " : ""}${share(op.roof_fraction)}${op.roof_suspect ? " (above its roof)" : ""}`],
    ["roofline minimum", op.floor_ns === null ? null : time(op.floor_ns)],
    ["above the minimum", op.excess_ns === null ? null : time(op.excess_ns)],
  ]);
}
