// Curves on the page, drawn by Plotly: a figure a panel, from what views/curves.py gives (a ChartPayload each).
//
// Points that are logged later are added to the trace of their metric. Zooming a figure zooms all of the same x axis;
// pointing at a step, or reading it with the keyboard, writes every figure's values there into the captions. A figure
// out of sight is drawn when it comes into sight. Plotly is fetched when the first one is drawn.

/** @import { ChartPayload, FoldPayload, TracePayload } from "./payloads.d.ts" */
/** @typedef {[number, number]} Range */
/** @typedef {Omit<TracePayload, "x" | "y" | "low" | "high"> & { x: number[], y: number[], low?: number[], high?: number[] }} Trace */
/** @typedef {HTMLElement & { on?: (event: string, act: (data: any) => void) => void }} Plot */
/**
 * @typedef {Object} Fold A group of figures that is folded away.
 * @property {HTMLDetailsElement} node
 * @property {HTMLElement} grid
 * @property {HTMLElement} said what its numbers say
 * @property {HTMLElement} spark
 * @property {HTMLElement} look
 * @property {string[]} metrics
 */
/**
 * @typedef {Object} Options
 * @property {number} [height] of a large figure
 * @property {() => void} [onOpen] called when a group is unfolded, whose figures may be missing
 * @property {Range | null} [range] what is zoomed to
 * @property {(step: number) => void} [onStep] called when a point is picked
 * @property {(x: number | null) => void} [onPoint] called when one is pointed at
 * @property {(range: Range | null) => void} [onZoom]
 * @property {() => void} [onSmooth] called when another smoothing is asked for
 * @property {(key: string) => Promise<string | undefined>} csv all points of a panel
 */

import { download, el, fileName, once, setText, svg } from "./dom.js";
import { MINUS, percent } from "./numbers.js";

const NAMED = 8; // colours of curves.css: --wc-0 … --wc-7
const GOLDEN = 137.508; // degrees between the hues of two further colours: the nth is far from all before
const DASHES = ["solid", "6px,3px", "1.6px,3px", "8px,3px,1.6px,3px", "12px,3px", "3px,3px"];
const SMOOTHING = "workbench-smoothing"; // of the browser's tab
const DOUBLE_CLICK = 400; // milliseconds in which a click may turn out to be the first half of a double click
const LIBRARY = "workbench-assets/plotly-basic.min.js";
const STEPS = { rangemode: "tozero", minallowed: 0, exponentformat: "none" };

/** @type {Promise<any> | null} */
let fetched = null;
/** One figure is drawn a turn, so that the page never stands still for all of them. @type {Promise<unknown>} */
let turn = Promise.resolve();
const pause = () => new Promise((go) => setTimeout(go));

/** Fetches the library while the page has nothing else to do, so that the first figure need not wait for it. */
export const prepare = () => requestIdleCallback(() => plotly());

function plotly() {
  fetched ??= new Promise((found, failed) => {
    const onload = async () => {
      const { Plotly } = /** @type {any} */ (globalThis);
      await pause();
      await Plotly.newPlot(el("div"), [{ x: [0, 1], y: [0, 1] }], { width: 200, height: 150 }); // the first takes longest
      found(Plotly);
    };
    document.head.append(el("script", { src: new URL(LIBRARY, document.baseURI).href, onload, onerror: failed }));
  });
  return fetched;
}

/** @param {number} n The CSS colour of a line, from the style sheet; no two of the first hundred are the same. */
export function colour(n) {
  return n < NAMED ? `var(--wc-${n})` : `hsl(${((n * GOLDEN) % 360).toFixed(1)}, 45%, var(--wc-lightness))`;
}

/** Numbers from base64 of little-endian float32. @param {string} text */
export const numbers = (text) =>
  Array.from(new Float32Array(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer));

