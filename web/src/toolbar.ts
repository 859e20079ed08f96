// The bar at the top of a page, and its theme: that of the system until the reader chooses the other one.

import { isDark, setDark } from "./colour.ts";
import { add, button, h } from "./dom.ts";

/** Use the light or dark theme of the system; `changed` is called after it has changed. */
export function followSystemTheme(changed: () => void): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  setDark(system.matches);
  system.addEventListener("change", () => {
    setDark(system.matches);
    changed();
  });
}

/** Brand, title, links to sections by id, and tools; the last tool switches the theme and calls `changed`. */
export function toolbar(
  title: string,
  sections: Record<string, string>,
  changed: () => void,
  ...tools: HTMLElement[]
): HTMLElement {
  const links = h("nav", { "aria-label": "Sections" });
  for (const [id, name] of Object.entries(sections)) add(links, h("a", { href: `#${id}` }, name));
  const turn = button("◐", { class: "quiet", "aria-label": "Light or dark", title: "Light or dark" }, () => {
    setDark(!isDark());
    changed();
  });
  return h(
    "header",
    { class: "toolbar" },
    h("a", { class: "skip", href: "#main" }, "Skip to the report"),
    h("span", { class: "brand" }, "Rollbook"),
    h("span", { class: "title" }, h("bdi", {}, title)),
    links,
    h("span", { class: "tools" }, ...tools, turn),
  );
}
