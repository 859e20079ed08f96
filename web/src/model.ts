// The document of the page; `src/rollbook/report/model.py` declares the same types in Python and explains each field.
// Times are milliseconds since 1970 on the collector's clock. Hosts are given as their index in `hosts`.

export interface Packed {
  rows: number;
  buckets: number;
  planes: number;
  low: number;
  step: number;
  rooted: boolean;
  data: string;
}

export interface Gap {
  start: number;
  end: number;
  why: string;
}

export interface SourceGap extends Gap {
  source: string;
}

export interface Host {
  name: string;
  status: string;
  reason: string;
  method: string;
  samples: number | null;
  late: number | null;
  missed: number | null;
  boots: number;
  gaps: Gap[];
  source_gaps: SourceGap[];
  losses: string[];
  clock_offset_ms: number | null;
  clock_bound_ms: number | null;
  cpu_share: number | null;
  memory_bytes: number | null;
  about: [term: string, text: string][];
}

export interface Finding {
  id: string;
  severity: string;
  message: string;
  where: string;
  hosts: number[];
  details: string[];
  evidence: Record<string, unknown>;
  advice: string;
  silenced: string;
  start: number | null;
  end: number | null;
  metrics: string[];
}

export interface Mark {
  kind: "command" | "phase" | "gap" | "reconnect" | "reboot" | "outlier" | "finding";
  start: number;
  end: number;
  text: string;
  host: number | null;
}

export interface PhaseValues {
  metric: string;
  unit: string;
  mean: number | null;
  p50: number | null;
  p95: number | null;
  max: number | null;
  median_host: number | null;
  slowest: string;
}

export interface Phase {
  name: string;
  start: number;
  end: number;
  values: PhaseValues[];
}

export interface Devices {
  hosts: number[];
  names: string[];
  start: number;
  bucket: number;
  packed: Packed;
}

export interface Chart {
  id: string;
  title: string;
  unit: string;
  description: string;
  runs_out: boolean;
  ceiling: number | null;
  highlight: number | null;
  hosts: number[];
  start: number;
  bucket: number;
  beats: number;
  packed: Packed;
  devices: Devices | null;
}

export interface Fact {
  source: string;
  row: string;
  field: string;
  values: [text: string, where: string][];
}

export interface Change {
  source: string;
  row: string;
  field: string;
  before: string;
  after: string;
  where: string;
}

export interface Cost {
  hosts: number;
  memory_bytes: number | null;
  sent_bytes: number | null;
}

export interface IssueReport {
  page: string;
  findings: Finding[];
}

/** One value of the benchmark; `value` is absent for a text. */
export interface Result {
  metric: string;
  value?: number;
  unit?: string;
  job?: string;
  host?: string;
  phase?: string;
  text?: string;
}

export interface MetricSummary {
  name: string;
  title: string;
  unit: string;
  mean: number;
  peak: number;
  hosts?: number;
  total?: number;
  slowest?: string;
  slowest_ratio?: number;
}

/** `src/rollbook/report/summary.py`; lists that are empty are absent. */
export interface Summary {
  seconds: number;
  command?: { exit_code: number | null; seconds: number; signal?: string; stderr?: string[]; output?: string[] };
  results?: Result[];
  seen?: { direction: string; counted_bytes: number; agrees: boolean; text: string }[];
  metrics?: MetricSummary[];
  /** Of all hosts together; absent if there are none. */
  samples?: number;
  overhead?: {
    hosts: number;
    cpu_seconds: number;
    most_cpu_seconds: number;
    sent_bytes: number;
    most_share?: number;
  };
}

export interface Page {
  rollbook: string;
  title: string;
  created: number;
  start: number;
  end: number;
  interval: number | null;
  verdict: { level: "good" | "warn" | "bad" | "open"; headline: string; reasons: string[] };
  summary: Summary;
  has_end: boolean;
  command: { text: string; code: number | null; start: number | null; end: number | null } | null;
  coverage: Record<string, number>;
  hosts: Host[];
  findings: Finding[];
  /** Rules by outcome; null for a record that was not checked. */
  checks: Record<string, number> | null;
  /** Findings by severity, silenced ones not counted. */
  counts: Record<string, number>;
  no_findings: string;
  cost: Cost | null;
  marks: Mark[];
  charts: Chart[];
  phases: Phase[];
  differing: Fact[];
  equal: Fact[];
  changes: Change[];
  compared: string;
  notes: string[];
  issue_report: IssueReport | null;
}