/** A value as a caption says it: three or four digits, a share in per cent. @param {number} value */
export function valueText(value, share = false) {
  const size = Math.abs(value);
  if (share) return percent(value, size && size < 0.1 ? 1 : 0);
  const digits = size >= 1000 || (size >= 10 && Number.isInteger(value)) ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
  const text = size && size < 0.001 ? value.toExponential(1) : size ? value.toFixed(digits) : "0";
  return text.replaceAll("-", MINUS);
}

/** The index of the last of ascending places that is not after `x`; of the last one for null. @param {number[]} places @param {number | null} x */
export function indexAt(places, x) {
  let low = 0, high = places.length;
  while (x !== null && low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return (x === null ? places.length : low) - 1;
}

/**
 * The lines that have an entry and are read, which a smoothed one is where it was logged: at the faint one behind it.
 * @param {Trace[]} traces
 */
function named(traces) {
  const behind = new Map(traces.filter(({ faint }) => faint).map((trace) => [trace.name, trace]));
  return traces.filter(({ faint, x }) => !faint && x.length)
    .map((trace) => ({ ...trace, y: behind.get(trace.name)?.y ?? trace.y }));
}

/**
 * A small curve without axes, between two values; every one drawn beside it has the same, so that they compare.
 * @param {number[]} values @param {[number, number]} [ends] 0 and the largest by default
 */
export function sparkline(values, [low, high] = [Math.min(0, ...values), Math.max(0, ...values)]) {
  const width = 110, height = 22, span = high - low || 1;
  const points = values.map((value, i) => {
    const x = 1 + (width - 2) * (values.length > 1 ? i / (values.length - 1) : 0.5);
    return `${x.toFixed(1)},${(height - 2 - (height - 4) * (value - low) / span).toFixed(1)}`;
  });
  const line = svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.3 });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": true }, line);
}

/** @param {HTMLElement} root @param {Options} options */
export const mount = (root, options) => new Curves(root, options);

