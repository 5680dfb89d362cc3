// The operator that is picked out, in the roofline, the timeline and the tables alike.

import type { Op } from "./content";

const listeners: ((op: Op | null) => void)[] = [];
let current: Op | null = null;

export function selected(): Op | null {
  return current;
}

export function select(op: Op | null): void {
  current = op;
  for (const listener of listeners) listener(op);
}

export function onSelect(listener: (op: Op | null) => void): void {
  listeners.push(listener);
}
