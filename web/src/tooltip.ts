// One tooltip for the whole page, made of elements; text in it is only ever text.

import { add, clear, h } from "./dom";

export type Fact = [string, string | null | undefined];

const box = h("div", { id: "tooltip", role: "tooltip", hidden: true });

export function mount(): void {
  document.body.appendChild(box);
  window.addEventListener("scroll", hide, { passive: true });
}

/** A heading and facts about it; facts without a value are left out. */
export function facts(title: string, list: Fact[]): HTMLElement {
  const rows = list.filter((fact) => fact[1]);
  return h(
    "div",
    {},
    h("strong", {}, title),
    h("dl", {}, rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value as string)])),
  );
}

export function show(content: HTMLElement, x: number, y: number): void {
  clear(box);
  add(box, content);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
  const top = y + 14 + height > innerHeight ? y - 14 - height : y + 14;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}

export function hide(): void {
  box.hidden = true;
}
