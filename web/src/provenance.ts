// How the step was measured: the profiler's cost, host times, other kinds of steps.

import type { Diagnosis } from "./content";
import { h, section } from "./dom";
import { counted, lastPart, share, size, time } from "./format";

const CAUSES: Record<string, string> = { sync: "after a sync", data: "waiting for data" };

export function provenance(diagnosis: Diagnosis): HTMLElement | null {
  const facts = [...observed(diagnosis), ...used(diagnosis), ...doubted(diagnosis)];
  const causes = diagnosis.idle.filter((row) => row.ns >= 0.005 * diagnosis.step.wall_ns).slice(0, 8);
  if (!facts.length && !causes.length) return null;
  return section(
    "known",
    "Measurement",
    null,
    h("dl", { class: "facts" }, facts.flatMap(([name, words]) => [h("dt", {}, name), h("dd", {}, words)])),
    causes.length > 0 && h("h3", {}, "Idle time by cause"),
    causes.length > 0 && h("dl", { class: "facts" }, causes.flatMap((row) => [
      h("dt", {}, time(row.ns)),
      h("dd", {}, `${CAUSES[row.cause] ?? row.cause}: ${row.name}`, row.where ? ` at ${lastPart(row.where)}` : ""),
    ])),
  );
}

function observed({ step }: Diagnosis): [string, string][] {
  const facts: [string, string][] = [];
  if (step.profiled_ns) {
    facts.push(["profiled", `${time(step.profiled_ns)} with the profiler; ${time(step.wall_ns)} is an estimate without it (${time(step.wall_interval_ns[0])} to ${time(step.wall_interval_ns[1])})`]);
  } else if (step.dilation) {
    facts.push(["profiler", `the profiled step took ${step.dilation.toFixed(2)}x a clean one${step.inferred_share ? `; ${share(step.inferred_share)} of the step is idle time, divided as in the profile` : ""}`]);
  }
  if (step.replay_error !== null) facts.push(["simulation", `the simulated step differs from the measured one by ${share(Math.abs(step.replay_error))}`]);
  if (step.samples_ns.length > 1) {
    facts.push([`${step.wall_source} steps`, `${step.samples_ns.length}, from ${time(Math.min(...step.samples_ns))} to ${time(Math.max(...step.samples_ns))}`]);
  }
  if (step.phases.length) facts.push(["host time by phase", step.phases.map((phase) => `${phase.name} ${time(phase.host_issue_ns)}`).join(", ")]);
  for (const other of step.others) facts.push(["other steps", `${other.kind === "step" ? "" : `${other.kind}: `}${counted(other.steps, "step")} of ${time(other.wall_ns)}`]);
  return facts;
}

/** Operators above their roof, and time without a known cost. */
function doubted({ ops, account, step }: Diagnosis): [string, string][] {
  const facts: [string, string][] = [];
  const suspects = ops.filter((op) => op.roof_suspect);
  if (suspects.length) {
    const ns = suspects.reduce((sum, op) => sum + op.ns, 0);
    facts.push(["above their roof", `${counted(suspects.length, "operator")} (${time(ns)}, marked ?): a cost formula or a roof is wrong`]);
  }
  if (account.unknown.ns > 0.001 * step.wall_ns) facts.push(["unknown", `${time(account.unknown.ns)} of the step: no cost formula for its operators`]);
  return facts;
}

function used({ utilisation, machine, decode_limit: limit, step }: Diagnosis): [string, string][] {
  const facts: [string, string][] = [];
  for (const [name, key] of [["MFU", "mfu"], ["HFU", "hfu"]] as const) {
    const value = utilisation[key];
    const sheet = utilisation[`${key}_datasheet`];
    if (typeof value === "number") {
      const measured = machine.measured_at ? "the measured roofs" : "the datasheet's roofs";
      facts.push([name, `${utilisation.at_least ? "at least " : ""}${share(value)} of ${measured}${typeof sheet === "number" && sheet !== value ? `, ${share(sheet)} of the datasheet's` : ""}`]);
    }
  }
  if (typeof utilisation.costed === "number") {
    const named = typeof utilisation.classified === "number" ? `, class for ${share(utilisation.classified)}` : "";
    facts.push(["device time", `cost known for ${share(utilisation.costed)}${named}`]);
  }
  if (typeof utilisation.bandwidth === "number") facts.push(["memory bandwidth", share(utilisation.bandwidth)]);
  if (limit) {
    const cached = limit.kv_bytes ? ` and ${size(limit.kv_bytes)} of keys and values` : "";
    const passes = limit.passes > 1 ? ` (in ${limit.passes} passes)` : "";
    facts.push(["decode limit", `reads ${size(limit.weight_bytes)} of weights${passes}${cached}: at least ${time(limit.limit_ns)}; the step takes ${time(step.wall_ns)}, ${share(limit.share)} of the limit's speed`]);
  }
  if (typeof utilisation.device === "number") facts.push(["device busy", share(utilisation.device)]);
  if (typeof utilisation.host_lead_ns === "number") {
    facts.push(["launch lead", `kernels start ${time(utilisation.host_lead_ns)} after their launch (median, profiled)`]);
  }
  return facts;
}
