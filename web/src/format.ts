// Times, sizes and rates as people read them; the same as units.py in the Python package.

import { PREFIXES } from "./model";

export { PARTS } from "./model";

function threeDigits(value: number): string {
  const magnitude = Math.abs(value);
  if (magnitude === 0) return "0";
  if (magnitude >= 99.95) return Math.round(value).toLocaleString("en-US");
  if (magnitude < 0.0995) return String(Number(value.toPrecision(2)));
  return value.toFixed(magnitude >= 9.995 ? 1 : 2);
}

function scaled(value: number, unit: string): string {
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < PREFIXES.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${threeDigits(value)} ${PREFIXES[step]}${unit}`;
}

type Known = number | null | undefined;

export function time(ns: Known): string {
  if (ns === null || ns === undefined) return "-";
  const magnitude = Math.abs(ns);
  if (magnitude > 0 && magnitude < 0.9995) return `${threeDigits(ns * 1e3)} ps`;
  if (magnitude < 999.5) return `${threeDigits(ns)} ns`;
  if (magnitude < 999_500) return `${threeDigits(ns / 1e3)} µs`;
  if (magnitude < 999_500_000) return `${threeDigits(ns / 1e6)} ms`;
  if (magnitude < 60e9) return `${threeDigits(ns / 1e9)} s`;
  const seconds = Math.round(magnitude / 1e9);
  return `${ns < 0 ? "-" : ""}${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function signedTime(ns: number): string {
  return ns === 0 ? "0" : `${ns > 0 ? "+" : "−"}${time(Math.abs(ns))}`;
}

export function size(bytes: Known): string {
  return bytes === null || bytes === undefined ? "-" : scaled(bytes, "B");
}

export function rate(value: Known, unit: string): string {
  return value === null || value === undefined ? "-" : scaled(value, unit);
}

export function count(value: Known): string {
  if (value === null || value === undefined) return "-";
  if (Math.abs(value) < 999.5 && Number.isInteger(value)) return String(value);
  return scaled(value, "").trim();
}

export function share(value: Known, decimals?: number): string {
  if (value === null || value === undefined) return "-";
  const percent = value * 100;
  if (percent === 0) return "0%";
  const digits = decimals ?? (Math.abs(percent) >= 9.95 ? 0 : 1);
  const least = 10 ** -digits;
  if (Math.abs(percent) < least / 2) return `${percent > 0 ? "<" : ">-"}${least.toFixed(digits)}%`;
  return `${percent.toFixed(digits)}%`;
}

export function age(iso: string): string {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  for (const [name, length] of [["day", 86400], ["hour", 3600], ["minute", 60]] as const) {
    const whole = Math.floor(seconds / length);
    if (whole > 0) return `${whole} ${name}${whole > 1 ? "s" : ""} ago`;
  }
  return "just now";
}

/** `1 step`, `2 steps`, `1,200 kernels`. */
export function counted(number: number, what: string): string {
  return `${number.toLocaleString("en-US")} ${what}${number === 1 ? "" : "s"}`;
}

const LARGEST_PRINTED = 100;

/** A gain as a factor; implausible ones are shown as a bound. */
export function times(factor: number): string {
  return factor > LARGEST_PRINTED ? `over ${LARGEST_PRINTED}x` : `${factor.toFixed(2)}x`;
}

/** An operator's or a kernel's name without namespaces and template arguments. */
export function shortName(name: string): string {
  if (name.startsWith("aten::")) return name.slice(6);
  if (name.startsWith("nn.Module: ")) return name.slice(11);
  const plain = name
    .replace("(anonymous namespace)::", "")
    .replace(/[<(].*$/s, "")
    .replace(/^(?:void )?(?:\w+::)+/, "")
    .replace(/^void /, "");
  return plain || name;
}

/** The file and line without its folders. */
export function lastPart(where: string | null | undefined): string {
  return where ? (where.split("/").pop() ?? where) : "";
}

export const BOUNDS: Record<string, string> = {
  compute: "compute",
  memory: "memory bandwidth",
  small: "too small: overhead",
  python: "Python: overhead",
  network: "network",
  host_link: "host link",
  unknown: "no cost known",
};

export const CAUSES: Record<string, string> = {
  python: "waiting for Python and the framework",
  launch: "waiting for a launch",
  sync: "after a sync",
  data: "waiting for data",
  unseen: "waiting for something that the trace does not show",
};
