// What would help: one card a finding, with its proof where there is one; and several together.

import { groupsBar, GROUPS } from "./account";
import type { Diagnosis, Finding, Proof, Range, WhatIf } from "./content";
import { clear, copyButton, add, h, section } from "./dom";
import { lastPart, share, size, time, times } from "./format";
import { swatch } from "./theme";

const MOST_LINES = 8;

export function findings(diagnosis: Diagnosis): HTMLElement | null {
  if (!diagnosis.findings.length && !diagnosis.proofs.length) {
    // Batch predictions exist only where all faults were checked.
    return diagnosis.batches.length ? section("findings", "What would help", h("p", {}, "No known fault was found.")) : null;
  }
  const known = new Set(diagnosis.findings.map((finding) => finding.fault));
  // What has no card of its own: several fixes together, and fixes of faults that were not found.
  const others = diagnosis.proofs.filter((proof) => combines(proof) || !proof.faults.some((fault) => known.has(fault)));
  return section(
    "findings",
    "What would help",
    h("span", { class: "muted" }, diagnosis.proofs.length ? "predicted, and measured where proven" : "predicted; boundby prove measures it"),
    h("div", { class: "cards" }, diagnosis.findings.map((finding, index) => card(diagnosis, finding, index))),
    others.length > 0 && h("div", { class: "cards" }, others.map((proof) => otherCard(proof))),
  );
}

function card(diagnosis: Diagnosis, finding: Finding, index: number): HTMLElement {
  const wall = whole(diagnosis, finding);
  const proofs = diagnosis.proofs.filter((proof) => !combines(proof) && proof.faults.includes(finding.fault));
  const { low, expected, high } = finding.saving_ns;
  return h(
    "article",
    { class: "card finding", id: `finding-${finding.fault}`, "style.border-left-color": `var(--${finding.group})` },
    h("h3", {}, `${index + 1}. ${finding.title || finding.fault}`, h("span", { class: "tag id" }, finding.fault), h("span", { class: "tag" }, swatch(finding.group), finding.group)),
    finding.summary && h("p", { class: "muted" }, finding.summary),
    saving(finding, wall),
    whisker({ low, expected, high }, wall, finding.group, low < high ? `${time(low)} to ${time(high)}` : ""),
    h("div", { class: "code" }, h("code", {}, finding.change), copyButton("the change", () => finding.change)),
    finding.static && h("p", { class: "muted" }, "found by reading the source alone, not measured"),
    finding.evidence && h("p", {}, h("span", { class: "muted" }, "seen: "), finding.evidence),
    finding.remark && h("p", { class: "muted" }, finding.remark),
    finding.assumes && h("p", {}, h("span", { class: "muted" }, "assumes: "), finding.assumes),
    finding.where.length > 0 && h(
      "p",
      {},
      h("span", { class: "muted" }, "at "),
      finding.where.slice(0, MOST_LINES).map((where, at) => h("span", { title: where }, at ? ", " : "", lastPart(where))),
      finding.where.length > MOST_LINES ? ` and ${finding.where.length - MOST_LINES} more` : "",
      finding.inside?.length ? h("span", { class: "muted", title: finding.inside.join(", ") }, ` (in ${finding.inside.map(lastPart).join(", ")})`) : null,
    ),
    finding.also?.length ? h("p", { class: "muted" }, `also fixes ${finding.also.join(", ")}`) : null,
    finding.excludes.length > 0 && h("p", { class: "muted" }, `cannot be combined with ${finding.excludes.join(", ")}`),
    proofs.map((proof) => proofBlock(proof, finding)),
    folded("Why it costs time", finding.why),
    folded("When it does not help", finding.when_not),
  );
}

function folded(heading: string, words: string): HTMLElement | null {
  return words ? h("details", {}, h("summary", {}, heading), h("p", {}, words)) : null;
}

/** What a saving is a share of: the step, or the run. */
export function whole(diagnosis: Diagnosis, finding: Finding): number {
  return finding.relative_to === "run" && diagnosis.run ? diagnosis.run.wall_ns : diagnosis.step.wall_ns;
}

/** The saving in words; one that is not expected at all is only what it may be. */
export function saving(finding: Finding, wall: number): HTMLElement {
  const { expected, high } = finding.saving_ns;
  const [words, ns] = expected < 0.001 * wall ? ["may save up to ", high] as const : ["saves ", expected] as const;
  return h("p", { class: "large" }, words, h("strong", {}, time(ns)), `, ${share(ns / wall)} of ${finding.out_of ?? "the step"}`);
}

