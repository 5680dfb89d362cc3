// The top of the page: the verdict, the step's time, and the three answers one comes for.

import { accountBar, accountTable } from "./account";
import type { Diagnosis, Line, RunPart } from "./content";
import { whole } from "./findings";
import { copyButton, h } from "./dom";
import { age, counted, lastPart, share, time, times } from "./format";
import { overheadWords } from "./tables";
import { schemeButton, swatch } from "./theme";

const FREE = ["compute", "bandwidth", "overhead"];
const ZERO: Record<string, string> = { compute: "zero compute", bandwidth: "zero memory time", overhead: "zero overhead" };
const MOST_INSIDE = 3;

export function header(target: string | null, about: string, links: [string, string][]): HTMLElement {
  return h(
    "header",
    {},
    h("a", { class: "brand", href: "#top" }, "boundby"),
    h("span", { class: "target", title: target ?? "" }, lastPart(target)),
    h("span", { class: "muted about" }, about),
    h("nav", { "aria-label": "sections" }, links.map(([id, words]) => h("a", { href: `#${id}` }, words))),
    schemeButton(),
  );
}

export function warnings(lines: string[]): HTMLElement | null {
  if (!lines.length) return null;
  return h(
    "aside",
    { class: "warnings", "aria-label": "warnings" },
    h("ul", {}, lines.map((line) => h("li", {}, line))),
  );
}

export function roofsWords(diagnosis: Diagnosis): string {
  const machine = diagnosis.machine;
  if (machine.measured_at) {
    return `roofs measured ${age(machine.measured_at)}${machine.quick ? ", quick look" : ""}`;
  }
  return machine.chip ? `roofs from the datasheet of ${machine.chip}` : "no roofs known";
}

export function summary(diagnosis: Diagnosis): HTMLElement {
  return h(
    "section",
    { id: "top", "aria-label": "verdict" },
    h("div", { class: "hero" }, verdict(diagnosis), stepTime(diagnosis)),
    runLine(diagnosis),
    accountBar(diagnosis),
    h("div", { class: "columns" }, accountTable(diagnosis), ifFree(diagnosis)),
    h("div", { class: "answers" }, doFirst(diagnosis), costliest(diagnosis)),
  );
}

function verdict(diagnosis: Diagnosis): HTMLElement {
  const { bound_by, or_bound_by, uncertain, why } = diagnosis.verdict;
  const bounds = or_bound_by ? `${capital(bound_by)}- or ${or_bound_by}-bound` : `${capital(bound_by)}-bound`;
  const words = bound_by === "unknown" ? "Bound by something unknown" : bounds;
  return h(
    "div",
    { class: "verdict" },
    h(
      "h1",
      { "style.color": `var(--${bound_by}-text)` },
      words,
      uncertain && h("span", { class: "badge" }, "uncertain"),
    ),
    h("p", {}, sentence(why)),
  );
}

function stepTime(diagnosis: Diagnosis): HTMLElement {
  const { step } = diagnosis;
  const [low, high] = step.wall_interval_ns;
  const used = diagnosis.utilisation;
  const shares: [string, unknown][] = [
    [used.at_least ? "MFU at least" : "MFU", used.mfu],
    ["memory bandwidth", used.bandwidth],
    ["device busy", used.device],
  ];
  const kernels = step.kernels ? counted(step.kernels, "kernel") : "";
  return h(
    "div",
    { class: "step-time" },
    h("div", { class: "figure" }, time(step.wall_ns)),
    h("div", { class: "muted" }, `a ${step.kind.startsWith("ProfilerStep") || step.kind === "step" ? "" : `${step.kind} `}step${low < high ? `, ${time(low)} to ${time(high)}` : ""}`),
    h("div", { class: "muted" }, [measured(diagnosis), kernels].filter(Boolean).join(", ")),
    h("div", { class: "muted" }, shares.flatMap(([name, value]) => (typeof value === "number" ? [`${name} ${share(value)}`] : [])).join(" · ")),
  );
}

/** Where the step's time is from: an estimate says so, and what the profiler made of it. */
function measured({ step }: Diagnosis): string {
  if (step.profiled_ns) return `estimated without the profiler, ${time(step.profiled_ns)} with it`;
  return step.samples_ns.length ? counted(step.samples_ns.length, `${step.wall_source} step`) : "as given";
}

const PARTS: Record<string, string> = { import: "imports", compile: "compilation", setup: "set-up", train: "training", eval: "evaluation", rollout: "rollouts", checkpoint: "checkpoints", data_start: "starting data workers" };

