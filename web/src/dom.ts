// Elements from text and other elements; nothing here ever parses markup.

export type Child = Node | string | null | undefined | false;
type Props = Record<string, string | number | boolean | ((event: never) => void) | undefined>;

/** An element; `on…` props are listeners, `style.…` props go through the CSSOM, the rest are attributes. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: (Child | Child[])[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value as EventListener);
    } else if (name.startsWith("style.")) {
      element.style.setProperty(name.slice(6), String(value));
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  add(element, ...children);
  return element;
}

export function add(parent: Node, ...children: (Child | Child[])[]): void {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
  }
}

export function clear(element: Node): void {
  while (element.firstChild) element.removeChild(element.firstChild);
}

/** A section of the page, with a heading one can link to. */
export function section(
  id: string,
  title: string,
  aside: Child | Child[],
  ...children: (Child | Child[])[]
): HTMLElement {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    h("div", { class: "heading" }, h("h2", { id: `${id}-title` }, title), aside),
    ...children,
  );
}

/** Copies text; where the clipboard is not to be had, through a selection. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.appendChild(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function copyButton(what: string, text: () => string): HTMLButtonElement {
  const button = h("button", { type: "button", class: "small", title: `copy ${what}` }, "copy");
  button.addEventListener("click", async () => {
    const done = await copy(text());
    button.textContent = done ? "copied" : "not allowed here";
    setTimeout(() => (button.textContent = "copy"), 1200);
  });
  return button;
}