/** A range on a scale from nothing to `full`, with a tick where it is expected. */
function whisker(range: Range, full: number, group: string, words: string): HTMLElement {
  const at = (value: number) => Math.min(100, Math.max(0, (100 * value) / full));
  return h(
    "div",
    { class: "whisker" },
    h(
      "div",
      { class: "track" },
      h("div", {
        class: "range",
        "style.left": `${at(range.low)}%`,
        "style.width": `${at(range.high) - at(range.low)}%`,
        "style.background": `var(--${group})`,
      }),
      h("div", { class: "tick", "style.left": `${at(range.expected)}%` }),
    ),
    h("span", { class: "muted number" }, words),
  );
}

function otherCard(proof: Proof): HTMLElement {
  const heading = combines(proof) ? `together: ${proof.treatment}` : `${proof.treatment}: tried without a finding`;
  return h("article", { class: "card finding" }, h("h3", {}, heading), h("p", { class: "muted" }, `fixes ${proof.faults.join(", ")}`), proofBlock(proof));
}

/** Whether it is several fixes: one fix may remove several faults. */
function combines(proof: Proof): boolean {
  return proof.fixes.length > 1;
}

/** The other faults that the same fix removes. */
function alsoFixes(proof: Proof, finding?: Finding): string {
  const others = finding && !combines(proof) ? proof.faults.filter((fault) => fault !== finding.fault) : [];
  return others.length ? `, also fixes ${others.join(", ")}` : "";
}

/** Predicted over measured, on one scale of speed-ups. */
function proofBlock(proof: Proof, finding?: Finding): HTMLElement {
  const bad = proof.outcome !== "kept";
  const block = h(
    "div",
    { class: "proof" },
    h("p", {}, h("span", { class: bad ? "badge bad" : "badge good" }, proof.outcome), " ", proof.treatment && h("strong", {}, proof.treatment), alsoFixes(proof, finding), proof.why ? `: ${proof.why}` : ""),
  );
  if (proof.change && proof.change !== finding?.change) {
    add(block, h("div", { class: "code" }, h("code", {}, proof.change), copyButton("the change", () => proof.change)));
  }
  if (proof.speedup) {
    const measured = { low: proof.speedup.low, expected: proof.speedup.median, high: proof.speedup.high };
    const most = Math.max(measured.high, proof.predicted?.high ?? 1, 1.05);
    const least = Math.min(measured.low, proof.predicted?.low ?? 1, 1);
    const scale = { least: least - 0.02, most: most + 0.02 };
    add(
      block,
      proof.predicted && interval("predicted", proof.predicted, scale, "unknown"),
      interval("measured", measured, scale, bad ? "overhead" : "compute"),
      proof.after_ns.length > 0 && h("p", { class: "muted" }, `${time(proof.speedup.median * median(proof.after_ns))} to ${time(median(proof.after_ns))}, ${proof.after_ns.length} ${proof.fresh ? "fresh processes" : "rounds"} each`),
    );
  }
  if (proof.numerics) add(block, h("p", { class: "muted" }, `numbers ${proof.numerics.ok ? "hold" : "differ"}: ${proof.numerics.why}`));
  if (proof.peak_bytes.before && proof.peak_bytes.after) {
    add(block, h("p", { class: "muted" }, `peak memory ${size(proof.peak_bytes.before)} to ${size(proof.peak_bytes.after)}`));
  }
  return block;
}

function interval(words: string, range: Range, scale: { least: number; most: number }, group: string): HTMLElement {
  const at = (value: number) => (100 * (value - scale.least)) / (scale.most - scale.least);
  return h(
    "div",
    { class: "whisker proofs", "data-interval": words },
    h("span", { class: "muted" }, words),
    h(
      "div",
      { class: "track" },
      h("div", { class: "one", "style.left": `${at(1)}%` }),
      h("div", { class: "range", "style.left": `${at(range.low)}%`, "style.width": `${Math.max(0.8, at(range.high) - at(range.low))}%`, "style.background": `var(--${group})` }),
      h("div", { class: "tick", "style.left": `${at(range.expected)}%` }),
    ),
    h("span", { class: "number" }, `${times(range.expected)} (${times(range.low)} to ${times(range.high)})`),
  );
}

function median(values: number[]): number {
  const ordered = [...values].sort((a, b) => a - b);
  const middle = ordered.length >> 1;
  return ordered.length % 2 ? (ordered[middle] as number) : ((ordered[middle - 1] as number) + (ordered[middle] as number)) / 2;
}

/** Select findings to see the predicted step with all of them fixed. */
export function whatIf(diagnosis: Diagnosis): HTMLElement | null {
  const combined = combinations(diagnosis);
  const batches = largerBatches(diagnosis);
  if (!combined && !batches) return null;
  return section(
    "what-if",
    "What if",
    h("span", { class: "muted" }, "the predicted step with the selected findings fixed"),
    combined,
    batches,
  );
}

