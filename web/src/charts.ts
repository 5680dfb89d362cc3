// The parts of ECharts that the page uses, and no others.

import { LineChart, ScatterChart } from "echarts/charts";
import { DataZoomInsideComponent, GridComponent } from "echarts/components";
import { type ECharts, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { colour, onScheme } from "./theme";

use([LineChart, ScatterChart, GridComponent, DataZoomInsideComponent, CanvasRenderer]);

export type { ECharts };

/** A chart that follows its element's size and the colour scheme. */
export function chart(element: HTMLElement, option: () => Record<string, unknown>): ECharts {
  const made = init(element, null, { renderer: "canvas" });
  const draw = () => made.setOption(option(), { replaceMerge: ["series"] });
  draw();
  onScheme(draw);
  new ResizeObserver(() => made.resize()).observe(element);
  return made;
}

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/** An axis in the page's own colours. */
export function axis(more: object): object {
  const muted = colour("muted");
  return {
    axisLine: { lineStyle: { color: colour("line") } },
    axisTick: { lineStyle: { color: colour("line") } },
    axisLabel: { color: muted, fontFamily: FONT, fontSize: 11 },
    nameTextStyle: { color: muted, fontFamily: FONT, fontSize: 11 },
    splitLine: { lineStyle: { color: colour("grid") } },
    minorSplitLine: { show: false },
    ...more,
  };
}
