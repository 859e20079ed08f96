// Every requested host with its status and reason; incomplete hosts first.

import { add, button, h, scrolled, section, table } from "./dom.ts";
import { number, ofAll } from "./format.ts";
import type { Host } from "./model.ts";
import type { View } from "./view.ts";

const HEADINGS = [
  "Host",
  "Status",
  "Reason",
  "Transport",
  "Samples",
  "Late, missed",
  "Gaps",
  "Clock offset, ms",
  "Rollbook CPU, %",
];
const SHOWN = 40;

export function hosts(view: View): HTMLElement {
  const holder = scrolled("Table of hosts");
  const note = h("p", { class: "small" });
  let all = false;
  const draw = (): void => {
    const chosen = [...view.hosts].sort(
      (one, other) => rank(view.page.hosts[one]!) - rank(view.page.hosts[other]!),
    );
    const shown = all ? chosen : chosen.slice(0, SHOWN);
    holder.replaceChildren(
      table(
        "Hosts",
        HEADINGS,
        shown.map((at) => row(view, at)),
      ),
    );
    note.replaceChildren(`${ofAll(chosen.length, view.page.hosts.length, "host")}. `);
    if (shown.length < chosen.length) {
      const more = (): void => {
        all = true;
        draw();
      };
      add(note, button(`Show all ${chosen.length}`, { class: "quiet" }, more));
    }
  };
  view.on("hosts", draw);
  draw();
  return section("hosts", "Hosts", note, holder);
}

function rank(host: Host): number {
  return host.status === "complete" ? (host.gaps.length ? 2 : 3) : host.status === "partial" ? 1 : 0;
}

function row(view: View, at: number): (Node | string)[] {
  const host = view.page.hosts[at]!;
  const known = (value: number | null): string => (value === null ? "–" : number(value));
  return [
    button(host.name, { class: "link" }, () => view.select(at)),
    h("span", { class: `badge ${host.status}` }, host.status),
    host.reason,
    host.method,
    host.samples === null
      ? "–"
      : host.missed
        ? `${host.samples} of ${host.samples + host.missed}`
        : known(host.samples),
    host.samples === null ? "–" : `${known(host.late)}, ${known(host.missed)}`,
    host.gaps.length ? String(host.gaps.length) : "",
    host.clock_offset_ms === null ? "–" : `${number(host.clock_offset_ms)} ± ${number(host.clock_bound_ms ?? 0)}`,
    host.cpu_share === null ? "–" : number(100 * host.cpu_share),
  ];
}