function combinations(diagnosis: Diagnosis): HTMLElement | null {
  if (!diagnosis.what_if.some((entry) => entry.faults.length)) return null;
  const key = (faults: Iterable<string>) => [...faults].sort().join("\n");
  const known = new Map<string, WhatIf>(diagnosis.what_if.map((entry) => [key(entry.faults), entry]));
  const offered = diagnosis.findings.map((finding) => finding.fault).filter((fault) => diagnosis.what_if.some((entry) => entry.faults.includes(fault)));
  const ticked = new Set<string>();
  const result = h("div", { class: "what-if-result", "aria-live": "polite" });
  const boxes = new Map<string, { box: HTMLInputElement; reason: HTMLElement }>();

  const reasonAgainst = (fault: string): string | null => {
    if (ticked.has(fault) || known.has(key([...ticked, fault]))) return null;
    const against = [...ticked].find((other) => excludes(diagnosis, fault, other));
    return against ? `cannot be combined with ${against}` : "this combination was not replayed";
  };
  const refresh = () => {
    for (const [fault, { box, reason }] of boxes) {
      const words = reasonAgainst(fault);
      box.disabled = words !== null;
      reason.textContent = words ?? "";
    }
    clear(result);
    add(result, outcome(diagnosis, known.get("") ?? null, ticked.size ? (known.get(key(ticked)) ?? null) : null));
  };
  const list = h("fieldset", {}, h("legend", {}, "Fix"), offered.map((fault) => {
    const box = h("input", { type: "checkbox", "data-fault": fault });
    const reason = h("span", { class: "muted reason" });
    box.addEventListener("change", () => {
      if (box.checked) ticked.add(fault);
      else ticked.delete(fault);
      refresh();
    });
    boxes.set(fault, { box, reason });
    return h("label", {}, box, " ", fault, " ", reason);
  }));
  refresh();
  return h("div", { class: "columns what-if" }, list, result);
}

function excludes(diagnosis: Diagnosis, one: string, other: string): boolean {
  const of = (fault: string) => diagnosis.findings.find((finding) => finding.fault === fault)?.excludes ?? [];
  return of(one).includes(other) || of(other).includes(one);
}

/** The step as it is over the step as it would be; `base` is the one that was replayed. */
function outcome(diagnosis: Diagnosis, base: WhatIf | null, entry: WhatIf | null): HTMLElement {
  const wall = base?.wall_ns.expected ?? diagnosis.step.wall_ns;
  const now: Record<string, number> = base ? base.groups : {};
  if (!base) for (const name of GROUPS) now[name] = diagnosis.account[name].ns;
  const full = Math.max(wall, entry?.wall_ns.high ?? 0);
  const rows = [h("div", { class: "muted" }, "now"), h("div", {}, groupsBar(now, full)), h("div", { class: "number" }, time(wall))];
  const guess = diagnosis.step.wall_source === "profiled" && base ? h("p", { class: "muted" }, `A clean step is not known from a trace: it is taken to last ${time(wall)}, with part of the host's time the profiler's.`) : null;
  if (!entry) return h("div", {}, h("div", { class: "before-after" }, rows), h("p", { class: "muted" }, "Tick one or more."), guess);
  const then = Object.keys(entry.groups).length ? entry.groups : { unknown: entry.wall_ns.expected };
  const { low, expected, high } = entry.wall_ns;
  rows.push(
    h("div", { class: "muted" }, "then"),
    h("div", { class: "then" }, groupsBar(then, full), h("div", { class: "error", "style.left": `${Math.min(100, (100 * low) / full)}%`, "style.width": `${(100 * (high - low)) / full}%` })),
    h("div", { class: "number", id: "what-if-time" }, time(expected)),
  );
  return h(
    "div",
    {},
    h("div", { class: "before-after" }, rows),
    h("p", { class: "large" }, h("strong", {}, times(wall / expected)), ` faster: ${time(expected)} per step${low < high ? ` (${time(low)} to ${time(high)})` : ""}`),
    guess,
  );
}

/** What larger batches would take, and what they would get done in that time. */
function largerBatches(diagnosis: Diagnosis): HTMLElement | null {
  if (!diagnosis.batches.length) return null;
  const wall = diagnosis.what_if.find((entry) => !entry.faults.length)?.wall_ns.expected ?? diagnosis.step.wall_ns;
  return h(
    "table",
    { class: "plain batches" },
    h("thead", {}, h("tr", {}, ["batch", "a step would take", "from", "to", "samples a second"].map((title, index) => h("th", { scope: "col", class: index ? "number" : undefined }, title)))),
    h("tbody", {}, diagnosis.batches.map(({ factor, wall_ns }) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, `${factor} times as large`),
        [time(wall_ns.expected), time(wall_ns.low), time(wall_ns.high), times((factor * wall) / wall_ns.expected)].map((text) => h("td", { class: "number" }, text)),
      ),
    )),
  );
}