export class Curves {
  /** @param {HTMLElement} root @param {Options} options */
  constructor(root, options) {
    this.options = options;
    this.name = ""; // begins the names of files
    this.range = options.range ?? null;
    /** @type {Figure[]} */
    this.figures = [];
    this.slider = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, "aria-label": "Smoothing" });
    this.slider.value = sessionStorage.getItem(SMOOTHING) ?? "0";
    this.said = el("output");
    const about = "Exponential moving average with this weight on what came before. The values stay faint behind it.";
    this.all = el("button", { type: "button", class: "show-all", hidden: true, onclick: () => this.zoom(null) });
    const smoothing = el("label", { class: "smoothing", title: about }, "smoothing ", this.slider, this.said);
    this.bar = el("div", { class: "curves-bar", hidden: true }, smoothing, this.all);
    this.slider.addEventListener("input", () => this.smooth());
    this.large = el("div", { class: "curves large" });
    /** @type {Map<string, Fold>} by title */
    this.folds = new Map();
    this.folded = el("div", { class: "curve-folds" });
    /** @type {string | null} a metric whose figure is to be brought into sight once it is there */
    this.wanted = null;
    root.classList.add("wc");
    root.append(this.bar, this.large, this.folded);
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const figure = this.figures.find(({ node }) => node === target);
        if (!figure) continue;
        figure.visible = isIntersecting;
        figure.draw();
      }
    }, { rootMargin: "200px" });
    this.width = 0;
    new ResizeObserver(([{ contentRect: { width } }]) => {
      if (width && width !== this.width) this.redraw();
      this.width = width || this.width;
    }).observe(root);
    new MutationObserver(() => this.redraw()).observe(document.body, { attributeFilter: ["class"] }); // the theme
    this.say();
  }

  get smoothing() {
    return Number(this.slider.value);
  }

  get isEmpty() {
    return !this.figures.length;
  }

  redraw() {
    for (const figure of this.figures) figure.changed();
  }

  smooth() {
    sessionStorage.setItem(SMOOTHING, this.slider.value);
    this.say();
    this.options.onSmooth?.();
  }

  /** @param {string} [x] what is counted */
  say(x = "step") {
    const of = x === "step" ? "steps" : x;
    setText(this.said, this.smoothing ? this.smoothing.toFixed(2) : "off");
    this.all.hidden = !this.range;
    const round = (/** @type {number} */ end, /** @type {number} */ i) =>
      x === "step" ? (i ? Math.floor(end) : Math.ceil(end)) : Number(end.toPrecision(3));
    if (this.range) setText(this.all, `${of} ${this.range.map(round).join("–")} · show all`);
  }

  /** @param {Range | null} [range] Takes all away; a zoom stays only if it is given. */
  reset(range = null) {
    this.range = range;
    this.wanted = null;
    this.show([]);
    this.tell([]);
  }

  /** @param {string} title The group of that title. */
  foldOf(title) {
    const known = this.folds.get(title);
    if (known) return known;
    const said = el("span", { class: "said" }),
      spark = el("span", { class: "spark", title: "Its first number, from 0 to the largest: heights do not compare" }),
      look = el("span", { class: "look" });
    const grid = el("div", { class: "curves" });
    const node = el("details", { class: "fold" }, el("summary", {}, el("b", {}, title), said, spark, look), grid);
    node.addEventListener("toggle", () => node.open && this.options.onOpen?.());
    /** @type {Fold} */
    const fold = { node, grid, said, spark, look, metrics: [] };
    this.folds.set(title, fold);
    this.folded.append(node);
    return fold;
  }

  /** The titles of the groups that are unfolded. */
  get open() {
    return [...this.folds].filter(([, { node }]) => node.open && !node.hidden).map(([title]) => title);
  }

  /** @param {FoldPayload[]} groups What the numbers of each group say; there are no others. */
  tell(groups) {
    for (const { node } of this.folds.values()) node.hidden = true;
    for (const { title, said, spark, look, metrics } of groups) {
      const fold = this.foldOf(title);
      fold.node.hidden = false;
      fold.metrics = metrics;
      setText(fold.said, said);
      setText(fold.look, look ? "look" : "");
      once(fold.spark, spark, () => fold.spark.replaceChildren(sparkline(spark)));
    }
  }

  /** @param {ChartPayload[]} panels Draws these in place of those there; a figure that is there already keeps its place. */
  show(panels) {
    const before = new Map(this.figures.map((figure) => [figure.panel.key, figure]));
    this.figures = panels.map((panel) => {
      const figure = before.get(panel.key) ?? new Figure(panel, this);
      before.delete(panel.key);
      figure.update(panel);
      return figure;
    });
    for (const figure of before.values()) figure.remove();
    /** @type {Map<HTMLElement, number>} how many figures stand where they belong */
    const placed = new Map();
    for (const { node, panel } of this.figures) {
      const grid = panel.group ? this.foldOf(panel.group).grid : this.large, i = placed.get(grid) ?? 0;
      if (grid.children[i] !== node) grid.insertBefore(node, grid.children[i] ?? null);
      placed.set(grid, i + 1);
    }
    if (!this.options.onOpen) { for (const { node, grid } of this.folds.values()) node.hidden = !placed.has(grid); }
    this.bar.hidden = !panels.length;
    this.say(panels[0]?.x);
    if (this.wanted) this.lead(this.wanted);
  }

  /** @param {Record<string, unknown>[]} rows of metrics, to be added */
  add(rows) {
    if (rows.length) { for (const figure of this.figures) figure.add(rows); }
  }

  /** @param {string[]} metrics whose newest value is no number, which captions then say in place of the last one */
  lose(metrics) {
    for (const figure of this.figures) figure.lose(metrics);
  }

  /** @param {number | null} x */
  point(x) {
    for (const figure of this.figures) figure.read(x);
    this.options.onPoint?.(x);
  }

  /** @param {Range | null} range */
  zoom(range) {
    this.range = range;
    this.say(this.figures[0]?.panel.x);
    this.redraw();
    this.options.onZoom?.(range);
  }

  /** @param {string} metric Brings the figure that draws it into sight; false if none does. */
  lead(metric) {
    const leading = this.figures.find(({ traces }) => traces.some((trace) => trace.metric === metric));
    const fold = [...this.folds.values()].find(({ metrics }) => metrics.includes(metric));
    this.wanted = leading ? null : metric;
    if (fold) fold.node.open = true;
    if (!leading) return Boolean(fold);
    if (leading.panel.group) this.foldOf(leading.panel.group).node.open = true;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    leading.node.scrollIntoView({ block: "center", behavior: still ? "auto" : "smooth" });
    leading.node.focus({ preventScroll: true });
    return true;
  }
}

