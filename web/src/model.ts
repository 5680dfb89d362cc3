// Made from boundby.model by scripts/make_page_types.py (make docs). Do not edit.

export interface Diagnosis {
  schema: number;
  target: string | null;
  framework: "jax" | "torch" | null;
  machine: Machine;
  step: StepTimes;
  precision: Precision;
  run: RunParts | null;
  account: Account;
  verdict: Verdict;
  utilisation: Utilisation;
  decode_limit: DecodeLimit | null;
  classes: ClassRow[];
  kernel_classes: KernelClassRow[];
  ops: OpRow[];
  lines: LineRow[];
  modules: LineRow[];
  collectives: CollectiveRow[];
  ranks: RankRow[];
  idle: IdleRow[];
  launches: LaunchRow[];
  launch_queue: LaunchQueue | null;
  sequences: SequenceRow[];
  critical_path: CriticalPathRow[];
  slack: SlackRow[];
  findings: Finding[];
  what_if: WhatIf[];
  batches: BatchRow[];
  bigger_chips: ChipRow[];
  proofs: Proof[];
}

export interface Machine {
  schema: number;
  device: string;
  kind: string;
  chip: string | null;
  vendor: string | null;
  driver: string | null;
  torch: string | null;
  threads: number | null;
  measured_at: string | null;
  quick: boolean;
  memory_bytes: number | null;
  roofs: Roof[];
  levels: MemoryLevel[];
  curves: Record<string, Point[]>;
  overheads: Overheads;
  warnings: string[];
  wait_share: number | null;
  under_load: boolean;
}

export interface Roof {
  name: string;
  value: number;
  unit: string;
  source: "datasheet" | "measured";
  datasheet: number | null;
  spread: number | null;
  note: string | null;
}

export interface MemoryLevel {
  roof: string;
  capacity: number | null;
}

export interface Point {
  size: number;
  value: number;
  ns: number;
  label: string;
}

export interface Overheads {
  eager_op_ns: number | null;
  trained_op_ns: number | null;
  launch_ns: number | null;
  graph_kernel_ns: number | null;
  graph_gap_ns: number | null;
  long_graph_gap_ns: number | null;
  compiled_call_ns: number | null;
  compiled_kernel_ns: number | null;
  trained_kernel_ns: number | null;
  sync_ns: number | null;
  shortest_kernel_ns: number | null;
  kernel_gap_ns: number | null;
  long_kernel_gap_ns: number | null;
  memory_t0_ns: number | null;
  python_add_ns: number | null;
}

export interface StepTimes {
  kind: string;
  series: string;
  wall_ns: number;
  wall_source: "clean" | "profiled" | "warm-up";
  wall_interval_ns: [number, number];
  samples_ns: number[];
  phases: PhaseTime[];
  device_busy_ns: number | null;
  kernels: number;
  dilation: number | null;
  replay_error: number | null;
  profiled_ns: number | null;
  inferred_share: number;
  others: KindOfStep[];
  unit: StepUnit | null;
}

export interface PhaseTime {
  name: string;
  host_issue_ns: number;
  samples_ns: number[];
}

export interface KindOfStep {
  kind: string;
  mode: "forward" | "step" | "train";
  steps: number;
  wall_ns: number;
}

export interface StepUnit {
  calls: number;
  backwards: number;
  updates: number;
  evaluations: number;
}

export interface Precision {
  products: string | null;
  convolutions: string | null;
  recurrent: string | null;
}

export interface RunParts {
  wall_ns: number;
  parts: RunPart[];
  step_share: number | null;
  scope: string;
}

export interface RunPart {
  name: "checkpoint" | "compile" | "data_start" | "eval" | "idle" | "import" | "logging" | "other" | "rollout" | "setup" | "train";
  ns: number;
  share: number;
  extrapolated: boolean;
  count: number;
  repeated_ns: number;
  recorded_ns: number;
  details: Record<string, number>;
}

export interface Account {
  compute: Group;
  bandwidth: Group;
  overhead: Group;
  unknown: Group;
}

export interface Group {
  ns: number;
  share: number;
  excess_ns: number | null;
  parts: Record<string, number>;
}

export interface Verdict {
  bound_by: "bandwidth" | "compute" | "overhead" | "unknown";
  or_bound_by: "bandwidth" | "compute" | "overhead" | "unknown" | null;
  uncertain: boolean;
  if_free: Record<string, number>;
  why: string;
}

export interface Utilisation {
  mfu: number | null;
  hfu: number | null;
  mfu_datasheet: number | null;
  hfu_datasheet: number | null;
  bandwidth: number | null;
  device: number | null;
  host_lead_ns: number | null;
  at_least: boolean;
  costed: number | null;
  classified: number | null;
}

export interface DecodeLimit {
  model: string;
  passes: number;
  tokens: number | null;
  experts: number | null;
  ranks: number;
  weight_bytes: number;
  kv_bytes: number | null;
  limit_ns: number;
  share: number;
}

export interface ClassRow {
  class: "communication" | "contraction" | "elementwise" | "movement" | "normalization" | "unknown";
  flops_share: number;
  time_share: number;
  ns: number;
  flops_per_s: number | null;
  slower_than_contractions: number | null;
}

