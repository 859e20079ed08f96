// Elements from data. Text from hosts only ever becomes a text node: nothing here parses markup.

export type Child = Node | string | number | null | undefined | false;

type Attributes = Record<string, string | number | boolean | null | undefined>;

/** Text with invisible and directional characters replaced. */
export function visible(text: string): string {
  return text.replace(/[\t\n\r]+/g, " ").replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}]/gu, "\ufffd");
}

/** An element with attributes and children; false and null attributes are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on") || name === "style") throw new Error(`${name} does not go through an attribute`);
    element.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  add(element, ...children);
  return element;
}

export function add(parent: Node, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
}

/** A button with a label and an action. */
export function button(label: string, attributes: Attributes, act: () => void): HTMLButtonElement {
  const element = h("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", act);
  return element;
}

/** A bullet list; items are text or elements. */
export function list(items: Child[], attributes: Attributes = {}): HTMLUListElement {
  return h("ul", attributes, ...items.map((item) => h("li", {}, item)));
}

/** A table with a heading row; cells are text or elements. */
export function table(caption: string, headings: string[], rows: Child[][]): HTMLTableElement {
  const head = h("tr");
  for (const heading of headings) add(head, h("th", { scope: "col" }, heading));
  const body = h("tbody");
  for (const row of rows) {
    const line = h("tr");
    row.forEach((cell, at) => add(line, at === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell)));
    add(body, line);
  }
  return h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, head), body);
}

/** A table that can be scrolled, also with keys. */
export function scrolled(label: string, content: Child = null): HTMLElement {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, content);
}

/** A section of the page with its heading; its id is the target of links. */
export function section(id: string, title: string, ...children: Child[]): HTMLElement {
  const heading = h("h2", { id: `${id}-title` }, title);
  return h("section", { id, "aria-labelledby": `${id}-title` }, heading, ...children);
}

/** Make a canvas as wide as its parent and ready to draw on; the unit of its context is CSS pixels. */
export function resized(canvas: HTMLCanvasElement, height: number): CanvasRenderingContext2D {
  const ratio = devicePixelRatio;
  canvas.width = Math.round(canvas.parentElement!.clientWidth * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const draw = canvas.getContext("2d")!;
  draw.scale(ratio, ratio);
  return draw;
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found;
}
