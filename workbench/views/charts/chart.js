// One small line chart in SVG: axes, lines with their bands, a crosshair, zoom by dragging, double click to see everything
// again. A line can be drawn as its moving average with the values faint behind it, and on a logarithmic axis.
//
// Made for curves that grow while they are looked at. A line is drawn with the least and the greatest value of every
// pixel's worth of points, so a chart of 10,000 points costs what one of 600 does (about a millisecond).

/** @import { Change } from "./keys.js" */
/** @import { Line, Range } from "./scale.js" */
/** @typedef {{ y: number[], indices: number[] }} Row values of a line, and which of them are drawn */
/**
 * @typedef {{ line: Line, x: number[], raw: Row, smooth: Row | null, band: [Row, Row] | null, rows: Row[] }} Curve what is
 *   drawn of a line
 */
/** @typedef {Record<"band" | "raw" | "path" | "marks", SVGPathElement>} Paths that a line is drawn with */
/** @typedef {(value: number) => number} Place in pixels, of a value */

import { svg } from "../dom.js";
import { averaged, domain, extent, logTicks, lowerBound, nearestX, thinned, tickLabel, ticks } from "./scale.js";
import { colour, dash } from "./style.js";

export const HEIGHT = 132;
const LEFT = 44, RIGHT = 10, TOP = 6, BOTTOM = 20;
const DRAGGED = 6; // pixels that make a drag of a click
const DOUBLE_CLICK = 400; // milliseconds in which a click may turn out to be the first half of a double click

/** @param {number} value */
const round = (value) => Math.round(value * 10) / 10;

/** @param {string[]} places */
const joined = (places) => (places.length ? `M${places.join("L")}` : "");

/** @param {Element} node @param {Record<string, string | number>} attributes */
const set = (node, attributes) => {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, `${value}`);
};

/** @param {number} a @param {number} b @returns {Range} */
const between = (a, b) => [Math.min(a, b), Math.max(a, b)];