class Figure {
  /** @param {ChartPayload} panel @param {Curves} owner */
  constructor(panel, owner) {
    this.panel = panel;
    this.owner = owner;
    /** @type {Trace[]} */
    this.traces = [];
    /** @type {HTMLElement[]} a value of each named trace */
    this.values = [];
    this.captioned = ""; // what the entries were made for
    /** @type {Set<string>} */
    this.lost = new Set();
    /** @type {number | null} where it is read */
    this.pointed = null;
    this.visible = false;
    this.stale = false; // to be drawn
    this.waiting = false; // for its turn to be drawn
    this.drawn = false; // once at least
    this.drawings = 0;
    this.log = el("input", { type: "checkbox", onchange: () => this.changed() });
    this.entries = el("span", { class: "entries" });
    this.plot =
      /** @type {Plot} */ (el("div", { class: "plot", role: "slider", tabindex: 0, "aria-label": panel.title }));
    this.plot.style.height = `${panel.group ? 150 : owner.options.height ?? 150}px`;
    this.plot.addEventListener("keydown", (event) => this.press(event));
    this.plot.addEventListener("blur", () => this.lookAway());
    const caption = el("figcaption", { title: panel.about }, el("b", {}, panel.title), this.entries, this.menu());
    this.node = el("figure", { class: "curve", "data-panel": panel.key, tabindex: -1 }, caption, this.plot); // an alarm leads here
    owner.seen.observe(this.node);
  }

  menu() {
    const name = `Options of ${this.panel.title}`;
    const save = async () => {
      const text = await this.owner.options.csv(this.panel.key);
      if (text) download(`${fileName(this.owner.name, this.panel.key)}.csv`, new Blob([text], { type: "text/csv" }));
      node.open = false;
    };
    const group = el(
      "div",
      { role: "group", "aria-label": name },
      el("label", {}, this.log, " log scale"),
      el("button", { type: "button", onclick: save }, "CSV"),
    );
    const node = el("details", { class: "figure-menu", title: "" }, el("summary", { "aria-label": name }, "⋯"), group);
    node.addEventListener("focusout", ({ relatedTarget }) => {
      if (!node.contains(/** @type {Node | null} */ (relatedTarget))) node.open = false;
    });
    return node;
  }

  remove() {
    this.owner.seen.unobserve(this.node);
    this.node.remove();
  }

  /** @param {ChartPayload} panel */
  update(panel) {
    this.panel = panel;
    this.traces = panel.traces.map(({ x, y, low, high, ...look }) => ({
      ...look,
      x: numbers(x),
      y: numbers(y),
      ...(low && high ? { low: numbers(low), high: numbers(high) } : {}),
    }));
    this.changed();
  }

  /** @param {Record<string, unknown>[]} rows */
  add(rows) {
    for (const { x, y, metric } of this.traces) {
      for (const row of rows) {
        const value = metric === null ? null : row[metric];
        if (typeof value !== "number") continue;
        x.push(Number(row.step));
        y.push(value);
      }
    }
    this.changed();
  }

  /** @param {string[]} metrics */
  lose(metrics) {
    this.lost = new Set(metrics);
    this.read(this.pointed);
  }

  changed() {
    const positive = named(this.traces).every(({ y, low }) => Math.min(...(low ?? y)) > 0);
    this.log.disabled = !positive;
    this.log.parentElement?.classList.toggle("off", !positive);
    this.fillCaption();
    this.read(this.pointed);
    this.stale = true;
    this.draw();
  }

