// One panel on the page: a caption with the lines' values, a menu, and its chart, which the keyboard reads and zooms.

/** @import { Curves } from "./curves.js" */
/** @import { Change } from "./keys.js" */
/** @import { Column, Look, Panel, SeriesPayload } from "./payload.js" */
/** @import { Line } from "./scale.js" */
/** @typedef {{ node: HTMLElement, line: Line | null, value: HTMLElement | null }} Entry of a caption; it may hold a value */

import { download, el, setText } from "../dom.js";
import { LineChart } from "./chart.js";
import { menu } from "./controls.js";
import { csv, fileName, isTemplate, leastOf, nameIn, unpack } from "./data.js";
import { keyChange } from "./keys.js";
import { picture } from "./picture.js";
import { indexAt, valueText } from "./scale.js";
import { colour, dash } from "./style.js";
import { later } from "./work.js";

/** @param {Line} line Whether its values are captioned, read out and named in a file. */
const isNamed = (line) => !line.faint && line.x.length > 0;

export class Figure {
  /** @param {Panel} panel @param {Curves} owner the set of charts this one is in */
  constructor(panel, owner) {
    this.panel = panel;
    this.owner = owner;
    /** @type {Line[]} */
    this.lines = [];
    /** @type {Entry[]} */
    this.entries = [];
    this.captioned = ""; // what the entries were made for
    this.visible = false;
    this.waiting = false; // to be drawn
    /** @type {number | null} in pixels, once it is known */
    this.width = null;
    const steps = panel.x === "step";
    this.figure = el("figure", { class: "curve", "data-panel": panel.key, tabindex: -1, hidden: true }); // an alarm leads here
    this.menu = menu(panel.title, {
      onLog: (on) => {
        this.chart.log = on;
        this.draw();
      },
      png: async () => download(`${this.fileName}.png`, await picture(this.chart.svg, panel.title, this.legend())),
      csv: () =>
        download(`${this.fileName}.csv`, new Blob([csv(this.columns(), panel.x || "x")], { type: "text/csv" })),
    });
    this.caption = el("figcaption", { title: panel.about }, el("b", {}, panel.title), this.menu.node);
    // A slider over the points, for the keyboard and whoever hears it.
    this.plot = el("div", {
      class: "plot holder",
      role: "slider",
      tabindex: 0,
      "aria-label": panel.title,
      onblur: () => owner.point(null, this),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event),
    });
    this.plot.style.minHeight = `${owner.height}px`;
    this.readout = owner.readout
      ? this.plot.appendChild(el("div", { class: "readout", "aria-hidden": "true", hidden: true }))
      : null;
    this.figure.append(
      this.caption,
      this.plot,
      ...(steps || !panel.x ? [] : [el("div", { class: "x-name" }, panel.x)]),
    );
    const { height, smoothing } = owner;
    this.chart = new LineChart(this.plot, { height, share: panel.share, steps, on: (change) => this.change(change) });
    this.chart.lines = this.lines;
    this.chart.range = owner.rangeOf(panel);
    this.chart.smoothing = smoothing;
    for (const series of panel.series ?? []) if (!isTemplate(series.metric)) this.newLine(series);
  }

  get fileName() {
    return fileName(this.owner.name, this.panel.key);
  }

  /** @param {Change} change */
  change({ point, pick, zoom }) {
    if (point !== undefined) this.owner.point(point, this);
    if (pick !== undefined) this.owner.pick(pick);
    if (zoom !== undefined) this.owner.zoom(zoom, this.panel.x);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { lines, range, pointed, steps } = this.chart;
    const change = keyChange(event.key, { lines, range, pointed, steps });
    if (!change) return;
    event.preventDefault();
    this.change(change);
  }

  // ── lines ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** As it was before the first value; lines of reward functions, which another run may not have, go. */
  clear() {
    this.entries.forEach((entry) => entry.node.remove());
    this.lines.length = this.entries.length = 0;
    this.captioned = "";
    for (const series of this.panel.series ?? []) if (!isTemplate(series.metric)) this.newLine(series);
    this.figure.hidden = true;
    this.chart.range = this.owner.rangeOf(this.panel);
    this.chart.clear();
  }

  /** @param {SeriesPayload} series */
  newLine({ metric, label, style }) {
    /** @type {Line} */
    const line = { metric, label, x: [], y: [], colour: style, dash: style, least: Infinity, average: null };
    this.lines.push(line);
    return line;
  }

  /**
   * The line that draws a metric, made when a reward function's metric is first met; null if the panel has none for it.
   * @param {string} metric
   */
  lineOf(metric) {
    const known = this.lines.find((line) => line.metric === metric);
    if (known) return known;
    for (const series of this.panel.series ?? []) {
      const label = nameIn(series.metric, metric);
      if (label !== null) return this.newLine({ metric, label, style: series.style + this.lines.length });
    }
    return null;
  }

  /** @param {Record<string, [steps: number[], values: number[]]>} columns by metric; those that no line draws are left alone */
  add(columns) {
    let any = false;
    for (const [metric, [steps, values]] of Object.entries(columns)) {
      const line = this.lineOf(metric);
      if (!line) continue;
      any = true;
      const from = line.y.length;
      if (from) {
        for (const step of steps) line.x.push(step);
        for (const value of values) line.y.push(value);
      } else Object.assign(line, { x: steps.slice(), y: values.slice() });
      line.least = leastOf(line.y, from, line.least);
    }
    if (any) this.changed();
  }

  /** @param {string[]} metrics */
  lose(metrics) {
    for (const line of this.lines) line.lost = line.metric !== undefined && metrics.includes(line.metric);
    this.show(this.chart.pointed);
  }

  /** @param {Panel} panel Takes the lines of a stored one in place of those there. */
  update(panel) {
    this.panel = panel;
    const lines = typeof panel.lines === "function"
      ? panel.lines()
      : (panel.lines ?? []).map((line) => unpack(line, "x", "y", "low", "high"));
    this.lines.splice(0, Infinity, ...lines.map((line) => ({ ...line, least: leastOf(line.low ?? line.y) })));
    if (this.chart.empty) this.chart.clear();
    this.changed();
  }

  changed() {
    if (this.panel.lines || !this.chart.empty) this.figure.hidden = false;
    this.fillCaption();
    this.menu.positive(this.chart.positive);
    this.owner.filled(this);
    this.show(this.chart.pointed);
    this.draw();
  }

  // ── caption and reading ────────────────────────────────────────────────────────────────────────────────────

  /** A name and a value a line; where values are read out in the chart, what the dashes of several metrics mean. */
  fillCaption() {
    const named = this.lines.filter(isNamed);
    /** @type {Look[]} */
    const dashes = this.panel.dashes ?? [];
    const shown = this.readout ? dashes : named;
    const key = JSON.stringify(shown.map((line) => [line.label, line.colour, line.dash]));
    if (key === this.captioned) return;
    this.captioned = key;
    this.entries.forEach((entry) => entry.node.remove());
    const hasNames = this.panel.named || named.length > 1;
    this.entries = this.readout
      ? dashes.map((look) => entry(look, `${look.label} `))
      : named.map((line) => entry(line, hasNames ? `${line.label} ` : "", line));
    this.menu.node.before(...this.entries.map((entry) => entry.node));
  }

  /** @param {number | null} x The crosshair there, with the values; without, those at the end. */
  show(x) {
    for (const { line, value } of this.entries) if (line && value) setText(value, this.textAt(line, x));
    const at = this.chart.point(x);
    const last = Math.max(...this.lines.filter(isNamed).map((line) => line.x[line.x.length - 1]), 0);
    const read = this.lines.filter((line) =>
      isNamed(line) && (x === null || !this.readout || line.x[line.x.length - 1] >= x)
    );
    const values = read.map((line) => `${line.label} ${this.textAt(line, x, true)}`).join("; ");
    const place = Number((x ?? last).toPrecision(6));
    const aria = {
      valuemin: 0,
      valuemax: last,
      valuenow: place,
      valuetext: `${this.panel.x || "at"} ${place}: ${values || "nothing is switched on"}`,
    };
    for (const [name, value] of Object.entries(aria)) this.plot.setAttribute(`aria-${name}`, `${value}`);
    if (this.readout) this.readOut(this.readout, at, place, read, x);
  }

  /**
   * The values beside the crosshair, in the chart that is pointed at.
   * @param {HTMLElement} readout @param {number | null} at in pixels @param {number} place @param {Line[]} lines
   * @param {number | null} x
   */
  readOut(readout, at, place, lines, x) {
    readout.hidden = at === null || this.owner.pointedAt !== this;
    if (at === null || readout.hidden) return;
    readout.style.cssText = at > this.chart.width / 2 ? `right: ${this.chart.width - at + 8}px` : `left: ${at + 8}px`;
    const rows = lines.map((line) =>
      el("div", {}, swatch(line), `${line.label} `, el("b", {}, this.textAt(line, x, true)))
    );
    readout.replaceChildren(el("div", {}, `${this.panel.x} ${place}`), ...rows);
  }

  /** @param {Line} line @param {number | null} x */
  textAt(line, x, withBand = false) {
    if (x === null && line.lost) return "NaN";
    const i = indexAt(line, x), { share } = this.panel;
    const band = withBand && i >= 0 && line.low && line.high
      ? ` (${valueText(line.low[i], share)} to ${valueText(line.high[i], share)})`
      : "";
    return valueText(i >= 0 ? line.y[i] : null, share) + band;
  }

  legend() {
    const named = this.lines.filter(isNamed);
    return this.panel.named || named.length > 1 ? named : [];
  }

  /** What a file holds, with the ends of a band. @returns {Column[]} */
  columns() {
    if (this.panel.columns) return this.panel.columns();
    return this.lines.filter(isNamed).flatMap(({ metric, label, x, y, low, high }) => {
      /** @type {Column[]} */
      const band = low && high ? [[`${label}, lowest`, x, low], [`${label}, highest`, x, high]] : [];
      return [[metric ?? label, x, y], ...band];
    });
  }

  draw() {
    if (this.waiting || !this.visible || this.figure.hidden) return;
    this.waiting = true;
    later(() => {
      this.waiting = false;
      this.drawNow();
    });
  }

  drawNow() {
    if (this.figure.isConnected && !this.figure.hidden) this.chart.draw(this.width ?? this.plot.clientWidth);
  }
}

/** @param {Look} look @param {string} label @param {Line | null} [line] whose value is written @returns {Entry} */
function entry(look, label, line = null) {
  const value = line && el("output");
  return { node: el("span", { class: "line" }, swatch(look), label, value), line, value };
}

/** @param {Look} line A short piece of it as it is drawn. */
function swatch(line) {
  const node = el("i", { class: "swatch" });
  const stroke = line.colour === undefined ? "currentColor" : colour(line.colour);
  const [on, off] = dash(line.dash).split(" ");
  const pattern = off
    ? `repeating-linear-gradient(90deg, ${stroke} 0 ${on}px, transparent 0 ${Number(on) + Number(off)}px)`
    : stroke;
  node.style.background = pattern;
  return node;
}
