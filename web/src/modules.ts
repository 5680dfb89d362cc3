// Modules as a tree: a module's own time, and that of everything inside it.

import type { Diagnosis, Groups, Line } from "./content";
import { clear, copyButton, h } from "./dom";
import { groupsBar } from "./account";
import { share, time } from "./format";

interface Node {
  name: string;
  path: string;
  own: number;
  total: number;
  floor: number;
  groups: Groups;
  instances: Set<string>;
  children: Map<string, Node>;
}

function node(name: string, path: string): Node {
  return { name, path, own: 0, total: 0, floor: 0, groups: {}, instances: new Set(), children: new Map() };
}

/** The tree of dotted paths; `alike` puts all instances of a class at one place together. */
export function tree(rows: Line[], alike: boolean): Node {
  const root = node("", "");
  for (const row of rows) {
    const parts = row.where === "unknown" ? ["outside of all modules"] : row.where.split(".");
    let at = root;
    const along = [root];
    let instance = "";
    for (const part of parts) {
      const name = alike ? part.replace(/_\d+$/, "") : part;
      instance += `.${part}`;
      let child = at.children.get(name);
      if (!child) at.children.set(name, (child = node(name, at.path ? `${at.path}.${name}` : name)));
      child.instances.add(instance);
      along.push(child);
      at = child;
    }
    at.own += row.ns;
    for (const around of along) {
      around.total += row.ns;
      around.floor += row.floor_ns ?? 0;
      for (const [group, ns] of Object.entries(row.groups)) around.groups[group] = (around.groups[group] ?? 0) + ns;
    }
  }
  return root;
}

export function moduleTree(diagnosis: Diagnosis): HTMLElement {
  const wall = diagnosis.step.wall_ns;
  const open = new Set<string>();
  let alike = true;
  let words = "";
  let root = tree(diagnosis.modules, alike);

  const body = h("tbody");
  const ranked = (at: Node) => [...at.children.values()].sort((a, b) => b.total - a.total);
  const matches = (at: Node): boolean =>
    !words || at.path.toLowerCase().includes(words) || [...at.children.values()].some(matches);

  // From the start, the way down to where most of the time is lies open.
  const openMain = () => {
    open.clear();
    let at: Node | undefined = root;
    for (let depth = 0; at && depth < 4; depth += 1) {
      const down: Node[] = ranked(at);
      const main: Node | undefined = down.find((child) => child.children.size > 0);
      if (main) open.add(main.path);
      at = main;
    }
  };

  const draw = () => {
    clear(body);
    const visit = (at: Node, depth: number) => {
      for (const child of ranked(at)) {
        if (!matches(child)) continue;
        const isOpen = words ? true : open.has(child.path);
        const has = child.children.size > 0;
        const toggle = () => {
          if (open.has(child.path)) open.delete(child.path);
          else open.add(child.path);
          draw();
        };
        body.appendChild(
          h(
            "tr",
            { "aria-level": depth + 1, "aria-expanded": has ? String(isOpen) : undefined },
            h(
              "td",
              { "style.padding-left": `${depth * 18 + 4}px` },
              has
                ? h("button", { type: "button", class: "twist", "aria-label": `${isOpen ? "close" : "open"} ${child.name}`, onclick: toggle }, isOpen ? "▾" : "▸")
                : h("span", { class: "twist" }),
              child.name,
              alike && child.instances.size > 1 ? h("span", { class: "muted" }, ` ×${child.instances.size}`) : null,
            ),
            h("td", { class: "number" }, time(child.total)),
            h("td", { class: "number" }, share(child.total / wall)),
            h("td", { class: "number" }, child.children.size ? time(child.own) : ""),
            h("td", { class: "number" }, share(child.total ? child.floor / child.total : null)),
            h("td", { class: "wide" }, groupsBar(child.groups, root.total)),
          ),
        );
        if (has && isOpen) visit(child, depth + 1);
      }
    };
    visit(root, 0);
  };

  const search = h("input", { type: "search", placeholder: "search", "aria-label": "search modules" });
  search.addEventListener("input", () => {
    words = search.value.trim().toLowerCase();
    draw();
  });
  const box = h("input", { type: "checkbox", checked: true });
  box.addEventListener("change", () => {
    alike = box.checked;
    root = tree(diagnosis.modules, alike);
    openMain();
    draw();
  });
  const tsv = () => ["module\tns\tfloor_ns", ...diagnosis.modules.map((row) => [row.where, row.ns, row.floor_ns ?? ""].join("\t"))].join("\n");
  openMain();
  draw();
  return h(
    "div",
    { class: "table", "data-table": "modules" },
    h("div", { class: "tools" }, search, h("label", {}, box, " like modules together"), copyButton("modules as tab-separated values", tsv)),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { role: "treegrid" },
        h("thead", {}, h("tr", {}, ["module", "time", "of the step", "its own", "of roof", ""].map((title, index) => h("th", { scope: "col", class: index && index < 5 ? "number" : undefined }, title)))),
        body,
      ),
    ),
  );
}