  // ── caption and reading ────────────────────────────────────────────────────────────────────────────────────

  /** A name and a value a line; what the dashes of several metrics mean where the colours are of configurations. */
  fillCaption() {
    const lines = this.panel.x === "step" && !this.panel.dashes.length && this.isOfOneRun ? named(this.traces) : [];
    const dashes = this.panel.dashes.map(([name, dash]) => ({ name, dash, colour: null }));
    const key = JSON.stringify([...lines, ...dashes].map(({ name, colour, dash }) => [name, colour, dash]));
    if (key === this.captioned) return;
    this.captioned = key;
    this.values = lines.map(() => el("output"));
    const hasNames = this.panel.named || lines.length > 1;
    this.entries.replaceChildren(
      ...lines.map((line, i) => entry(line, hasNames ? `${line.name} ` : "", this.values[i])),
      ...dashes.map((look) => entry(look, look.name)),
    );
  }

  get isOfOneRun() {
    return this.traces.some(({ metric }) => metric !== null);
  }

  /** @param {number | null} x Its values there are written; without, those at the end. */
  read(x) {
    this.pointed = x;
    const { share } = this.panel;
    const lines = named(this.traces);
    const texts = lines.map(({ x: places, y, low, high, metric }) => {
      const i = indexAt(places, x);
      if (x === null && metric !== null && this.lost.has(metric)) return "NaN";
      if (i < 0) return "–";
      return valueText(y[i], share) +
        (low && high ? ` (${valueText(low[i], share)} to ${valueText(high[i], share)})` : "");
    });
    this.values.forEach((value, i) => setText(value, texts[i] ?? "–"));
    const last = Math.max(...lines.map(({ x: places }) => places[places.length - 1]), 0);
    const place = Number((x ?? last).toPrecision(6));
    const valuetext = `${this.panel.x || "at"} ${place}: ${
      lines.map(({ name }, i) => `${name} ${texts[i]}`).join("; ")
    }`;
    for (const [name, value] of Object.entries({ valuemin: 0, valuemax: last, valuenow: place, valuetext })) {
      this.plot.setAttribute(`aria-${name}`, `${value}`);
    }
  }

