// The document of an issue report's page; `src/rollbook/bundle/page.py` declares the same types and explains them.
// Times are milliseconds since 1970. Nodes and items are given as their index.

import type { Fact, Page } from "./model.ts";

export interface FileOfItem {
  path: string;
  source: string;
  size: number;
  truncated: string;
}

export interface Item {
  item: number;
  status: string;
  reason: string;
  files: FileOfItem[];
  more: number;
}

export interface ReportNode {
  name: string;
  status: string;
  reason: string;
  seconds: number;
  items: Item[];
}

export interface Line {
  path: string;
  line: number;
  text: string;
}

export interface Found {
  id: string;
  severity: string;
  message: string;
  where: string;
  nodes: number[];
  device: string;
  count: number;
  first: number | null;
  last: number | null;
  lines: Line[];
  details: string[];
  advice: string;
  silenced: string;
}

export interface Report {
  rollbook: string;
  title: string;
  created: number;
  made: number;
  since: number | null;
  until: number | null;
  verdict: Page["verdict"];
  items: string[];
  nodes: ReportNode[];
  cluster: Item[];
  findings: Found[];
  counts: Record<string, number>;
  outcomes: Record<string, number>;
  unclear: [rule: string, reason: string][];
  differing: Fact[];
  equal: number;
  compared: string;
}