export class LineChart {
  /**
   * @param {HTMLElement} root
   * @param {{ height: number, share?: boolean, steps?: boolean, on: (change: Change) => void }} options with `steps` the x
   *   axis is that of training steps: whole numbers from 0
   */
  constructor(root, { height, share = false, steps = true, on }) {
    this.height = height;
    this.share = share;
    this.steps = steps;
    this.on = on;
    /** @type {Line[]} read at each drawing */
    this.lines = [];
    /** @type {Range | null} what is zoomed to */
    this.range = null;
    this.smoothing = 0;
    this.log = false;
    this.width = 0;
    /** @type {number | null} where the crosshair is */
    this.pointed = null;
    /** @type {Place} as drawn last; out of sight before */
    this.toX = () => -1;
    this.gridKey = ""; // what the grid was drawn for
    this.svg = svg("svg", { class: "main-svg", height: height, "aria-hidden": "true" });
    this.grid = svg("g", { class: "grid" });
    this.drawn = svg("svg", { y: 0, height: height }); // cuts off what lies beside the axes
    /** @type {Paths[]} */
    this.nodes = [];
    this.cross = svg("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
    this.chosen = svg("rect", { class: "chosen", y: TOP, height: height - TOP - BOTTOM, visibility: "hidden" });
    this.svg.append(this.grid, this.drawn, this.chosen, this.cross);
    root.append(this.svg);
    this.listen();
  }

  get empty() {
    return !this.lines.some((line) => line.x.length);
  }

  /** Whether a logarithmic axis can show every value. */
  get positive() {
    return this.lines.every((line) => !line.x.length || line.least > 0);
  }

  /** Takes away what is drawn. */
  clear() {
    this.nodes.splice(0).forEach((nodes) => Object.values(nodes).forEach((node) => node.remove()));
    this.pointed = null;
  }

  /** @param {number} [width] in pixels; draws what there is now */
  draw(width = this.width) {
    this.width = width;
    if (this.empty || width < LEFT + RIGHT + 20) return;
    set(this.svg, { width });
    const [from, to] = domain(this.lines, this.range, this.steps);
    const inner = width - LEFT - RIGHT;
    const log = this.log && this.positive;
    const curves = this.lines.map((line) => this.curve(line, from, to, Math.ceil(inner / 2)));
    const [low, high] = extent(curves, from, to, this.share, log);
    const box = { x: LEFT - 3, width: inner + 6 };
    set(this.drawn, { ...box, viewBox: `${box.x} 0 ${box.width} ${this.height}` });
    this.toX = (value) => LEFT + ((value - from) / (to - from || 1)) * inner;
    const scale = (this.height - TOP - BOTTOM) / (high - low);
    const toY = (/** @type {number} */ value) =>
      this.height - BOTTOM - ((log ? Math.log10(value) : value) - low) * scale;
    this.drawGrid(from, to, log ? logTicks(10 ** low, 10 ** high) : null, low, high, toY);
    curves.forEach((curve, i) => this.drawLine(this.nodesOf(i), curve, toY, inner / 5));
    for (const nodes of this.nodes.splice(curves.length)) Object.values(nodes).forEach((node) => node.remove());
    this.point(this.pointed);
  }

  /** @param {Line} line @param {number} from @param {number} to @param {number} columns @returns {Curve} */
  curve(line, from, to, columns) {
    const { x } = line;
    const first = Math.max(0, lowerBound(x, from) - 1), last = Math.min(x.length, lowerBound(x, to + 1e-9) + 1);
    /** @type {(y: number[]) => Row} */
    const row = (y) => ({ y, indices: thinned(x, y, first, last, columns) });
    const smoothed = this.smoothing > 0 && !line.faint;
    if (smoothed) line.average = averaged(line.y, this.smoothing, line.average);
    const raw = row(line.y);
    const smooth = smoothed && line.average ? row(line.average.values) : null;
    /** @type {[Row, Row] | null} */
    const band = line.low && line.high ? [row(line.high), row(line.low)] : null;
    return { line, x, raw, smooth, band, rows: [raw, ...(smooth ? [smooth] : []), ...(band ?? [])] };
  }

  /** @param {number} i */
  nodesOf(i) {
    while (this.nodes.length <= i) {
      const path = (/** @type {keyof Paths} */ name) => svg("path", { class: `${name} ${name}-${this.nodes.length}` });
      const nodes = { band: path("band"), raw: path("raw"), path: path("path"), marks: path("marks") };
      this.nodes.push(nodes);
      this.drawn.append(...Object.values(nodes));
    }
    return this.nodes[i];
  }

  /** @param {Paths} nodes @param {Curve} curve @param {Place} toY @param {number} mostMarks */
  drawLine(nodes, { line, x, raw, smooth, band }, toY, mostMarks) {
    const points = (/** @type {Row} */ { y, indices }) =>
      indices.map((at) => `${round(this.toX(x[at]))} ${round(toY(y[at]))}`);
    const places = points(raw);
    for (const node of Object.values(nodes)) {
      node.style.setProperty("--line", colour(line.colour));
      node.classList.toggle("faint", Boolean(line.faint));
    }
    nodes.path.style.strokeDasharray = dash(line.dash);
    const outline = band ? [...points(band[0]), ...points(band[1]).reverse()] : [];
    nodes.band.setAttribute("d", outline.length ? `${joined(outline)}Z` : "");
    nodes.raw.setAttribute("d", smooth ? joined(places) : "");
    nodes.path.setAttribute("d", joined(smooth ? points(smooth) : places));
    // A metric that is measured now and then shows where it was.
    const sparse = x.length < 3 || !this.steps || (x[x.length - 1] - x[0]) / (x.length - 1) >= 2;
    const marked = sparse && !line.faint && places.length <= mostMarks;
    nodes.marks.setAttribute("d", marked ? places.map((place) => `M${place}h0`).join("") : "");
  }

  /**
   * @param {number} from @param {number} to @param {{ value: number, step: number }[] | null} logarithmic ticks
   * @param {number} low @param {number} high @param {Place} toY
   */
  drawGrid(from, to, logarithmic, low, high, toY) {
    const across = ticks(from, to, Math.max(2, Math.floor(this.width / 70)), this.steps);
    const linear = ticks(low, high, 4);
    const up = logarithmic ?? linear.values.map((value) => ({ value, step: linear.step }));
    const key = JSON.stringify([this.width, from, to, up, low, high]);
    if (key === this.gridKey) return;
    this.gridKey = key;
    const right = this.width - RIGHT;
    const rows = up.flatMap(({ value, step }) => [
      svg("line", { x1: LEFT, x2: right, y1: toY(value), y2: toY(value) }),
      svg("text", { x: LEFT - 5, y: toY(value) + 3.5, "text-anchor": "end" }, tickLabel(value, step, this.share)),
    ]);
    const columns = across.values.map((value) => {
      const x = this.toX(value), outside = x > this.width - 3 * RIGHT;
      const place = outside
        ? { x: Math.min(this.width, x + RIGHT), "text-anchor": "end" }
        : { x, "text-anchor": "middle" };
      return svg("text", { ...place, y: this.height - 6 }, tickLabel(value, across.step, false));
    });
    this.grid.replaceChildren(...rows, ...columns);
  }

  /** @param {number | null} x Puts the crosshair there, or takes it away; its place, null where it is not in sight. */
  point(x) {
    this.pointed = x;
    const at = x === null ? -1 : this.toX(x);
    const visible = at >= LEFT - 0.5 && at <= this.width - RIGHT + 0.5;
    set(this.cross, {
      visibility: visible ? "visible" : "hidden",
      ...(visible ? { transform: `translate(${at.toFixed(1)} 0)` } : {}),
    });
    return visible ? at : null;
  }

  /** @param {number} clientX The x at a place on the screen. */
  valueAt(clientX) {
    const [from, to] = domain(this.lines, this.range, this.steps);
    const share = (clientX - this.svg.getBoundingClientRect().left - LEFT) / (this.width - LEFT - RIGHT);
    return Math.min(to, Math.max(from, from + share * (to - from)));
  }

  listen() {
    const { svg: area } = this;
    /** @type {{ x: number, value: number } | null} */
    let start = null;
    let dragged = false, waiting = 0;
    area.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || this.empty) return;
      start = { x: event.clientX, value: this.valueAt(event.clientX) };
      area.setPointerCapture(event.pointerId);
    });
    area.addEventListener("pointermove", (event) => {
      if (this.empty) return;
      const value = this.valueAt(event.clientX);
      if (start && Math.abs(event.clientX - start.x) > DRAGGED) this.mark(between(start.value, value));
      this.on({ point: nearestX(this.lines, value) });
    });
    area.addEventListener("pointerup", (event) => {
      if (!start) return;
      const range = between(start.value, this.valueAt(event.clientX));
      dragged = Math.abs(event.clientX - start.x) > DRAGGED;
      start = null;
      this.mark(null);
      if (dragged && range[1] - range[0] > 1e-9) this.on({ zoom: range });
    });
    // A double click shows everything again and picks nothing: while there is something to show, a click waits for its
    // second half.
    area.addEventListener("click", (event) => {
      clearTimeout(waiting);
      if (dragged || this.empty || event.detail > 1) return;
      const pick = nearestX(this.lines, this.valueAt(event.clientX));
      if (pick === null) return;
      if (this.range) waiting = setTimeout(() => this.on({ pick }), DOUBLE_CLICK);
      else this.on({ pick });
    });
    area.addEventListener("pointercancel", () => {
      start = null;
      this.mark(null);
    });
    area.addEventListener("pointerleave", () => {
      if (!start) this.on({ point: null });
    });
    area.addEventListener("dblclick", () => {
      clearTimeout(waiting);
      this.on({ zoom: null });
    });
  }

  /** @param {Range | null} range Marks what a drag has gone over, or nothing. */
  mark(range) {
    if (!range) this.chosen.setAttribute("visibility", "hidden");
    else {
      const [left, right] = range.map(this.toX);
      set(this.chosen, { x: left, width: right - left, visibility: "visible" });
    }
  }
}