  /**
   * Arrows, Home and End read the points in sight, Enter picks one, + and - zoom about it, 0 shows everything, Escape
   * reads no more.
   * @param {KeyboardEvent} event
   */
  press(event) {
    const places = [...new Set(named(this.traces).flatMap(({ x }) => x))].sort((a, b) => a - b);
    if (event.ctrlKey || event.metaKey || event.altKey || !places.length) return;
    const [from, to] = this.owner.range ?? [Math.min(0, places[0]), places[places.length - 1]];
    const inSight = places.filter((x) => x >= from && x <= to);
    const at = this.pointed;
    const i = at === null ? inSight.length : indexAt(inSight, at);
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => this.lookAt(inSight[Math.max(0, i - 1)]),
      ArrowRight: () => this.lookAt(inSight[at === null ? 0 : Math.min(inSight.length - 1, i + 1)]),
      Home: () => this.lookAt(inSight[0]),
      End: () => this.lookAt(inSight[inSight.length - 1]),
      Enter: () => at !== null && this.owner.options.onStep?.(at),
      Escape: () => this.lookAway(),
      0: () => this.owner.zoom(null),
      "+": () => this.zoomAbout(at ?? (from + to) / 2, (to - from) / 4, places),
      "-": () => this.zoomAbout(at ?? (from + to) / 2, to - from, places),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** @param {number | undefined} x */
  lookAt(x) {
    if (x === undefined) return;
    this.owner.point(x);
    if (this.drawn) plotly().then((Plotly) => Plotly.Fx.hover(this.plot, { xval: x }));
  }

  lookAway() {
    this.owner.point(null);
    if (this.drawn) plotly().then((Plotly) => Plotly.Fx.unhover(this.plot));
  }

  /** @param {number} x @param {number} half the width @param {number[]} places */
  zoomAbout(x, half, places) {
    const low = Math.min(0, places[0]), high = places[places.length - 1];
    /** @type {Range} */
    const range = [Math.max(low, x - half), Math.min(high, x + half)];
    if (range[0] <= low && range[1] >= high) this.owner.zoom(null);
    else if (range[1] - range[0] >= (this.panel.x === "step" ? 2 : 0)) this.owner.zoom(range);
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────────────────────

  draw() {
    if (this.stale && this.visible && !this.waiting) turn = turn.then(pause).then(() => this.drawNow());
    this.waiting ||= this.stale && this.visible;
  }

  async drawNow() {
    const Plotly = await plotly();
    this.waiting = false;
    if (!this.stale || !this.node.isConnected) return;
    this.stale = false;
    const config = { displayModeBar: false, responsive: false, showAxisDragHandles: false };
    await Plotly.react(this.plot, this.data(), this.layout(), config);
    if (!this.drawn) this.listen();
    this.drawn = true;
  }

  listen() {
    /** @type {(event: string, act: (data: any) => void) => void} */
    const on = (event, act) => this.plot.on?.(event, act);
    let waiting = 0, doubled = -DOUBLE_CLICK;
    // Plotly tells of a mouse that has left late or, after a drag, not at all.
    on("plotly_hover", ({ xvals, points }) => {
      if (this.plot.matches(":hover")) this.owner.point(points[0]?.x ?? xvals[0]);
    });
    on("plotly_unhover", () => this.owner.point(null));
    this.plot.addEventListener("pointerleave", () => this.owner.point(null));
    on("plotly_relayout", (/** @type {Record<string, any>} */ to) => {
      const range = to["xaxis.range"] ??
        (to["xaxis.range[0]"] === undefined ? null : [to["xaxis.range[0]"], to["xaxis.range[1]"]]);
      if (range) this.owner.zoom(range);
    });
    on("plotly_doubleclick", () => {
      clearTimeout(waiting);
      doubled = performance.now();
      this.owner.zoom(null);
    });
    // While there is something to show again, a click waits for the second half of a double click, which picks nothing.
    on("plotly_click", ({ points }) => {
      clearTimeout(waiting);
      if (performance.now() - doubled < DOUBLE_CLICK) return;
      waiting = setTimeout(() => this.owner.options.onStep?.(points[0].x), this.owner.range ? DOUBLE_CLICK : 0);
    });
  }

  /** Plotly's traces: each line over its band. */
  data() {
    const style = getComputedStyle(this.plot), { share } = this.panel;
    const ink = (/** @type {number} */ n) =>
      colour(n).replace(/var\((--[\w-]+)\)/, (_, name) => style.getPropertyValue(name).trim());
    const format = share ? ".1%" : ".4~g";
    const read = named(this.traces);
    return this.traces.flatMap(({ name, colour: n, dash, faint, markers, x, y, low, high }) => {
      const isRead = read.some((line) => line.y === y);
      const plain = name.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // Plotly reads some tags
      const hovertemplate = `${plain} <b>%{y:${format}}</b>` +
        (low ? ` (%{customdata[0]:${format}} to %{customdata[1]:${format}})` : "") + "<extra></extra>";
      const edge = { type: "scatter", x, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
      const band = low && high
        ? [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: faded(ink(n), 0.18) }]
        : [];
      return [...band, {
        type: "scatter",
        x,
        y,
        mode: markers ? "lines+markers" : "lines",
        marker: { size: 4.5, color: ink(n) },
        line: {
          color: faint ? faded(ink(n), 0.4) : ink(n),
          width: faint ? 1 : 1.6,
          dash: DASHES[dash % DASHES.length],
        },
        ...(isRead
          ? { hovertemplate, customdata: low && high ? low.map((at, i) => [at, high[i]]) : null }
          : { hoverinfo: "skip" }),
      }];
    });
  }

  layout() {
    const style = getComputedStyle(this.plot);
    const ink = (/** @type {string} */ name) => style.getPropertyValue(`--wc-${name}`).trim();
    const { range } = this.owner, { share, x } = this.panel;
    const logarithmic = this.log.checked && !this.log.disabled;
    const axis = { gridcolor: ink("grid"), zeroline: false, linecolor: ink("grid") };
    const cross = { spikecolor: ink("muted"), spikethickness: 1, unifiedhovertitle: { text: `${x} %{x}` } };
    return {
      datarevision: ++this.drawings, // or Plotly would not look into arrays that have grown
      width: this.plot.clientWidth,
      height: this.plot.clientHeight,
      margin: { l: 44, r: 10, t: 6, b: 34 },
      showlegend: false,
      dragmode: "zoom",
      hovermode: "x unified",
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: style.fontFamily, size: 12, color: ink("muted") },
      hoverlabel: { bgcolor: ink("page"), bordercolor: ink("line"), font: { size: 12, color: ink("text") } },
      xaxis: {
        ...axis,
        ...cross,
        showgrid: false,
        title: { text: x === "step" ? "training step" : x, standoff: 4, font: { size: 12 } },
        ...(x === "step" ? STEPS : {}),
        ...(range ? { range: [...range], autorange: false } : { autorange: true }),
      },
      yaxis: {
        ...axis,
        fixedrange: true,
        type: logarithmic ? "log" : "linear",
        tickformat: share ? "~%" : "",
        exponentformat: "e",
        nticks: 5,
        rangemode: share && !logarithmic ? "tozero" : "normal",
        ...this.extent(range, logarithmic),
      },
    };
  }

  /** @param {Range | null} range @param {boolean} logarithmic The y axis is that of the values in sight. */
  extent(range, logarithmic) {
    const isLargeShare = this.panel.share && !this.panel.group && !logarithmic;
    if (!range && !isLargeShare) return { autorange: true };
    const [from, to] = range ?? [-Infinity, Infinity];
    const inSight = this.traces.flatMap(({ x, y, low, high }) =>
      x.flatMap((at, i) => (at < from || at > to ? [] : [low?.[i] ?? y[i], high?.[i] ?? y[i]]))
    );
    if (!inSight.length) return { autorange: true };
    const [least, greatest] = [Math.min(...inSight), Math.max(...inSight)]
      .map((value) => (logarithmic ? Math.log10(value) : value));
    if (isLargeShare) return { range: shareRange(least, greatest), autorange: false };
    const margin = 0.06 * (greatest - least) || Math.abs(greatest) / 2 || 0.5;
    return { range: [least - margin, greatest + margin], autorange: false };
  }
}

/** @param {number} least @param {number} greatest @returns {Range} The axis of shares: around them, and at least a tenth. */
export function shareRange(least, greatest) {
  const margin = Math.max(0.06 * (greatest - least), (0.1 - (greatest - least)) / 2);
  return [Math.max(0, least - margin), Math.min(1.02, greatest + margin)];
}

/** @param {string} ink @param {number} opacity */
const faded = (ink, opacity) =>
  ink.startsWith("#")
    ? `rgba(${[1, 3, 5].map((at) => parseInt(ink.slice(at, at + 2), 16)).join()}, ${opacity})`
    : ink.replace("hsl", "hsla").replace(")", `, ${opacity})`);

/** @param {{ colour: number | null, dash: number }} look @param {string} name @param {HTMLElement} [value] An entry of a caption. */
function entry({ colour: n, dash }, name, value) {
  const stroke = n === null ? "currentColor" : colour(n);
  const [on, off] = (DASHES[dash % DASHES.length].match(/[\d.]+/g) ?? []).map(Number);
  const node = el("i", { class: "swatch" });
  node.style.background = off
    ? `repeating-linear-gradient(90deg, ${stroke} 0 ${on}px, transparent 0 ${on + off}px)`
    : stroke;
  return el("span", { class: "line" }, node, name, value);
}
