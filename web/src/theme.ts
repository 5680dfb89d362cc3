// Light, dark, and the colours of things, for elements and for canvases alike.

import { h } from "./dom";

type Scheme = "light" | "dark";
const KEY = "boundby-scheme";
const listeners: (() => void)[] = [];
const dark = matchMedia("(prefers-color-scheme: dark)");

function stored(): Scheme | null {
  try {
    return localStorage.getItem(KEY) as Scheme | null;
  } catch {
    return null; // a sandboxed frame has no storage
  }
}

function apply(scheme: Scheme): void {
  document.documentElement.dataset.scheme = scheme;
  for (const listener of listeners) listener();
}

/** Called whenever colours change. */
export function onScheme(listener: () => void): void {
  listeners.push(listener);
}

export function start(): void {
  apply(stored() ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => {
    if (stored() === null) apply(dark.matches ? "dark" : "light");
  });
}

export function schemeButton(): HTMLButtonElement {
  const words = () => (document.documentElement.dataset.scheme === "dark" ? "light" : "dark");
  const button = h("button", { type: "button", class: "small", id: "scheme" }, words());
  const label = () => {
    button.textContent = words();
    button.setAttribute("aria-label", `switch to ${words()} colours`);
  };
  label();
  onScheme(label);
  button.addEventListener("click", () => {
    const scheme = words();
    try {
      localStorage.setItem(KEY, scheme);
    } catch {
      // Not kept, then.
    }
    apply(scheme);
  });
  return button;
}

/** The value of a custom property, as the style sheet has it for the scheme at hand. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The custom property that goes with a group, a bound or a cause. */
export function colourName(kind: string | null | undefined): string {
  switch (kind) {
    case "compute":
    case "bandwidth":
    case "overhead":
    case "network":
    case "host_link":
    case "python":
    case "launch":
    case "sync":
    case "data":
    case "unseen":
    case "core":
      return kind;
    case "memory":
    case "device_memory":
      return "bandwidth";
    case "small":
    case "small_kernels":
      return "small";
    default:
      return "unknown";
  }
}

export function swatch(kind: string): HTMLElement {
  return h("span", { class: "swatch", "style.background": `var(--${colourName(kind)})` });
}
