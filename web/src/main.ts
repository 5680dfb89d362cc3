// Puts the page together: what is in view first, charts as they come near.

import "./style.css";
import { comparisonPage } from "./comparison";
import { type Diagnosis, read } from "./content";
import { add, h } from "./dom";
import { findings, whatIf } from "./findings";
import { machine, ranks } from "./machine";
import { provenance } from "./provenance";
import { roofline } from "./roofline";
import { header, roofsWords, summary, warnings } from "./summary";
import { tables } from "./tables";
import { start as startTheme } from "./theme";
import { timeline } from "./timeline/timeline";
import { mount as mountTooltip } from "./tooltip";

function diagnosisPage(diagnosis: Diagnosis): HTMLElement[] {
  const roof = roofline(diagnosis);
  const time = timeline(diagnosis);
  const computer = machine(diagnosis);
  const parts: [string, HTMLElement | null | undefined][] = [
    ["Findings", findings(diagnosis)],
    ["What if", whatIf(diagnosis)],
    ["Roofline", roof?.element],
    ["Timeline", time?.element],
    ["Evidence", tables(diagnosis)],
    ["Ranks", ranks(diagnosis)],
    ["Machine", computer.element],
    ["Measurement", provenance(diagnosis)],
  ];
  const present = parts.filter((part): part is [string, HTMLElement] => Boolean(part[1]));
  startNear(roof?.element, roof?.start);
  startNear(time?.element, time?.start);
  startNear(computer.element, computer.start);
  // For tests, and for the curious: what was drawn, as numbers.
  Object.assign(window, { boundbyPage: { diagnosis, roofline: roof, timeline: time } });
  return [
    header(diagnosis.target, `${diagnosis.machine.device} · ${roofsWords(diagnosis)}`, present.map(([words, element]) => [element.id, words])),
    h("main", {}, summary(diagnosis), warnings(diagnosis.warnings), present.map(([, element]) => element)),
  ];
}

/** Starts what is costly to draw when it is about to be seen, or printed. */
function startNear(element: HTMLElement | undefined, start: (() => void) | undefined): void {
  if (!element || !start) return;
  let begun = false;
  const begin = () => {
    if (begun) return;
    begun = true;
    watcher.disconnect();
    start();
  };
  const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && begin(), { rootMargin: "600px" });
  watcher.observe(element);
  window.addEventListener("beforeprint", begin);
}

startTheme();
const content = read();
const root = document.getElementById("page") as HTMLElement;
add(root, content.kind === "comparison" ? comparisonPage(content) : diagnosisPage(content));
add(root, h("footer", { class: "muted" }, `boundby ${content.version} · times of the step are medians; 95% intervals in brackets`));
mountTooltip();
performance.mark("boundby-ready");
document.documentElement.dataset.ready = "true";
