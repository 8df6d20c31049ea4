// Several runs on the same charts: a colour is a configuration, a dash a metric of the panel. A configuration of more than
// one run is its mean with a band from the lowest to the highest seed, and each run as a thin line where that is asked
// for. Pure functions from what figures/overlay.py gives to the panels that curves.js draws.

/** @import { Column, Drawn, OverlayLine, OverlayPanel, Panel } from "./payload.js" */

import { unpack } from "./data.js";

/** @typedef {{label: string, colour: number}} Configuration */

/**
 * Panels with their lines; `off` holds the names of runs that are switched off, `each` is whether seeds are drawn too.
 * @param {OverlayPanel[]} panels @param {Configuration[]} configurations @param {{off: Set<string>, each: boolean, x?: string}} shown
 * @returns {(Panel & { lines: () => Drawn[], columns: () => Column[] })[]}
 */
export function overlayPanels(panels, configurations, { off, each, x = "step" }) {
  return panels.map((panel) => ({
    ...panel,
    x,
    dashes: panel.series.length > 1 ? panel.series.map(({ label, style }) => ({ label, dash: style })) : [],
    named: true,
    lines: () => panel.lines.flatMap((line) => overlayLines(panel, line, configurations, off, each)),
    columns: () => panel.lines.flatMap((line) => overlayColumns(panel, line, configurations, off)),
  }));
}

/** @param {OverlayLine} line */
function unpacked(line) {
  const columns = unpack(line, "x", "mean", "low", "high");
  const runs = line.runs.map((run) => {
    const { name, x, y } = unpack(run, "x", "y");
    return { name, x: x ?? columns.x, y }; // null stands for the same steps
  });
  return { ...columns, runs };
}

/** @param {OverlayPanel} panel @param {OverlayLine} line @param {Configuration[]} configurations */
function nameOf(panel, line, configurations) {
  const { label } = configurations[line.configuration];
  return panel.series.length > 1 ? `${label}, ${panel.series[line.series].label}` : label;
}

/**
 * @param {OverlayPanel} panel @param {OverlayLine} line @param {Configuration[]} configurations @param {Set<string>} off
 * @param {boolean} each @returns {Drawn[]}
 */
function overlayLines(panel, line, configurations, off, each) {
  const { x, mean, low, high, runs } = unpacked(line);
  const shown = runs.filter((run) => !off.has(run.name));
  const name = nameOf(panel, line, configurations);
  const style = { colour: configurations[line.configuration].colour, dash: panel.series[line.series].style };
  const seeds = (/** @type {{faint?: boolean}} */ more = {}) =>
    shown.map((run) => ({ label: runs.length > 1 ? run.name : name, x: run.x, y: run.y, ...style, ...more }));
  // With a seed switched off, a mean of all would mislead: the ones that are left are drawn as they are.
  if (runs.length < 2 || shown.length < runs.length) return seeds();
  // Only a panel's first metric has a band: three of them over each other show nothing.
  const band = line.series === panel.lines[0].series ? { low, high } : {};
  return [...(each ? seeds({ faint: true }) : []), { label: `${name}, mean`, x, y: mean, ...band, ...style }];
}

/** @type {(...parts: Column) => Column} */
const column = (...parts) => parts;

/**
 * What is drawn and switched on: the mean, lowest and highest seed of a configuration, and each run.
 * @param {OverlayPanel} panel @param {OverlayLine} line @param {Configuration[]} configurations @param {Set<string>} off
 * @returns {Column[]}
 */
function overlayColumns(panel, line, configurations, off) {
  const { x, mean, low, high, runs } = unpacked(line);
  const shown = runs.filter((run) => !off.has(run.name));
  const name = nameOf(panel, line, configurations);
  const several = runs.length > 1;
  const band = several && shown.length === runs.length && low && high ? { mean, lowest: low, highest: high } : {};
  const titled = several || panel.series.length > 1;
  return [
    ...Object.entries(band).map(([what, values]) => column(`${name}, ${what}`, x, values)),
    ...shown.map((run) => column(titled ? `${name}, ${run.name}` : run.name, run.x, run.y)),
  ];
}