/** The script's whole life in one line. */
function runLine(diagnosis: Diagnosis): HTMLElement | null {
  const run = diagnosis.run;
  if (!run) return null;
  const trains = run.parts.some((part) => part.name === "train");
  const name = (part: RunPart) => (part.name === "eval" && !trains ? "inference" : PARTS[part.name] ?? part.name);
  const parts = run.parts.filter((part) => part.share >= 0.005).map((part) => `${name(part)} ${share(part.share)}${part.extrapolated ? " (extrapolated)" : ""}`);
  const covered = run.step_share ? `; this kind of step is ${share(run.step_share)} of it` : "";
  return h("p", { class: "muted", id: "run" }, `Run of ${time(run.wall_ns)}: ${parts.join(", ")}${covered} (${run.scope})`);
}

function ifFree(diagnosis: Diagnosis): HTMLElement | null {
  const free = FREE.filter((name) => diagnosis.verdict.if_free[name] !== undefined);
  if (!free.length) return null;
  const gain = (name: string) => diagnosis.verdict.if_free[name] ?? 1;
  const most = Math.max(...free.map(gain), 1.001);
  return h(
    "div",
    { class: "if-free" },
    h("h3", {}, "If this took no time, the step would be"),
    free
      .sort((a, b) => gain(b) - gain(a))
      .map((name) =>
        h(
          "div",
          { class: "gain", "data-free": name },
          h("span", {}, swatch(name), ZERO[name] ?? name),
          h("div", { class: "track" }, h("div", {
            "style.width": `${(100 * (gain(name) - 1)) / (most - 1)}%`,
            "style.background": `var(--${name})`,
          })),
          h("span", { class: "number" }, `${times(gain(name))} faster`),
        ),
      ),
  );
}

function doFirst(diagnosis: Diagnosis): HTMLElement {
  const first = diagnosis.findings[0];
  if (!first) {
    return h(
      "div",
      { class: "card answer" },
      h("h3", {}, "Do first"),
      h("p", {}, "No fault that boundby looks for would save 1% of this step or more."),
    );
  }
  return h(
    "div",
    { class: "card answer", "style.border-left-color": `var(--${first.group})` },
    h("h3", {}, "Do first"),
    h(
      "p",
      { class: "large" },
      h("a", { href: `#finding-${first.fault}` }, first.title || first.fault),
      ": saves ",
      h("strong", {}, time(first.saving_ns.expected)),
      `, ${share(first.saving_ns.expected / whole(diagnosis, first))} of ${first.out_of ?? "the step"}`,
    ),
    h("div", { class: "code" }, h("code", {}, first.change), copyButton("the change", () => first.change)),
    h("p", { class: "muted" }, first.where.length ? `at ${first.where.slice(0, 3).map(lastPart).join(", ")}; ` : "", `assumes that ${first.assumes}`),
  );
}

function costliest(diagnosis: Diagnosis): HTMLElement | null {
  const line = diagnosis.lines.find((row) => row.where !== "unknown");
  if (!line) return null;
  return h(
    "div",
    { class: "card answer" },
    h("h3", {}, "Costliest line"),
    h("p", { class: "large" }, h("a", { href: "#tables" }, lastPart(line.where)), ": ", h("strong", {}, time(line.ns)), `, ${share(line.share)} of the step`),
    line.text && h("div", { class: "code" }, h("code", {}, line.text)),
    h("p", { class: "muted" }, lineWords(line)),
    line.advice && h("p", {}, line.advice),
    line.callers && line.callers.length > 1 && h("p", {}, h("span", { class: "muted" }, "called from "), line.callers.map((one) => `${lastPart(one.where)} (${time(one.ns)})`).join(", ")),
    line.inside?.length ? h("p", {}, h("span", { class: "muted" }, "most of it in "), ...mostInside(line.inside)) : null,
  );
}

/** The lines of libraries in which most of a line's time goes. */
function mostInside(rows: Line[]): (HTMLElement | string)[] {
  return rows.slice(0, MOST_INSIDE).flatMap((row, at) => [
    at ? ", " : "",
    h("span", { title: [row.where, row.text].filter(Boolean).join(": ") }, `${lastPart(row.where)} (${time(row.ns)})`),
  ]);
}

function lineWords(line: Line): string {
  const total = Object.values(line.groups).reduce((sum, ns) => sum + ns, 0) || 1;
  const parts = Object.entries(line.groups)
    .sort((a, b) => b[1] - a[1])
    .map(([group, ns]) => `${group} ${share(ns / total)}`);
  const overhead = overheadWords(line);
  return `of that: ${parts.join(", ")}${overhead ? ` (${overhead})` : ""}`;
}

function sentence(words: string): string {
  return words && !/[.!?]$/.test(words) ? `${capital(words)}.` : capital(words);
}

export function capital(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