export interface KernelClassRow {
  class: string;
  ns: number;
  share: number;
  costed_ns: number;
  kernels: number;
  dtypes: Record<string, number>;
}

export interface OpRow {
  name: string;
  class: "communication" | "contraction" | "elementwise" | "movement" | "normalization" | "unknown";
  where: string | null;
  inside: string | null;
  module: string | null;
  phase: string | null;
  shapes: string;
  dtype: string | null;
  count: number;
  ns: number;
  median_ns: number | null;
  deviation_ns: number | null;
  floor_ns: number | null;
  excess_ns: number | null;
  flops: number | null;
  bytes: number | null;
  bound: "compute" | "host_link" | "memory" | "network" | "python" | "small" | "unknown";
  roof_fraction: number | null;
  roof_suspect: boolean;
  upper_bound: boolean;
}

export interface LineRow {
  where: string;
  text: string | null;
  function: string | null;
  ns: number;
  share: number;
  floor_ns: number | null;
  groups: Record<string, number>;
  parts: Record<string, number>;
  inside: LineRow[];
  callers: CallerRow[];
  advice: string;
}

export interface CallerRow {
  where: string;
  ns: number;
  count: number;
}

export interface CollectiveRow {
  name: string;
  bytes: number | null;
  count: number;
  ns: number;
  exposed_ns: number;
  bytes_per_s: number | null;
}

export interface RankRow {
  rank: number;
  name: string;
  wall_ns: number;
  device_busy_ns: number | null;
  groups: Record<string, number>;
  communication_ns: number;
  exposed_ns: number;
  waiting_ns: number | null;
  problem: string | null;
}

export interface IdleRow {
  cause: string;
  name: string;
  where: string | null;
  ns: number;
}

export interface LaunchRow {
  name: string;
  kernels: number;
  delay_ns: number;
  kernel_ns: number;
  shortest_ns: number;
  short: number;
  ns: number;
}

export interface LaunchQueue {
  median: number;
  longest: number;
  blocked_ns: number;
}

export interface SequenceRow {
  kernels: string[];
  count: number;
  ns: number;
}

export interface CriticalPathRow {
  kind: "data" | "gap" | "host" | "kernel" | "latency";
  what: string;
  where: string | null;
  count: number;
  ns: number;
  share: number;
}

export interface SlackRow {
  what: string;
  where: string | null;
  count: number;
  ns: number;
  slack_ns: number;
}

export interface Finding {
  fault: string;
  title: string;
  kind: "mistake" | "note" | "tuning";
  group: "bandwidth" | "compute" | "overhead" | "unknown";
  where: string[];
  inside: string[];
  saving_ns: Estimate;
  relative_to: "run" | "samples" | "step";
  out_of: string;
  change: string;
  assumes: string;
  evidence: string;
  static: boolean;
  grows: boolean;
  remark: string;
  fixes: string[];
  excludes: string[];
  also: string[];
  provable: boolean;
  summary: string;
  why: string;
  when_not: string;
}

export interface Estimate {
  low: number;
  expected: number;
  high: number;
}

export interface WhatIf {
  faults: string[];
  wall_ns: Estimate;
  saving_ns: Estimate | null;
  groups: Record<string, number>;
}

export interface BatchRow {
  factor: number;
  wall_ns: Estimate;
  saving_ns: Estimate | null;
}

export interface ChipRow {
  chip: string;
  wall_ns: Estimate;
}

export interface Proof {
  faults: string[];
  fixes: string[];
  treatment: string;
  against: string;
  replaces: string;
  fresh: boolean;
  patched: boolean;
  before_ns: number[];
  after_ns: number[];
  speedup: Speedup | null;
  predicted: Estimate | null;
  peak_bytes: Peak;
  numerics: Numerics | null;
  preparation_s: number | null;
  outcome: "kept" | "no gain" | "inconclusive" | "unverified" | "wrong numbers" | "failed" | "skipped";
  why: string;
  change: string;
  log: string | null;
  open: boolean;
}

export interface Speedup {
  low: number;
  median: number;
  high: number;
}

export interface Peak {
  before: number | null;
  after: number | null;
}

export interface Numerics {
  ok: boolean;
  why: string;
  verified: boolean;
  tensor: string | null;
  error: number | null;
  tolerance: number | null;
}

export interface Comparison {
  schema: number;
  before: Side;
  after: Side;
  ratio: Estimate;
  beyond_noise: boolean | null;
  groups: Difference[];
  ops: Difference[];
  lines: Difference[];
  modules: Difference[];
  paths: Difference[];
  warnings: string[];
  same: boolean;
  refused: string;
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
  waiting_share: number;
  threads: number | null;
}

export interface Difference {
  name: string;
  depth: number;
  detail: string;
  text: string | null;
  before_ns: number | null;
  after_ns: number | null;
  delta_ns: number;
  before_count: number | null;
  after_count: number | null;
}

export const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];
export const PARTS: Record<string, string> = {
  "device_memory": "device memory",
  "host_link": "host link",
  "network": "network",
  "python": "Python and framework",
  "launch": "kernel launches",
  "sync": "device syncs",
  "data": "waiting for data",
  "unseen": "device waits for something that the trace does not show",
  "core": "waiting for a CPU core",
  "small_kernels": "small kernels"
};
