// What the Python side put into the page, read back from columns into rows.

import type * as model from "./model";

export type { CollectiveRow as Collective, ClassRow, CriticalPathRow, Difference, Estimate as Range, Finding, Group, KernelClassRow as KernelClass, LineRow as Line, Machine, Overheads, Proof, RankRow as Rank, Roof, RunPart, RunParts as Run, Side, StepTimes as Step, WhatIf } from "./model";

export type Groups = Record<string, number>;

/** A row of the operators; `inside` is the line of a library that the user's line led to. */
export type Op = model.OpRow & { index: number };

export interface Lane {
  kind: "host" | "idle" | "stream";
  number: number;
  length: number;
  id: Int32Array;
  start: Float64Array;
  ns: Float64Array;
  label: Int32Array;
  bound: Int32Array;
  where: Int32Array;
  cause: Int32Array;
  op: Int32Array;
  flow: Int32Array;
  floor: Float64Array;
}

export type Diagnosis = Omit<model.Diagnosis, "ops"> & {
  kind: "diagnosis";
  version: string;
  ops: Op[];
  warnings: string[];
  strings: string[];
  lanes: Lane[];
};

export type Comparison = model.Comparison & { kind: "comparison"; version: string };

interface Columns { length: number; fields: Record<string, { s?: number[]; v?: unknown[] }> }
type Packed = number[] | number | undefined;
type RawLane = Record<string, Packed> & { id: number[]; start: number[]; ns: number[] };

function rows<Row>(columns: Columns, strings: string[]): Row[] {
  const fields = Object.entries(columns.fields);
  return Array.from({ length: columns.length }, (_, index) => {
    const row: Record<string, unknown> = { index };
    for (const [name, column] of fields) {
      row[name] = column.s ? (strings[column.s[index] as number] ?? null) : (column.v?.[index] ?? null);
    }
    return row as Row;
  });
}

function sums(differences: number[]): number[] {
  let total = 0;
  return differences.map((difference) => (total += difference));
}

function unpacked(values: Packed, length: number): number[] {
  if (values === undefined) return new Array<number>(length).fill(-1);
  return typeof values === "number" ? new Array<number>(length).fill(values) : values;
}

function lane(raw: RawLane): Lane {
  const length = raw.ns.length;
  const ints = (field: string) => Int32Array.from(unpacked(raw[field], length));
  return {
    kind: raw.lane as unknown as Lane["kind"],
    number: raw.number as unknown as number,
    length,
    id: Int32Array.from(sums(raw.id)),
    start: Float64Array.from(sums(raw.start)),
    ns: Float64Array.from(raw.ns),
    label: ints("name"),
    bound: ints("bound"),
    where: ints("where"),
    cause: ints("cause"),
    op: ints("op"),
    flow: ints("flow"),
    floor: Float64Array.from(unpacked(raw.floor, length)),
  };
}

export function read(): Diagnosis | Comparison {
  const raw = JSON.parse(document.getElementById("content")?.textContent ?? "{}");
  if (raw.kind === "comparison") return raw as Comparison;
  for (const field of ["ops", "lines", "modules"]) raw[field] = rows(raw[field], raw.strings);
  raw.lanes = (raw.lanes as RawLane[]).map(lane);
  return raw as Diagnosis;
}
