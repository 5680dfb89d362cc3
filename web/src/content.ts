// What the Python side put into the page, read back from columns into rows.

export type Groups = Record<string, number>;

export interface Range { low: number; expected: number; high: number }

export interface Op {
  index: number;
  name: string;
  class: string;
  where: string | null;
  /** The line of a library that the user's line led to. */
  inside: string | null;
  module: string | null;
  phase: string | null;
  shapes: string;
  dtype: string | null;
  count: number;
  ns: number;
  floor_ns: number | null;
  excess_ns: number | null;
  flops: number | null;
  bytes: number | null;
  bound: string;
  roof_fraction: number | null;
  roof_suspect: boolean;
  upper_bound: boolean;
}

export interface Line {
  where: string;
  text: string | null;
  ns: number;
  share: number;
  floor_ns: number | null;
  groups: Groups;
  parts?: Groups;
  inside?: Line[];
  callers?: { where: string; ns: number; count: number }[];
  advice?: string;
}

export interface Group { ns: number; share: number; excess_ns: number | null; parts: Groups }

export interface Finding {
  fault: string;
  group: string;
  where: string[];
  inside?: string[];
  saving_ns: Range;
  relative_to?: string;
  out_of?: string;
  evidence?: string;
  static?: boolean;
  remark?: string;
  change: string;
  assumes: string;
  excludes: string[];
  also?: string[];
  provable: boolean;
  summary: string;
  why: string;
  when_not: string;
}

export interface WhatIf { faults: string[]; wall_ns: Range; groups: Groups }

export interface Proof {
  faults: string[];
  treatment: string;
  fresh?: boolean;
  before_ns: number[];
  after_ns: number[];
  speedup: { low: number; median: number; high: number } | null;
  predicted: Range | null;
  peak_bytes: { before: number | null; after: number | null };
  numerics: { ok: boolean; why: string } | null;
  outcome: string;
  open?: boolean;
  why: string;
  change: string;
}

export interface Roof {
  name: string;
  value: number;
  unit: string;
  source: string;
  datasheet: number | null;
  spread: number | null;
  note: string | null;
}

export interface Machine {
  device: string;
  kind: string;
  chip: string | null;
  driver: string | null;
  torch: string | null;
  threads: number | null;
  measured_at: string | null;
  quick: boolean;
  memory_bytes: number | null;
  roofs: Roof[];
  levels: { roof: string; capacity: number | null }[];
  curves: Record<string, { size: number; value: number; ns: number; label: string }[]>;
  overheads: Record<string, number | null>;
  warnings: string[];
}

export interface Step {
  kind: string;
  wall_ns: number;
  wall_source: string;
  wall_interval_ns: [number, number];
  samples_ns: number[];
  phases: { name: string; host_issue_ns: number }[];
  device_busy_ns: number | null;
  kernels: number;
  dilation: number | null;
  replay_error: number | null;
  /** With the profiler, where `wall_ns` is an estimate without it. */
  profiled_ns?: number | null;
  inferred_share: number;
  others: { kind: string; steps: number; wall_ns: number }[];
}

export interface Rank {
  rank: number;
  name: string;
  wall_ns: number;
  device_busy_ns: number | null;
  groups: Groups;
  communication_ns: number;
  exposed_ns: number;
  waiting_ns: number | null;
  problem: string | null;
}

export interface Collective {
  name: string;
  bytes: number | null;
  count: number;
  ns: number;
  exposed_ns: number;
  bytes_per_s: number | null;
}

export interface ClassRow {
  class: string;
  flops_share: number;
  time_share: number;
  ns: number;
  flops_per_s: number | null;
  slower_than_contractions: number | null;
}

/** Device time of one class of kernels, by their names. */
export interface KernelClass {
  class: string;
  ns: number;
  share: number;
  costed_ns: number;
  kernels: number;
  dtypes: Record<string, number>;
}

export interface Lane {
  name: string;
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

export interface RunPart { name: string; ns: number; share: number; extrapolated?: boolean; count?: number }

export interface Run { wall_ns: number; parts: RunPart[]; step_share?: number | null; scope: string }

export interface Diagnosis {
  kind: "diagnosis";
  run?: Run | null;
  version: string;
  target: string | null;
  machine: Machine;
  step: Step;
  account: Record<"compute" | "bandwidth" | "overhead" | "unknown", Group>;
  verdict: { bound_by: string; or_bound_by?: string | null; uncertain: boolean; if_free: Groups; why: string };
  utilisation: { at_least?: boolean } & Record<string, number | boolean | null | undefined>;
  classes: ClassRow[];
  kernel_classes?: KernelClass[];
  ops: Op[];
  lines: Line[];
  modules: Line[];
  collectives: Collective[];
  ranks: Rank[];
  idle: { cause: string; name: string; where: string | null; ns: number }[];
  findings: Finding[];
  what_if: WhatIf[];
  batches: { factor: number; wall_ns: Range }[];
  proofs: Proof[];
  warnings: string[];
  strings: string[];
  lanes: Lane[];
}

export interface Difference {
  name: string;
  detail: string;
  text: string | null;
  before_ns: number | null;
  after_ns: number | null;
  delta_ns: number;
  before_count: number | null;
  after_count: number | null;
}

export interface Side {
  name: string;
  target: string | null;
  device: string;
  kind: string;
  bound_by: string;
  wall_ns: number;
  wall_source: string;
  interval_ns: [number, number];
  samples_ns: number[];
}

export interface Comparison {
  kind: "comparison";
  version: string;
  before: Side;
  after: Side;
  ratio: Range;
  beyond_noise: boolean | null;
  same?: boolean;
  groups: Difference[];
  ops: Difference[];
  lines: Difference[];
  warnings: string[];
}

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
    name: raw.lane as unknown as string,
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
