// Several runs on the same charts: a colour is a configuration, a dash a metric of the panel. A configuration of more than
// one run is its mean with a band from the lowest to the highest seed, and each run as a thin line where that is asked
// for. Pure functions from what figures/overlay.py gives to the panels that curves.js draws.

import { unpack } from "./data.js";

/**
 * A panel as figures/overlay.py gives it; columns are packed until they are first drawn.
 * @typedef {{name: string, x: any, y: any}} RunLine
 * @typedef {{configuration: number, series: number, x: any, mean: any, low: any, high: any, runs: RunLine[]}} OverlayLine
 * @typedef {{label: string, style: number}} Series
 * @typedef {{key: string, title: string, series: Series[], lines: OverlayLine[]}} OverlayPanel
 * @typedef {{label: string, colour: number}} Configuration
 */

/**
 * Panels with their lines; `off` holds the names of runs that are switched off, `each` is whether seeds are drawn too.
 * @param {OverlayPanel[]} panels @param {Configuration[]} configurations @param {{off: Set<string>, each: boolean}} shown
 */
export function overlayPanels(panels, configurations, { off, each }) {
  return panels.map((panel) => ({
    ...panel,
    x: "step",
    dashes: panel.series.length > 1 ? panel.series.map(({ label, style }) => ({ label, dash: style })) : [],
    named: true,
    lines: () => panel.lines.flatMap((line) => overlayLines(panel, line, configurations, off, each)),
    columns: () => panel.lines.flatMap((line) => overlayColumns(panel, line, configurations, off)),
  }));
}

/** @param {OverlayLine} line */
function unpacked(line) {
  unpack(line, "x", "mean", "low", "high");
  for (const run of line.runs) {
    unpack(run, "x", "y");
    run.x ??= line.x; // null stands for the same steps
  }
  return line;
}

/** @param {OverlayPanel} panel @param {OverlayLine} line @param {Configuration[]} configurations */
function nameOf(panel, line, configurations) {
  const { label } = configurations[line.configuration];
  return panel.series.length > 1 ? `${label}, ${panel.series[line.series].label}` : label;
}

/**
 * @param {OverlayPanel} panel @param {OverlayLine} line @param {Configuration[]} configurations @param {Set<string>} off
 * @param {boolean} each
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

/**
 * What is drawn and switched on: the mean, lowest and highest seed of a configuration, and each run.
 * @param {OverlayPanel} panel @param {OverlayLine} line @param {Configuration[]} configurations @param {Set<string>} off
 */
function overlayColumns(panel, line, configurations, off) {
  const { x, mean, low, high, runs } = unpacked(line);
  const shown = runs.filter((run) => !off.has(run.name));
  const name = nameOf(panel, line, configurations);
  const several = runs.length > 1;
  const band = several && shown.length === runs.length ? { mean, lowest: low, highest: high } : {};
  const titled = several || panel.series.length > 1;
  return [
    ...Object.entries(band).map(([what, values]) => [`${name}, ${what}`, x, values]),
    ...shown.map((run) => [titled ? `${name}, ${run.name}` : run.name, run.x, run.y]),
  ];
}
