// A table that sorts, searches, and copies itself.

import { add, type Child, clear, copyButton, h } from "./dom";

export interface Column<Row> {
  title: string;
  value: (row: Row) => number | string | null;
  cell?: (row: Row) => Child | Child[];
  numeric?: boolean;
  wide?: boolean; // gets the room that is left
  name?: boolean; // may be long, and is cut
}

const FIRST_ROWS = 60;

export interface TableView<Row> {
  element: HTMLElement;
  restrict: (keep: ((row: Row) => boolean) | null) => void;
  printing: () => void;
}

/** Rows come in the order given; a click on a heading sorts, a second one turns it round. */
export function table<Row>(
  name: string,
  rows: Row[],
  columns: Column<Row>[],
  onRow?: (row: Row) => void,
): TableView<Row> {
  let sortBy: number | null = null;
  let downwards = true;
  let words = "";
  let restriction: ((row: Row) => boolean) | null = null;
  let all = false;

  const search = h("input", { type: "search", placeholder: "search", "aria-label": `search ${name}` });
  const tally = h("span", { class: "muted", role: "status" });
  const headings = columns.map((column, index) =>
    h(
      "th",
      { scope: "col", class: column.numeric ? "number" : undefined },
      h("button", { type: "button", onclick: () => sort(index) }, column.title),
    ),
  );
  const body = h("tbody");
  const more = h("button", { type: "button", class: "small", onclick: () => ((all = true), draw()) });

  const text = (row: Row) => columns.map((column) => column.value(row) ?? "").join("\t");
  const haystacks = new Map<Row, string>();
  const matches = (row: Row) => {
    if (restriction && !restriction(row)) return false;
    if (!words) return true;
    let haystack = haystacks.get(row);
    if (haystack === undefined) haystacks.set(row, (haystack = text(row).toLowerCase()));
    return words.split(/\s+/).every((word) => (haystack as string).includes(word));
  };
  const current = () => {
    const kept = rows.filter(matches);
    if (sortBy === null) return kept;
    const { value } = columns[sortBy] as Column<Row>;
    const sign = downwards ? -1 : 1;
    return kept
      .map((row) => [value(row), row] as const)
      .sort(([a], [b]) => {
        // What is unknown comes last, whichever way one sorts.
        if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
        return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
      })
      .map(([, row]) => row);
  };

  function sort(index: number): void {
    const numeric = columns[index]?.numeric ?? false;
    downwards = sortBy === index ? !downwards : numeric;
    sortBy = index;
    headings.forEach((heading, at) => {
      if (at === index) heading.setAttribute("aria-sort", downwards ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
    draw();
  }

  function draw(): void {
    const kept = current();
    clear(body);
    for (const row of all ? kept : kept.slice(0, FIRST_ROWS)) {
      const line = h("tr", {}, columns.map((column) =>
        h("td", { class: column.numeric ? "number" : column.wide ? "wide" : column.name ? "name" : undefined }, column.cell ? column.cell(row) : String(column.value(row) ?? "")),
      ));
      if (onRow) {
        line.tabIndex = 0;
        line.classList.add("pick");
        line.addEventListener("click", () => onRow(row));
        line.addEventListener("keydown", (event) => {
          if (event.key === "Enter") onRow(row);
        });
      }
      body.appendChild(line);
    }
    tally.textContent = kept.length === rows.length ? `${rows.length}` : `${kept.length} of ${rows.length}`;
    more.textContent = `show all ${kept.length}`;
    more.hidden = all || kept.length <= FIRST_ROWS;
  }

  search.addEventListener("input", () => {
    words = search.value.trim().toLowerCase();
    draw();
  });
  const tsv = () => [columns.map((column) => column.title).join("\t"), ...current().map(text)].join("\n");
  const element = h(
    "div",
    { class: "table", "data-table": name },
    h("div", { class: "tools" }, search, tally, copyButton(`${name} as tab-separated values`, tsv)),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, headings)), body)),
    more,
  );
  draw();
  return {
    element,
    restrict: (keep) => {
      restriction = keep;
      draw();
    },
    printing: () => draw(),
  };
}

/** Tabs, each filled when it is first looked at; all of them when the page is printed. */
export function tabs(id: string, parts: [string, () => HTMLElement][]): HTMLElement {
  const filled = new Set<number>();
  const panels = parts.map((_, index) =>
    h("div", { role: "tabpanel", id: `${id}-panel-${index}`, "aria-labelledby": `${id}-tab-${index}`, tabindex: 0 }),
  );
  const fill = (index: number) => {
    if (filled.has(index)) return;
    filled.add(index);
    add(panels[index] as HTMLElement, h("h3", { class: "print-only" }, parts[index]?.[0]), parts[index]?.[1]());
  };
  const buttons = parts.map(([words], index) =>
    h("button", { type: "button", role: "tab", id: `${id}-tab-${index}`, "aria-controls": `${id}-panel-${index}`, onclick: () => open(index) }, words),
  );
  const open = (index: number) => {
    fill(index);
    panels.forEach((panel, at) => panel.classList.toggle("closed", at !== index));
    buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(at === index));
      button.tabIndex = at === index ? 0 : -1;
    });
  };
  const list = h("div", { role: "tablist" }, buttons);
  list.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const now = buttons.findIndex((button) => button.getAttribute("aria-selected") === "true");
    const next = (now + step + buttons.length) % buttons.length;
    open(next);
    buttons[next]?.focus();
  });
  window.addEventListener("beforeprint", () => parts.forEach((_, index) => fill(index)));
  open(0);
  return h("div", { class: "tabs", id }, list, panels);
}
